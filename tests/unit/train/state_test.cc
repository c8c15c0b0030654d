// Anchors, takes, merges and the state that continues a run bit for bit.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/flat_math.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/train/part_files.h"
#include "tests/unit/train/small_model.h"

namespace diloco {
namespace {

using testing::AnchorOf;
using testing::LayoutOf;
using testing::LocalOf;
using testing::MakeTrainer;
using testing::Must;
using testing::OpenPart;
using testing::ReadPart;
using testing::TakeDelta;
using testing::WritePart;

TEST_CASE("training moves local values and never the anchor") {
  const ModelConfig config = testing::SmallConfig();
  const std::vector<float> theta = testing::RandomTheta(LayoutOf(config), 1);
  auto trainer = MakeTrainer(config, theta);
  Must(trainer->Step(testing::RandomBatch(config, 2, 2), 1e-2));
  REQUIRE(AnchorOf(*trainer) == theta);
  REQUIRE(LocalOf(*trainer) != theta);
  REQUIRE(trainer->AnchorDigest(0) == DigestOfValues(theta));

  // After a merge they are equal in value and still apart in memory.
  const TempDir dir;
  WritePart(dir.File("change"), std::vector<float>(theta.size(), 0.0f));
  Must(trainer->Merge(0, OpenPart(dir.File("change")), Trainer::MergeMode::kMix,
                      0));
  REQUIRE(LocalOf(*trainer) == theta);
  Must(trainer->Step(testing::RandomBatch(config, 2, 3), 1e-2));
  REQUIRE(AnchorOf(*trainer) == theta);
  REQUIRE(LocalOf(*trainer) != theta);
}

TEST_CASE("a take is anchor minus local and independent of later steps") {
  const ModelConfig config = testing::SmallConfig();
  const std::vector<float> theta = testing::RandomTheta(LayoutOf(config), 1);
  auto trainer = MakeTrainer(config, theta);
  Must(trainer->Step(testing::RandomBatch(config, 2, 2), 1e-2));
  const std::vector<float> local = LocalOf(*trainer);
  const Trainer::Ticket ticket = Must(trainer->Take(0));
  REQUIRE(trainer->Take(0).status().code() ==
          absl::StatusCode::kFailedPrecondition);
  Must(trainer->Step(testing::RandomBatch(config, 2, 3), 1e-2));

  const TempDir dir;
  auto file = Must(FileSystem::Posix()->OpenForWrite(dir.File("delta")));
  PartWriter writer(file.get(), {.codec = Codec::kFp32,
                                 .fragment = 0,
                                 .elements = trainer->layout().elements});
  Must(trainer->Encode(ticket, writer));
  Must(writer.Finish().status());
  const std::vector<float> delta = ReadPart(dir.File("delta"));
  for (size_t i = 0; i < theta.size(); ++i) {
    REQUIRE(delta[i] == theta[i] - local[i]);
  }
  REQUIRE(trainer->Take(0).ok());
}

TEST_CASE("merge adds the change to the anchor and replaces or carries local") {
  const ModelConfig config = testing::SmallConfig();
  const Layout layout = LayoutOf(config);
  const std::vector<float> theta = testing::RandomTheta(layout, 1);
  std::vector<float> change = testing::RandomTheta(layout, 2);
  const TempDir dir;
  WritePart(dir.File("change"), change);
  auto trainer = MakeTrainer(config, theta);
  Must(trainer->Step(testing::RandomBatch(config, 2, 2), 1e-2));
  const std::vector<float> local = LocalOf(*trainer);
  const bool carry = GENERATE(false, true);
  Must(trainer->Merge(
      0, OpenPart(dir.File("change")),
      carry ? Trainer::MergeMode::kCarry : Trainer::MergeMode::kMix, 0));
  const std::vector<float> anchor = AnchorOf(*trainer);
  const std::vector<float> merged = LocalOf(*trainer);
  for (size_t i = 0; i < theta.size(); ++i) {
    REQUIRE(anchor[i] == theta[i] + change[i]);
    REQUIRE(merged[i] == (carry ? local[i] + change[i] : anchor[i]));
  }
}

TEST_CASE("merge keeps the share of the local values that it is told") {
  const ModelConfig config = testing::SmallConfig();
  const Layout layout = LayoutOf(config);
  const std::vector<float> theta = testing::RandomTheta(layout, 1);
  const TempDir dir;
  WritePart(dir.File("change"), testing::RandomTheta(layout, 2));
  auto trainer = MakeTrainer(config, theta);
  Must(trainer->Step(testing::RandomBatch(config, 2, 2), 1e-2));
  std::vector<float> wanted = LocalOf(*trainer);
  const float mix = GENERATE(0.25f, 0.5f, 1.0f);
  Must(trainer->Merge(0, OpenPart(dir.File("change")), Trainer::MergeMode::kMix,
                      mix));
  MixInto(mix, AnchorOf(*trainer), absl::MakeSpan(wanted));
  REQUIRE(AnchorOf(*trainer) != theta);
  REQUIRE(LocalOf(*trainer) == wanted);
}

TEST_CASE("a whole new anchor is adopted as a change to it is merged") {
  const ModelConfig config = testing::SmallConfig();
  const Layout layout = LayoutOf(config);
  const std::vector<float> theta = testing::RandomTheta(layout, 1);
  const std::vector<float> next = testing::RandomTheta(layout, 2);
  auto trainer = MakeTrainer(config, theta);
  Must(trainer->Step(testing::RandomBatch(config, 2, 2), 1e-2));
  const std::vector<float> local = LocalOf(*trainer);
  using Mode = Trainer::MergeMode;
  const auto [mode, mix] = GENERATE(std::make_pair(Mode::kCarry, 0.0f),
                                    std::make_pair(Mode::kMix, 0.0f),
                                    std::make_pair(Mode::kMix, 0.25f));
  Must(trainer->Adopt(0, next, mode, mix));
  REQUIRE(AnchorOf(*trainer) == next);
  std::vector<float> wanted = local;
  if (mode == Mode::kMix) MixInto(mix, next, absl::MakeSpan(wanted));
  for (size_t i = 0; mode == Mode::kCarry && i < theta.size(); ++i) {
    wanted[i] = local[i] + (next[i] - theta[i]);
  }
  REQUIRE(LocalOf(*trainer) == wanted);
  REQUIRE(
      trainer->Adopt(0, absl::MakeConstSpan(next).first(3), mode, mix).code() ==
      absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a damaged or foreign update blob changes nothing") {
  const ModelConfig config = testing::SmallConfig();
  const Layout layout = LayoutOf(config);
  const std::vector<float> theta = testing::RandomTheta(layout, 1);
  auto trainer = MakeTrainer(config, theta);
  const TempDir dir;
  WritePart(dir.File("change"), theta);
  {
    auto file = Must(FileSystem::Posix()->OpenForWrite(dir.File("change")));
    Must(file->WriteAt(PartFileBytes(Codec::kFp32, layout.elements) - 1, "x"));
  }
  REQUIRE(
      trainer
          ->Merge(0, OpenPart(dir.File("change")), Trainer::MergeMode::kMix, 0)
          .code() == absl::StatusCode::kDataLoss);
  WritePart(dir.File("other"), theta, /*fragment=*/1);
  REQUIRE(
      trainer
          ->Merge(0, OpenPart(dir.File("other")), Trainer::MergeMode::kMix, 0)
          .code() == absl::StatusCode::kInvalidArgument);
  WritePart(dir.File("short"), std::vector<float>(256, 1.0f));
  REQUIRE(
      trainer
          ->Merge(0, OpenPart(dir.File("short")), Trainer::MergeMode::kMix, 0)
          .code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(AnchorOf(*trainer) == theta);
  REQUIRE(LocalOf(*trainer) == theta);
}

std::map<std::string, std::vector<float>> Export(Trainer& trainer) {
  std::map<std::string, std::vector<float>> state;
  Must(trainer.ExportState(
      [&](absl::string_view name, absl::Span<const float> values) {
        state[std::string(name)].assign(values.begin(), values.end());
        return absl::OkStatus();
      }));
  return state;
}

TEST_CASE("C7.3 exported state continues bit for bit, a cold start does not") {
  const ModelConfig config = testing::SmallConfig();
  const std::vector<float> theta = testing::RandomTheta(LayoutOf(config), 1);
  auto whole = MakeTrainer(config, theta);
  const auto step = [&](Trainer& trainer, uint32_t index) {
    Must(trainer.Step(testing::RandomBatch(config, 2, index), 1e-2));
  };
  for (uint32_t i = 0; i < 4; ++i) step(*whole, i);
  const auto state = Export(*whole);
  const uint64_t steps = whole->optimizer_steps();
  for (uint32_t i = 4; i < 8; ++i) step(*whole, i);

  auto resumed = MakeTrainer(config, testing::RandomTheta(LayoutOf(config), 9));
  for (const auto& [name, values] : state) {
    Must(resumed->ImportState(name, values));
  }
  resumed->set_optimizer_steps(steps);
  REQUIRE(AnchorOf(*resumed) == theta);
  for (uint32_t i = 4; i < 8; ++i) step(*resumed, i);
  REQUIRE(LocalOf(*resumed) == LocalOf(*whole));
  REQUIRE(resumed->optimizer_steps() == whole->optimizer_steps());

  auto cold = MakeTrainer(config, theta);
  Must(cold->ImportState("local", state.at("local")));
  for (uint32_t i = 4; i < 8; ++i) step(*cold, i);
  REQUIRE(LocalOf(*cold) != LocalOf(*whole));

  REQUIRE(cold->ImportState("exp_avg", {}).code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(cold->ImportState("momentum", theta).code() ==
          absl::StatusCode::kInvalidArgument);
}

TEST_CASE("evaluating the anchor in mid-window leaves training as it is") {
  const ModelConfig config = testing::SmallConfig();
  const std::vector<float> theta = testing::RandomTheta(LayoutOf(config), 1);
  auto calm = MakeTrainer(config, theta);
  auto evaluated = MakeTrainer(config, theta);
  const Batch held_out = testing::RandomBatch(config, 3, 77);
  const LossSum expected = Must(calm->Evaluate(held_out));
  for (uint32_t i = 0; i < 6; ++i) {
    const LossSum sum = Must(evaluated->EvaluateAnchor(held_out));
    REQUIRE(sum.loss_sum == expected.loss_sum);
    REQUIRE(sum.tokens == expected.tokens);
    const Batch batch = testing::RandomBatch(config, 2, i);
    Must(calm->Step(batch, 1e-2));
    Must(evaluated->Step(batch, 1e-2));
  }
  REQUIRE(Export(*evaluated) == Export(*calm));
  REQUIRE(Must(calm->Evaluate(held_out)).loss_sum != expected.loss_sum);

  // It follows the anchor.
  const TempDir dir;
  WritePart(dir.File("change"), std::vector<float>(theta.size(), 0.01f));
  Must(evaluated->Merge(0, OpenPart(dir.File("change")),
                        Trainer::MergeMode::kCarry, 0));
  const double moved = Must(evaluated->EvaluateAnchor(held_out)).loss_sum;
  auto fresh = MakeTrainer(config, AnchorOf(*evaluated));
  REQUIRE(moved == Must(fresh->Evaluate(held_out)).loss_sum);
  REQUIRE(moved != expected.loss_sum);
}

}  // namespace
}  // namespace diloco
