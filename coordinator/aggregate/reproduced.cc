#include "coordinator/aggregate/reproduced.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

absl::Status Differs(const char* what, const Digest& recorded,
                     const Digest& again) {
  if (recorded == again) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "folded again, ", what, " has digest ", again.Short(),
      " but was published as ", recorded.Short(),
      ": the spools of the round or the image before it were changed; restore "
      "the state directory from a backup"));
}

}  // namespace

absl::Status CheckReproduced(const VersionPublished& recorded,
                             const FoldResult& again) {
  RETURN_IF_ERROR(Differs("theta", recorded.digest, again.digest));
  RETURN_IF_ERROR(
      Differs("the update blob", recorded.blob.digest, again.blob_digest));
  if (recorded.theta_image.bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Differs("the image of theta", recorded.theta_image.digest,
                          again.theta_image_digest));
  return Differs("the image of the momentum", recorded.momentum_image.digest,
                 again.momentum_image_digest);
}

}  // namespace diloco
