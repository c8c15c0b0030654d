// The computing half of a fold: checks, then tile by tile.
#include "coordinator/aggregate/fold.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/tensor/scan.h"
#include "coordinator/aggregate/fold_writer.h"

namespace diloco {
namespace {

absl::Status CheckHeader(uint32_t fragment, const FoldMember& member,
                         size_t elements) {
  const PartHeader& header = member.update->header();
  if (header.fragment != fragment || header.first_element != 0 ||
      header.elements != static_cast<int64_t>(elements)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "update of ", member.worker, " covers elements ", header.first_element,
        " to ", header.first_element + header.elements, " of fragment ",
        header.fragment, ", expected 0 to ", elements, " of fragment ",
        fragment));
  }
  return absl::OkStatus();
}

absl::Status CheckMagnitude(const FoldMember& member) {
  float max_abs = member.max_abs;
  if (max_abs == 0) {
    ValueScan scan;
    for (int64_t i = 0; i < member.update->frames(); ++i) {
      scan.AddEncoded(member.update->header().codec,
                      member.update->FrameBytes(i));
    }
    max_abs = scan.max_abs();
  }
  // Also false for NaN.
  if (max_abs <= kMaxFoldMagnitude) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("update of ", member.worker, " has a value of magnitude ",
                   max_abs, "; above 2^96 a fold may overflow"));
}

absl::Status CheckMembers(uint32_t fragment,
                          absl::Span<const FoldMember> members,
                          size_t elements) {
  uint64_t total = 0;
  for (const FoldMember& member : members) {
    RETURN_IF_ERROR(CheckHeader(fragment, member, elements));
    RETURN_IF_ERROR(CheckMagnitude(member));
    if (member.update->header().codec != members[0].update->header().codec) {
      return absl::InvalidArgumentError(
          absl::StrCat("update of ", member.worker, " is in ",
                       CodecName(member.update->header().codec), ", that of ",
                       members[0].worker, " in ",
                       CodecName(members[0].update->header().codec)));
    }
    if (__builtin_add_overflow(total, member.weight, &total)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the weights exceed 64 bits at ", member.worker, "'s ",
                       member.weight));
    }
  }
  if (total == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weights of ", members.size(), " members are all 0"));
  }
  return absl::OkStatus();
}

// fp16 ends at 65504, so a change may be fine for theta and not for the blob.
absl::Status CheckDownlink(absl::Span<const FoldMember> members,
                           const OuterSettings& outer, Codec codec_down,
                           absl::Span<const float> momentum) {
  if (codec_down != Codec::kFp16) return absl::OkStatus();
  ValueScan before;
  before.Add(momentum);
  ValueScan updates;
  for (const FoldMember& member : members) {
    for (int64_t i = 0; i < member.update->frames(); ++i) {
      updates.AddEncoded(member.update->header().codec,
                         member.update->FrameBytes(i));
    }
  }
  const double mu = outer.momentum;
  const double m = mu * before.max_abs() + updates.max_abs();
  const double change =
      outer.lr * (outer.nesterov ? updates.max_abs() + mu * m : m);
  if (change < 65000) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the change may reach ", change,
                   ", beyond fp16's 65504: use codec fp32 for the downlink"));
}

}  // namespace

absl::StatusOr<FoldResult> Fold(uint32_t fragment,
                                absl::Span<const FoldMember> members,
                                const OuterSettings& outer, Codec codec_down,
                                absl::Span<float> theta,
                                absl::Span<float> momentum,
                                const FoldOutput& output) {
  DILOCO_CHECK(!members.empty() && !theta.empty());
  DILOCO_CHECK(theta.size() == momentum.size());
  DILOCO_CHECK((output.theta_image == nullptr) ==
               (output.momentum_image == nullptr));
  RETURN_IF_ERROR(CheckMembers(fragment, members, theta.size()));
  RETURN_IF_ERROR(CheckDownlink(members, outer, codec_down, momentum));

  FoldWriter writer(fragment, codec_down, theta, momentum, output);
  std::vector<FoldInput> inputs(members.size());
  std::string encoded;
  double sum_squares = 0;
  for (int64_t tile = 0; tile < FrameCount(theta.size()); ++tile) {
    for (size_t i = 0; i < members.size(); ++i) {
      const PartReader& update = *members[i].update;
      // A spool may have lain on disk for long since it was verified.
      RETURN_IF_ERROR(WithContext(update.VerifyFrame(tile), members[i].worker));
      inputs[i] = {update.header().codec, update.FrameBytes(tile),
                   members[i].weight};
    }
    ASSIGN_OR_RETURN(const absl::Span<float> change, writer.NextChange());
    const size_t first = tile * kFrameElements;
    sum_squares +=
        FoldTile(inputs, outer, momentum.subspan(first, change.size()), change);
    if (codec_down != Codec::kFp32) {
      encoded.resize(EncodedBytes(codec_down, change.size()));
      const absl::Span<char> bytes =
          absl::MakeSpan(&encoded[0], encoded.size());
      Encode(codec_down, change, bytes);
      Decode(codec_down, bytes, change);
    }
    ApplyChange(change, theta.subspan(first, change.size()));
    writer.Submit();
  }
  ASSIGN_OR_RETURN(FoldResult result, writer.Finish());
  result.mean_norm = std::sqrt(sum_squares);
  return result;
}

absl::StatusOr<Digest> WriteImage(WritableFile* file, uint32_t fragment,
                                  absl::Span<const float> values) {
  PartHeader header;
  header.codec = Codec::kFp32;
  header.fragment = fragment;
  header.elements = static_cast<int64_t>(values.size());
  PartWriter writer(file, header);
  for (int64_t i = 0; i < FrameCount(header.elements); ++i) {
    RETURN_IF_ERROR(
        writer.Append(values.subspan(i * kFrameElements, kFrameElements)));
  }
  return writer.Finish();
}

}  // namespace diloco
