// What `restore` and `rollback` print about the lineage they began.
#ifndef COORDINATOR_CLI_LINEAGE_TEXT_H_
#define COORDINATOR_CLI_LINEAGE_TEXT_H_

#include <string>

#include "coordinator/cli/command.h"
#include "coordinator/core/facts.h"

namespace diloco {

void PrintLineage(const Invocation& invocation, const std::string& state_dir,
                  const LineageStarted& fact);

}  // namespace diloco

#endif  // COORDINATOR_CLI_LINEAGE_TEXT_H_
