// One worker with outer rate 1 and no momentum is plain training: the trainer
// with the coordinator's own fold.
#include <cstdlib>
#include <string>
#include <vector>

#include "common/model/hf_directory.h"
#include "coordinator/aggregate/fold.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/train/part_files.h"
#include "tests/unit/train/small_model.h"

namespace diloco {
namespace {

using testing::Must;

constexpr int kRounds = 4;
constexpr int kInterval = 5;

// Not bit for bit: theta - (theta - local) rounds.
void CheckAgainstPlainTraining(const ModelConfig& config,
                               const std::vector<float>& theta) {
  auto plain = testing::MakeTrainer(config, theta);
  auto worker = testing::MakeTrainer(config, theta);
  const TempDir dir;
  std::vector<float> global = theta;
  std::vector<float> momentum(theta.size(), 0.0f);
  const OuterSettings outer = {.lr = 1, .momentum = 0, .nesterov = true};
  uint32_t step = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kInterval; ++i, ++step) {
      const Batch batch = testing::RandomBatch(config, 2, step);
      Must(plain->Step(batch, 1e-3));
      Must(worker->Step(batch, 1e-3));
    }
    testing::TakeDelta(*worker, dir.File("update"));
    PartReader update = testing::OpenPart(dir.File("update"));
    auto blob = Must(FileSystem::Posix()->OpenForWrite(dir.File("change")));
    Must(blob->Truncate(0));
    const std::vector<FoldMember> members = {
        {.worker = "one", .weight = 640, .update = &update}};
    const FoldResult fold =
        Must(Fold(0, members, outer, Codec::kFp32, absl::MakeSpan(global),
                  absl::MakeSpan(momentum), {.blob = blob.get()}));
    Must(worker->Merge(0, testing::OpenPart(dir.File("change")),
                       Trainer::MergeMode::kMix, 0));
    REQUIRE(worker->AnchorDigest(0) == fold.digest);
  }
  REQUIRE(testing::RelativeDistance(testing::LocalOf(*plain), theta) > 1e-4);
  REQUIRE(testing::RelativeDistance(testing::LocalOf(*worker),
                                    testing::LocalOf(*plain)) < 2e-7);
}

TEST_CASE("one worker with outer rate 1 follows plain training") {
  const ModelConfig config = testing::SmallConfig();
  CheckAgainstPlainTraining(config,
                            testing::RandomTheta(testing::LayoutOf(config), 1));
}

TEST_CASE("one worker follows plain training from the tiny checkpoint") {
  const char* fixtures = std::getenv("DILOCO_FIXTURES");
  if (fixtures == nullptr) {
    WARN("skipped: DILOCO_FIXTURES is not set");
    return;
  }
  FileSystem* const fs = FileSystem::Posix();
  const std::string folder = std::string(fixtures) + "/llama_tiny";
  ModelConfig config = Must(ReadHfConfig(fs, folder));
  const Layout layout = testing::LayoutOf(config);
  std::vector<float> theta(static_cast<size_t>(layout.elements));
  Must(ReadHfWeights(fs, folder, config, layout, absl::MakeSpan(theta)));
  config.max_positions = 32;
  CheckAgainstPlainTraining(config, theta);
}

}  // namespace
}  // namespace diloco
