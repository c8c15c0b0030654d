// The computing half of a fold: checks, then tile by tile.
#include "coordinator/aggregate/fold.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "common/tensor/scan.h"
#include "coordinator/aggregate/fold_writer.h"
#include "coordinator/aggregate/gram_stage.h"

namespace diloco {
namespace {

// Elements computed at a time, so that all members' bytes of them stay in the
// second-level cache between checksum and fold.
constexpr size_t kStep = 1 << 15;
// The same where members are decoded first, to four bytes a value of each.
constexpr size_t kDecodedStep = 1 << 12;

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
                      member.update->FrameBytes(i),
                      member.update->FrameElements(i));
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

// By how much the mean may exceed the largest of the members' values.
double LargestShare(absl::Span<const FoldMember> members,
                    absl::Span<const TensorFactors> tensors) {
  double total = 0;
  for (const FoldMember& member : members) {
    total += static_cast<double>(member.weight);
  }
  double largest = 1;
  for (const TensorFactors& tensor : tensors) {
    double sum = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      sum += static_cast<double>(members[i].weight) * tensor.factors[i];
    }
    largest = std::max(largest, sum / total);
  }
  return largest;
}

// fp16 ends at 65504, so a change may be fine for theta and not for the blob.
absl::Status CheckDownlink(absl::Span<const FoldMember> members,
                           absl::Span<const TensorFactors> tensors,
                           const OuterSettings& outer, Codec codec_down,
                           absl::Span<const float> momentum) {
  if (codec_down != Codec::kFp16) return absl::OkStatus();
  ValueScan before;
  before.Add(momentum);
  ValueScan updates;
  for (const FoldMember& member : members) {
    for (int64_t i = 0; i < member.update->frames(); ++i) {
      updates.AddEncoded(member.update->header().codec,
                         member.update->FrameBytes(i),
                         member.update->FrameElements(i));
    }
  }
  const double mean = updates.max_abs() * LargestShare(members, tensors);
  const double mu = outer.momentum;
  const double m = mu * before.max_abs() + mean;
  const double change = outer.lr * (outer.nesterov ? mean + mu * m : m);
  if (change < 65000) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the change may reach ", change,
                   ", beyond fp16's 65504: use codec fp32 for the downlink"));
}

// Replaces the change by what its decoded encoding is.
void RoundThrough(Codec codec, absl::Span<float> change) {
  char encoded[2 * kStep];  // fp16 or bf16.
  const absl::Span<char> bytes =
      absl::MakeSpan(encoded, EncodedBytes(codec, change.size()));
  Encode(codec, change, bytes);
  Decode(codec, bytes, change);
}

// The bytes of all members' updates, step by step, as the kernel takes them.
// Verifies their checksums on the way, as a spool may have lain on disk for
// long since it was accepted.
class FrameInputs {
 public:
  FrameInputs(absl::Span<const FoldMember> members, int64_t frame)
      : members_(members),
        frame_(frame),
        codec_(members[0].update->header().codec),
        plain_(IsPlain(codec_)),
        inputs_(members.size()),
        crcs_(members.size(), 0) {
    if (!plain_) decoded_.resize(members.size() * kDecodedStep);
  }

  size_t step() const { return plain_ ? kStep : kDecodedStep; }

  // `factors` by member; empty: all 1.
  absl::Span<const FoldInput> Next(size_t first, size_t n,
                                   absl::Span<const double> factors) {
    for (size_t i = 0; i < members_.size(); ++i) {
      inputs_[i].weight = members_[i].weight;
      inputs_[i].factor = factors.empty() ? 1 : factors[i];
      const absl::Span<const char> frame =
          members_[i].update->FrameBytes(frame_);
      if (plain_) {
        inputs_[i].codec = codec_;
        inputs_[i].bytes =
            frame.subspan(EncodedBytes(codec_, first), EncodedBytes(codec_, n));
        Extend(i, inputs_[i].bytes);
        continue;
      }
      if (first == 0) Extend(i, frame);
      const absl::Span<float> values =
          absl::MakeSpan(decoded_).subspan(i * kDecodedStep, n);
      DecodeRange(
          codec_, frame,
          static_cast<size_t>(members_[i].update->FrameElements(frame_)), first,
          values);
      inputs_[i].codec = Codec::kFp32;
      inputs_[i].bytes =
          absl::MakeConstSpan(reinterpret_cast<const char*>(values.data()),
                              values.size() * sizeof(float));
    }
    return inputs_;
  }

  // Once all steps were taken.
  absl::Status Check() const {
    for (size_t i = 0; i < members_.size(); ++i) {
      RETURN_IF_ERROR(
          WithContext(members_[i].update->CheckFrame(frame_, crcs_[i]),
                      members_[i].worker));
    }
    return absl::OkStatus();
  }

 private:
  void Extend(size_t member, absl::Span<const char> bytes) {
    crcs_[member] = ExtendCrc32c(crcs_[member],
                                 absl::string_view(bytes.data(), bytes.size()));
  }

  const absl::Span<const FoldMember> members_;
  const int64_t frame_;
  const Codec codec_;
  const bool plain_;
  std::vector<FoldInput> inputs_;
  std::vector<uint32_t> crcs_;
  std::vector<float> decoded_;
};

// One frame of all members. Returns the sum of squares of the mean.
absl::StatusOr<double> FoldFrame(absl::Span<const FoldMember> members,
                                 absl::Span<const TensorFactors> tensors,
                                 int64_t frame, const OuterSettings& outer,
                                 Codec codec_down, absl::Span<float> theta,
                                 absl::Span<float> momentum,
                                 absl::Span<float> change) {
  FrameInputs inputs(members, frame);
  const int64_t begin = frame * kFrameElements;
  double sum_squares = 0;
  size_t n = 0;
  for (size_t first = 0; first < change.size(); first += n) {
    n = std::min(inputs.step(), change.size() - first);
    absl::Span<const double> factors;
    if (!tensors.empty()) {
      const int64_t at = begin + static_cast<int64_t>(first);
      while (tensors.front().end <= at) tensors.remove_prefix(1);
      n = std::min(n, static_cast<size_t>(tensors.front().end - at));
      factors = tensors.front().factors;
    }
    const absl::Span<float> step_change = change.subspan(first, n);
    sum_squares += FoldTile(inputs.Next(first, n, factors), outer,
                            momentum.subspan(first, n), step_change);
    if (codec_down != Codec::kFp32) RoundThrough(codec_down, step_change);
    ApplyChange(step_change, theta.subspan(first, n));
  }
  RETURN_IF_ERROR(inputs.Check());
  return sum_squares;
}

// The one pass: theta, momentum and the blob.
absl::StatusOr<FoldResult> FoldTiles(uint32_t fragment,
                                     absl::Span<const FoldMember> members,
                                     absl::Span<const TensorFactors> tensors,
                                     const OuterSettings& outer,
                                     Codec codec_down, absl::Span<float> theta,
                                     absl::Span<float> momentum,
                                     const FoldOutput& output) {
  FoldWriter writer(fragment, codec_down, theta, output.blob, output.threads);
  double sum_squares = 0;
  for (int64_t tile = 0; tile < FrameCount(theta.size()); ++tile) {
    ASSIGN_OR_RETURN(const absl::Span<float> change, writer.NextChange());
    const size_t first = tile * kFrameElements;
    ASSIGN_OR_RETURN(const double squares,
                     FoldFrame(members, tensors, tile, outer, codec_down,
                               theta.subspan(first, change.size()),
                               momentum.subspan(first, change.size()), change));
    sum_squares += squares;
    writer.Submit();
  }
  ASSIGN_OR_RETURN(FoldResult result, writer.Finish());
  result.mean_norm = std::sqrt(sum_squares);
  return result;
}

}  // namespace

std::vector<MergeTensor> MergeTensorsOf(const Layout& layout,
                                        uint32_t fragment) {
  const FragmentSpec& spec = layout.fragments[fragment];
  const int64_t end = spec.first + spec.elements;
  std::vector<MergeTensor> tensors;
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const TensorSpec& tensor = layout.tensors[i];
    if (tensor.offset < spec.first || tensor.offset >= end) continue;
    const int64_t next = i + 1 < layout.tensors.size()
                             ? layout.tensors[i + 1].offset
                             : layout.elements;
    tensors.push_back({next - tensor.offset,
                       tensor.decl.tensor_class == TensorClass::kEmbedding});
  }
  return tensors;
}

absl::StatusOr<FoldResult> Fold(uint32_t fragment,
                                absl::Span<const FoldMember> members,
                                const OuterSettings& outer, Codec codec_down,
                                absl::Span<float> theta,
                                absl::Span<float> momentum,
                                const FoldOutput& output,
                                const FoldMerge& merge) {
  DILOCO_CHECK(!members.empty() && !theta.empty());
  DILOCO_CHECK(theta.size() == momentum.size());
  DILOCO_CHECK((output.theta_image == nullptr) ==
               (output.momentum_image == nullptr));
  RETURN_IF_ERROR(CheckMembers(fragment, members, theta.size()));
  ASSIGN_OR_RETURN(
      const std::vector<TensorFactors> tensors,
      ComputeFactors(members, merge, static_cast<int64_t>(theta.size())));
  RETURN_IF_ERROR(CheckDownlink(members, tensors, outer, codec_down, momentum));
  ASSIGN_OR_RETURN(FoldResult result,
                   FoldTiles(fragment, members, tensors, outer, codec_down,
                             theta, momentum, output));
  // One file after the other, for the sake of the memory bound: a writer holds
  // 17 MiB.
  if (output.theta_image != nullptr) {
    ASSIGN_OR_RETURN(result.theta_image_digest,
                     WriteImage(output.theta_image, fragment, theta));
    ASSIGN_OR_RETURN(result.momentum_image_digest,
                     WriteImage(output.momentum_image, fragment, momentum));
    result.image_bytes =
        PartFileBytes(Codec::kFp32, static_cast<int64_t>(theta.size()));
  }
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
