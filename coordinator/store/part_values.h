// Reads an image: a part file that holds a whole fragment in fp32.
#ifndef COORDINATOR_STORE_PART_VALUES_H_
#define COORDINATOR_STORE_PART_VALUES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/io/file_system.h"
#include "coordinator/core/facts.h"

namespace diloco {

// Fills `values` with the content of the file, which must have the recorded
// digest and be of that fragment and size. INVALID_ARGUMENT: its content is
// another, and stays so; NOT_FOUND, DATA_LOSS: it cannot be read.
absl::Status ReadPartValues(FileSystem* fs, const std::string& path,
                            const FileRef& expected, uint32_t fragment,
                            absl::Span<float> values);

}  // namespace diloco

#endif  // COORDINATOR_STORE_PART_VALUES_H_
