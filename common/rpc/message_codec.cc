#include "common/rpc/message_codec.h"

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace diloco {

void EncodeFencing(const Fencing& fencing, v1::Fencing* out) {
  out->set_lineage(fencing.lineage);
  out->set_epoch(fencing.epoch);
  out->set_boot_nonce(fencing.boot_nonce);
}

absl::StatusOr<Fencing> DecodeFencing(const v1::Fencing& fencing) {
  if (fencing.lineage().empty() && fencing.epoch() == 0 &&
      fencing.boot_nonce().empty()) {
    return Fencing{};
  }
  if (fencing.lineage().size() != kLineageBytes ||
      fencing.boot_nonce().size() != kNonceBytes || fencing.epoch() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fencing must have a lineage of ", kLineageBytes, " bytes, a nonce of ",
        kNonceBytes, " bytes and an epoch from 1; got ",
        fencing.lineage().size(), " bytes, ", fencing.boot_nonce().size(),
        " bytes and epoch ", fencing.epoch()));
  }
  return Fencing{.lineage = fencing.lineage(),
                 .epoch = fencing.epoch(),
                 .boot_nonce = fencing.boot_nonce()};
}

std::string DescribeFencing(const Fencing& fencing) {
  if (fencing.lineage.empty()) return "lineage=none";
  return absl::StrCat("lineage=", ToHex(fencing.lineage).substr(0, 8),
                      " epoch=", fencing.epoch,
                      " nonce=", ToHex(fencing.boot_nonce));
}

absl::StatusOr<Digest> DecodeDigest(absl::string_view what,
                                    absl::string_view bytes) {
  absl::StatusOr<Digest> digest = Digest::FromBytes(bytes);
  if (!digest.ok()) return WithContext(digest.status(), what);
  return digest;
}

absl::StatusOr<std::optional<Digest>> DecodeOptionalDigest(
    absl::string_view what, absl::string_view bytes) {
  if (bytes.empty()) return std::optional<Digest>();
  ASSIGN_OR_RETURN(const Digest digest, DecodeDigest(what, bytes));
  return std::optional<Digest>(digest);
}

}  // namespace diloco
