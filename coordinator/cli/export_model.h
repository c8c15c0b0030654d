// Builds the values of a version from the files that lead to it: an image,
// then changes, each checked against the digest of its result. Used by
// `export`.
#ifndef COORDINATOR_CLI_EXPORT_MODEL_H_
#define COORDINATOR_CLI_EXPORT_MODEL_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"
#include "diloco/v1/admin.pb.h"

namespace diloco {

// Brings the file of that digest here; it has been verified.
using FetchFile = std::function<absl::StatusOr<std::unique_ptr<ReadableFile>>(
    const Digest& digest, uint64_t bytes)>;

struct ExportedModel {
  ModelConfig config;
  Layout layout;
  std::vector<float> theta;  // layout.elements values.
};

// DATA_LOSS when a result's digest is not the one that the coordinator
// published; INVALID_ARGUMENT when the description does not fit together.
absl::StatusOr<ExportedModel> BuildModel(
    const v1::ExportDescription& description, const FetchFile& fetch);

}  // namespace diloco

#endif  // COORDINATOR_CLI_EXPORT_MODEL_H_
