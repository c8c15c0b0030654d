// Anchors, takes, merges and the state that continues a run bit for bit.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/io/file_system.h"
#include "common/tensor/part_file.h"
#include "tests/support/catch.h"
#include "tests/unit/train/small_model.h"

namespace diloco {
namespace {

using testing::AnchorOf;
using testing::LayoutOf;
using testing::LocalOf;
using testing::MakeTrainer;
using testing::Must;

class TempDir {
 public:
  TempDir() {
    std::string name =
        (std::filesystem::temp_directory_path() / "diloco-train-test-XXXXXX")
            .string();
    DILOCO_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void WritePart(const std::string& path, const std::vector<float>& values,
               uint32_t fragment = 0) {
  auto file = Must(FileSystem::Posix()->OpenForWrite(path));
  PartWriter writer(file.get(),
                    {.codec = Codec::kFp32,
                     .fragment = fragment,
                     .elements = static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); i += kFrameElements) {
    Must(writer.Append(absl::MakeConstSpan(values).subspan(i, kFrameElements)));
  }
  Must(writer.Finish().status());
}

PartReader OpenPart(const std::string& path) {
  return Must(
      PartReader::Open(Must(FileSystem::Posix()->OpenForRead(path)), path));
}

std::vector<float> ReadPart(const std::string& path) {
  const PartReader reader = OpenPart(path);
  std::vector<float> values(reader.header().elements);
  for (int64_t i = 0; i < reader.frames(); ++i) {
    Must(reader.ReadFrame(i, absl::MakeSpan(values).subspan(
                                 i * kFrameElements, reader.FrameElements(i))));
  }
  return values;
}

std::vector<float> TakeDelta(Trainer& trainer, const std::string& path) {
  const Trainer::Ticket ticket = Must(trainer.Take(0));
  auto file = Must(FileSystem::Posix()->OpenForWrite(path));
  PartWriter writer(file.get(), {.codec = Codec::kFp32,
                                 .fragment = 0,
                                 .elements = trainer.layout().elements});
  Must(trainer.Encode(ticket, writer));
  Must(writer.Finish().status());
  return ReadPart(path);
}

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
  Must(trainer->Merge(0, OpenPart(dir.File("change")),
                      Trainer::MergeMode::kReplace));
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
      carry ? Trainer::MergeMode::kCarry : Trainer::MergeMode::kReplace));
  const std::vector<float> anchor = AnchorOf(*trainer);
  const std::vector<float> merged = LocalOf(*trainer);
  for (size_t i = 0; i < theta.size(); ++i) {
    REQUIRE(anchor[i] == theta[i] + change[i]);
    REQUIRE(merged[i] == (carry ? local[i] + change[i] : anchor[i]));
  }
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
          ->Merge(0, OpenPart(dir.File("change")), Trainer::MergeMode::kReplace)
          .code() == absl::StatusCode::kDataLoss);
  WritePart(dir.File("other"), theta, /*fragment=*/1);
  REQUIRE(
      trainer
          ->Merge(0, OpenPart(dir.File("other")), Trainer::MergeMode::kReplace)
          .code() == absl::StatusCode::kInvalidArgument);
  WritePart(dir.File("short"), std::vector<float>(256, 1.0f));
  REQUIRE(
      trainer
          ->Merge(0, OpenPart(dir.File("short")), Trainer::MergeMode::kReplace)
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

TEST_CASE("one worker with outer rate 1 follows plain training") {
  const ModelConfig config = testing::SmallConfig();
  const std::vector<float> theta = testing::RandomTheta(LayoutOf(config), 1);
  auto plain = MakeTrainer(config, theta);
  auto diloco = MakeTrainer(config, theta);
  const TempDir dir;
  std::vector<float> global = theta;
  uint32_t step = 0;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 5; ++i, ++step) {
      const Batch batch = testing::RandomBatch(config, 2, step);
      Must(plain->Step(batch, 1e-3));
      Must(diloco->Step(batch, 1e-3));
    }
    const std::vector<float> delta = TakeDelta(*diloco, dir.File("delta"));
    std::vector<float> change(delta.size());
    for (size_t i = 0; i < delta.size(); ++i) {
      change[i] = -delta[i];
      global[i] += change[i];
    }
    WritePart(dir.File("change"), change);
    Must(diloco->Merge(0, OpenPart(dir.File("change")),
                       Trainer::MergeMode::kReplace));
    REQUIRE(diloco->AnchorDigest(0) == DigestOfValues(global));
  }
  REQUIRE(testing::RelativeDistance(LocalOf(*diloco), LocalOf(*plain)) < 2e-7);
}

}  // namespace
}  // namespace diloco
