#include "coordinator/service/blob_codec.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/rpc/message_codec.h"
#include "common/tensor/codec.h"

namespace diloco {
namespace {

v1::Verdict EncodeVerdict(UploadVerdict::Kind kind) {
  switch (kind) {
    case UploadVerdict::Kind::kSend:
      return v1::VERDICT_SEND;
    case UploadVerdict::Kind::kAccepted:
      return v1::VERDICT_ACCEPTED;
    case UploadVerdict::Kind::kLate:
      return v1::VERDICT_LATE;
    case UploadVerdict::Kind::kRefused:
      return v1::VERDICT_REFUSED;
  }
  DILOCO_CHECK(false) << "verdict " << static_cast<int>(kind);
  return v1::VERDICT_UNSPECIFIED;
}

void EncodeReceipt(const v1::UpdateKey& key, const std::string& digest,
                   uint64_t sequence, v1::Receipt* out) {
  *out->mutable_key() = key;
  out->set_digest(digest);
  out->set_sequence(sequence);
}

}  // namespace

absl::StatusOr<UpdateValue> DecodeUpdateValue(const v1::UpdateValue& in) {
  UpdateValue value;
  value.base_version = in.base_version();
  ASSIGN_OR_RETURN(value.base_digest,
                   DecodeDigest("base digest of the update", in.base_digest()));
  value.bytes = in.bytes();
  ASSIGN_OR_RETURN(value.digest,
                   DecodeDigest("digest of the update", in.digest()));
  ASSIGN_OR_RETURN(value.codec, ParseCodec(in.codec()));
  value.tokens = in.tokens();
  value.steps = in.steps();
  value.loss = in.loss();
  if (!std::isfinite(value.loss)) {
    return absl::InvalidArgumentError(
        absl::StrCat("loss of the update must be finite, got ", value.loss));
  }
  value.lr_sum = in.lr_sum();
  if (!std::isfinite(value.lr_sum) || value.lr_sum < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the summed learning rate of the update must be finite and not "
        "negative, got ",
        value.lr_sum));
  }
  value.data_end = in.data_end();
  if (value.data_end != 0 && value.data_end < value.tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the update has ", value.tokens,
                     " tokens, but its worker has read only ", value.data_end,
                     " of its data"));
  }
  return value;
}

void EncodeBegin(const v1::BeginUploadRequest& request,
                 const BeginOutcome& outcome, v1::BeginUploadResponse* out) {
  out->set_verdict(outcome.queued ? v1::VERDICT_QUEUED
                                  : EncodeVerdict(outcome.kind));
  out->set_offset(outcome.offset);
  out->set_reason(outcome.reason);
  if (out->verdict() == v1::VERDICT_ACCEPTED) {
    EncodeReceipt(request.key(), request.value().digest(), outcome.sequence,
                  out->mutable_receipt());
  }
}

void EncodeFinish(const v1::FinishUploadRequest& request,
                  const FinishOutcome& outcome, v1::FinishUploadResponse* out) {
  out->set_verdict(EncodeVerdict(outcome.kind));
  out->set_reason(outcome.reason);
  if (out->verdict() == v1::VERDICT_ACCEPTED) {
    EncodeReceipt(request.key(), request.digest(), outcome.sequence,
                  out->mutable_receipt());
  }
}

}  // namespace diloco
