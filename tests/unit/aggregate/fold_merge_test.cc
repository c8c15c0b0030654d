// The fold with a merge rule that looks at the updates: tensors by themselves,
// whatever the codec and the order of arrival, and the plain mean untouched.
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/status_macros.h"
#include "coordinator/aggregate/fold.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

// Three tensors; the second crosses the border between two frames.
const std::vector<MergeTensor> kTensors = {
    {256, false}, {kFrameElements, false}, {512, true}};
constexpr size_t kMergedElements = kFrameElements + 768;

std::vector<float> Pattern(uint32_t seed, float scale) {
  std::vector<float> values(kMergedElements);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = scale * (static_cast<float>(seed >> 8) - 0x1p23f) * 0x1p-24f;
  }
  return values;
}

struct MergeRun {
  void Add(const std::string& worker, absl::Span<const float> values,
           uint64_t weight, Codec codec) {
    {
      auto file = fs.OpenForWrite(worker);
      REQUIRE(file.ok());
      PartWriter writer(file->get(), {codec, 0, 0, kMergedElements});
      for (size_t at = 0; at < values.size(); at += kFrameElements) {
        REQUIRE(writer.Append(values.subspan(at, kFrameElements)).ok());
      }
      REQUIRE(writer.Finish().ok());
    }
    auto reader = PartReader::Open(*fs.OpenForRead(worker), worker);
    REQUIRE(reader.ok());
    readers.push_back(std::make_unique<PartReader>(*std::move(reader)));
    members.push_back({worker, weight, readers.back().get()});
  }
  absl::StatusOr<FoldResult> Fold(MergeRule rule,
                                  absl::Span<const MergeTensor> tensors) {
    theta.assign(kMergedElements, 0.0f);
    merged.assign(kMergedElements, 0.0f);
    ASSIGN_OR_RETURN(auto blob, fs.OpenForWrite("blob"));
    FoldOutput output;
    output.blob = blob.get();
    return diloco::Fold(0, members, {1.0f, 0.0f, false}, Codec::kFp32,
                        absl::MakeSpan(theta), absl::MakeSpan(merged), output,
                        {rule, tensors});
  }
  // With a momentum factor of 0 the buffer is the merged update.
  double NormOf(size_t first, size_t n) const {
    double squares = 0;
    for (size_t i = first; i < first + n; ++i) {
      squares += static_cast<double>(merged[i]) * merged[i];
    }
    return std::sqrt(squares);
  }

  FaultFileSystem fs;
  std::vector<std::unique_ptr<PartReader>> readers;
  std::vector<FoldMember> members;
  std::vector<float> theta, merged;
};

TEST_CASE("a fold clips each tensor by itself, and only the large one") {
  MergeRun run;
  std::vector<float> ones(kMergedElements, 1.0f);
  std::vector<float> odd = ones;
  // Ten times too much in the second tensor alone.
  for (size_t i = 256; i < 256 + kFrameElements; ++i) odd[i] = 10.0f;
  run.Add("a", ones, 1, Codec::kFp32);
  run.Add("b", ones, 1, Codec::kFp32);
  run.Add("c", odd, 2, Codec::kFp32);
  REQUIRE(run.Fold(MergeRule::kNormClipped, kTensors).ok());
  // In parentheses: a failure does not print all values.
  CHECK((run.merged == std::vector<float>(kMergedElements, 1.0f)));
  CHECK((run.theta == std::vector<float>(kMergedElements, -1.0f)));
  // The coefficients are not those of the plain mean.
  REQUIRE(run.Fold(MergeRule::kMean, kTensors).ok());
  CHECK(run.merged[0] == 1.0f);
  CHECK(run.merged[256] == 5.5f);
}

TEST_CASE("radial_directional by tensor: norms kept, the embedding's mean") {
  MergeRun run;
  run.Add("a", Pattern(1, 1), 1, Codec::kFp32);
  run.Add("b", Pattern(2, 1), 1, Codec::kFp32);
  run.Add("c", Pattern(3, 1), 1, Codec::kFp32);
  run.Add("d", Pattern(4, 1), 1, Codec::kFp32);
  REQUIRE(run.Fold(MergeRule::kMean, {}).ok());
  const std::vector<float> mean = run.merged;
  const double mean_norm = run.NormOf(256, kFrameElements);
  REQUIRE(run.Fold(MergeRule::kRadialDirectional, kTensors).ok());
  // Nearly orthogonal: the mean of four has about half the norm of each.
  CHECK(run.NormOf(256, kFrameElements) == Approx(2 * mean_norm).epsilon(0.02));
  for (size_t i = 256 + kFrameElements; i < kMergedElements; ++i) {
    REQUIRE(run.merged[i] == mean[i]);
  }
  CHECK(run.merged[0] != mean[0]);
}

TEST_CASE("a merge rule folds lossy updates as what they decode to") {
  for (Codec codec :
       {Codec::kFp16, Codec::kInt8, Codec::kInt8Buckets, Codec::kE3m0}) {
    INFO(CodecName(codec));
    MergeRun lossy;
    MergeRun plain;
    for (uint32_t i = 1; i <= 3; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      const auto scale = static_cast<float>(i * i);
      lossy.Add(name, Pattern(i, scale), i, codec);
      std::vector<float> decoded(kMergedElements);
      for (int64_t f = 0; f < lossy.readers.back()->frames(); ++f) {
        REQUIRE(lossy.readers.back()
                    ->ReadFrame(f, absl::MakeSpan(decoded).subspan(
                                       static_cast<size_t>(f * kFrameElements),
                                       kFrameElements))
                    .ok());
      }
      plain.Add(name, decoded, i, Codec::kFp32);
    }
    for (MergeRule rule : kMergeRules) {
      const auto result = lossy.Fold(rule, kTensors);
      REQUIRE(result.ok());
      CHECK(plain.Fold(rule, kTensors)->digest == result->digest);
    }
  }
}

TEST_CASE("rules differ in theta, and give the same theta twice") {
  MergeRun run;
  for (uint32_t i = 1; i <= 3; ++i) {
    run.Add(std::string(1, static_cast<char>('a' + i)),
            Pattern(i, static_cast<float>(i)), 10 * i, Codec::kFp16);
  }
  std::vector<Digest> digests;
  for (MergeRule rule : kMergeRules) {
    digests.push_back(run.Fold(rule, kTensors)->digest);
    CHECK(run.Fold(rule, kTensors)->digest == digests.back());
  }
  CHECK(digests[0] != digests[1]);
  CHECK(digests[0] != digests[2]);
  CHECK(digests[1] != digests[2]);
}

TEST_CASE("tensors that do not make up the fragment are refused") {
  MergeRun run;
  run.Add("a", Pattern(1, 1), 1, Codec::kFp32);
  const std::vector<std::vector<MergeTensor>> bad = {
      {},
      {{kMergedElements - 256, false}},
      {{kMergedElements, false}, {256, false}},
      {{100, false}, {kMergedElements - 100, false}},
      {{-256, false}, {kMergedElements + 256, false}}};
  for (const std::vector<MergeTensor>& tensors : bad) {
    const absl::Status status =
        run.Fold(MergeRule::kNormClipped, tensors).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(run.theta[0] == 0.0f);
  }
}

TEST_CASE("a damaged frame is found before the merge rule sees it") {
  MergeRun run;
  run.Add("a", Pattern(1, 1), 1, Codec::kFp16);
  run.Add("b", Pattern(2, 1), 1, Codec::kFp16);
  std::string bytes = ReadFile(&run.fs, "b").value();
  bytes[bytes.size() - 7] ^= 1;
  run.readers.pop_back();
  run.members.pop_back();
  REQUIRE(WriteFileAtomic(&run.fs, "b", bytes).ok());
  run.readers.push_back(std::make_unique<PartReader>(
      *PartReader::Open(*run.fs.OpenForRead("b"), "b")));
  run.members.push_back({"b", 1, run.readers.back().get()});
  const absl::Status status =
      run.Fold(MergeRule::kRadialDirectional, kTensors).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(status.message(), "b: "));
  CHECK((run.theta == std::vector<float>(kMergedElements, 0.0f)));
}

TEST_CASE("a fragment's tensors with their padding") {
  const Layout layout =
      BuildLayout({{"e", {3, 100}, TensorClass::kEmbedding, true, 0},
                   {"m", {16, 16}, TensorClass::kMatrix, true, 1},
                   {"v", {7}, TensorClass::kVector, false, 0}},
                  2)
          .value();
  CHECK(MergeTensorsOf(layout, 0) ==
        std::vector<MergeTensor>{{512, true}, {256, false}});
  CHECK(MergeTensorsOf(layout, 1) == std::vector<MergeTensor>{{256, false}});
}

}  // namespace
}  // namespace diloco
