// The keys of run.yaml as one table, bound to a RunConfig. Used by config.cc
// and by the test of the example file.
#ifndef COORDINATOR_CONFIG_FIELDS_H_
#define COORDINATOR_CONFIG_FIELDS_H_

#include <string>
#include <vector>

#include "common/config/field_table.h"
#include "coordinator/config.h"

namespace diloco {

// Values of the file that RunConfig holds in another form.
struct RunFileExtras {
  std::vector<std::string> tokenizer;  // Files or directories, as given.
  std::string manifest;
  std::string eval_shard;
  // Keys with one legal value, or none that matters, in this build.
  uint32_t export_every = 50;
  uint32_t export_keep = 3;
  int only = 0;
};

// Both arguments outlive the table. `base` is the file's directory.
FieldTable RunFileTable(RunConfig* config, RunFileExtras* extras,
                        const std::string& base);

}  // namespace diloco

#endif  // COORDINATOR_CONFIG_FIELDS_H_
