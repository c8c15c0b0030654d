// Small pieces that several messages share: fencing and digests. Everything
// from the wire is checked for length here.
#ifndef COMMON_RPC_MESSAGE_CODEC_H_
#define COMMON_RPC_MESSAGE_CODEC_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/fencing.h"
#include "common/io/digest.h"
#include "diloco/v1/control.pb.h"

namespace diloco {

inline constexpr size_t kSessionBytes = 16;
inline constexpr size_t kLineageBytes = 16;
inline constexpr size_t kNonceBytes = 8;

void EncodeFencing(const Fencing& fencing, v1::Fencing* out);
// An unset message is an empty Fencing (never joined). INVALID_ARGUMENT for
// wrong lengths.
absl::StatusOr<Fencing> DecodeFencing(const v1::Fencing& fencing);
// "lineage=0123abcd epoch=3 nonce=..." for messages and log lines.
std::string DescribeFencing(const Fencing& fencing);

// `what` names the field in the error.
absl::StatusOr<Digest> DecodeDigest(absl::string_view what,
                                    absl::string_view bytes);
// Absent when there are no bytes at all.
absl::StatusOr<std::optional<Digest>> DecodeOptionalDigest(
    absl::string_view what, absl::string_view bytes);

}  // namespace diloco

#endif  // COMMON_RPC_MESSAGE_CODEC_H_
