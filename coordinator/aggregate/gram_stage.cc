#include "coordinator/aggregate/gram_stage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "common/tensor/layout.h"
#include "coordinator/aggregate/merge_factors.h"

namespace diloco {
namespace {

// Values of each member that are looked at together: a run of the Gram matrix.
// On each frame's own grid, which tensors cut further.
constexpr int64_t kRun = 4096;

absl::Status CheckTensors(absl::Span<const MergeTensor> tensors,
                          int64_t elements) {
  int64_t end = 0;
  for (const MergeTensor& tensor : tensors) {
    if (tensor.elements <= 0 || tensor.elements % kAlignElements != 0 ||
        tensor.elements > elements - end) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor of ", tensor.elements, " elements at element ",
                       end, " of a fragment of ", elements));
    }
    end += tensor.elements;
  }
  if (end == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the tensors end at element ", end, " of a fragment of ", elements));
}

// Decodes the members' values, run by run, and verifies each frame as it comes
// up.
class RunReader {
 public:
  explicit RunReader(absl::Span<const FoldMember> members)
      : members_(members),
        decoded_(members.size() * static_cast<size_t>(kRun)),
        rows_(members.size()) {}

  // From `first` on, at most `most` values and none beyond its run.
  absl::StatusOr<absl::Span<const absl::Span<const float>>> Read(int64_t first,
                                                                 int64_t most) {
    const int64_t frame = first / kFrameElements;
    const int64_t at = first % kFrameElements;
    if (frame != frame_) RETURN_IF_ERROR(Verify(frame));
    const auto n = static_cast<size_t>(std::min(most, kRun - at % kRun));
    for (size_t i = 0; i < members_.size(); ++i) {
      const PartReader& update = *members_[i].update;
      const absl::Span<float> row =
          absl::MakeSpan(decoded_).subspan(i * static_cast<size_t>(kRun), n);
      DecodeRange(update.header().codec, update.FrameBytes(frame),
                  static_cast<size_t>(update.FrameElements(frame)),
                  static_cast<size_t>(at), row);
      rows_[i] = row;
    }
    return rows_;
  }

 private:
  absl::Status Verify(int64_t frame) {
    for (const FoldMember& member : members_) {
      const absl::Span<const char> bytes = member.update->FrameBytes(frame);
      RETURN_IF_ERROR(WithContext(
          member.update->CheckFrame(
              frame, Crc32c(absl::string_view(bytes.data(), bytes.size()))),
          member.worker));
    }
    frame_ = frame;
    return absl::OkStatus();
  }

  const absl::Span<const FoldMember> members_;
  int64_t frame_ = -1;
  std::vector<float> decoded_;
  std::vector<absl::Span<const float>> rows_;
};

}  // namespace

absl::StatusOr<std::vector<TensorFactors>> ComputeFactors(
    absl::Span<const FoldMember> members, const FoldMerge& merge,
    int64_t elements) {
  std::vector<TensorFactors> result;
  if (merge.rule == MergeRule::kMean) return result;
  RETURN_IF_ERROR(CheckTensors(merge.tensors, elements));
  std::vector<uint64_t> weights;
  for (const FoldMember& member : members) weights.push_back(member.weight);
  RunReader reader(members);
  int64_t end = 0;
  for (const MergeTensor& tensor : merge.tensors) {
    int64_t first = end;
    end += tensor.elements;
    if (!NeedsGram(merge.rule, tensor)) {
      result.push_back({end, std::vector<double>(members.size(), 1.0)});
      continue;
    }
    GramMatrix gram(members.size());
    while (first < end) {
      ASSIGN_OR_RETURN(const auto rows, reader.Read(first, end - first));
      AddGram(rows, GramPartOf(merge.rule), &gram);
      first += static_cast<int64_t>(rows[0].size());
    }
    result.push_back(
        {end, MergeFactors(merge.rule, weights, gram, kMaxFoldMagnitude)});
  }
  return result;
}

}  // namespace diloco
