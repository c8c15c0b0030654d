// Bulk-plane messages to and from the coordinator's own types.
#ifndef COORDINATOR_SERVICE_BLOB_CODEC_H_
#define COORDINATOR_SERVICE_BLOB_CODEC_H_

#include "absl/status/statusor.h"
#include "coordinator/runtime/coordinator.h"
#include "diloco/v1/blob.pb.h"

namespace diloco {

absl::StatusOr<UpdateValue> DecodeUpdateValue(const v1::UpdateValue& value);

void EncodeBegin(const v1::BeginUploadRequest& request,
                 const BeginOutcome& outcome, v1::BeginUploadResponse* out);
void EncodeFinish(const v1::FinishUploadRequest& request,
                  const FinishOutcome& outcome, v1::FinishUploadResponse* out);

}  // namespace diloco

#endif  // COORDINATOR_SERVICE_BLOB_CODEC_H_
