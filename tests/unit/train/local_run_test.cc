// train-local as a library: schedule, shards, evaluation, export, refusals.
#include "worker/tools/local_run.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/data/dataset_manifest.h"
#include "common/model/hf_directory.h"
#include "tests/support/catch.h"
#include "tests/unit/train/small_model.h"

namespace diloco {
namespace {

using testing::Must;

FileSystem* const kFs = FileSystem::Posix();

// Two shards of a repeated pattern, which a model learns in a few steps.
class Data {
 public:
  Data() {
    std::string name =
        (std::filesystem::temp_directory_path() / "diloco-local-test-XXXXXX")
            .string();
    DILOCO_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
    for (const char* shard : {"a.bin", "b.bin"}) {
      std::string bytes;
      for (int i = 0; i < 400; ++i) {
        bytes.push_back(static_cast<char>(i * 7 % 50));
        bytes.push_back(0);
      }
      Must(WriteFileAtomic(kFs, File(shard), bytes));
    }
  }
  ~Data() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

LocalRunOptions Options(const Data& data) {
  LocalRunOptions options;
  options.model = testing::SmallConfig();
  options.train = testing::SmallTrain();
  options.train.lr = 1e-2;
  options.train.seq_len = 16;
  options.steps = 40;
  options.batch = 4;
  options.warmup_steps = 4;
  options.data = {data.File("a.bin")};
  options.eval = data.File("b.bin");
  return options;
}

TEST_CASE("a local run learns, follows its schedule and reports") {
  const Data data;
  DatasetManifest manifest;
  manifest.vocab = 50;
  for (const char* shard : {"a.bin", "b.bin"}) {
    DatasetManifest::Shard entry;
    entry.file = shard;
    entry.file_bytes = 800;
    entry.tokens = 400;
    entry.text_bytes = 1000;
    manifest.shards.push_back(entry);
  }
  Must(
      WriteFileAtomic(kFs, data.File(kManifestName), ManifestToJson(manifest)));
  LocalRunOptions options = Options(data);
  options.eval_every = 20;
  std::vector<LocalStep> steps;
  const LocalReport report =
      Must(RunLocal(kFs, Clock::Real(), options,
                    [&](const LocalStep& step) { steps.push_back(step); }));
  REQUIRE(steps.size() == 40);
  REQUIRE(steps[0].lr == Approx(1e-2 / 4));
  REQUIRE(steps[3].lr == Approx(1e-2));
  REQUIRE(steps[39].lr == Approx(1e-3));
  REQUIRE(steps[19].eval.has_value());
  REQUIRE_FALSE(steps[20].eval.has_value());
  REQUIRE(report.tokens == 40 * 4 * 16);
  REQUIRE(report.steps == 40);
  REQUIRE(report.skipped == 0);
  REQUIRE(report.eval->tokens == 24 * 16);
  REQUIRE(report.eval->loss < 0.5 * steps[0].loss);
  REQUIRE(*report.eval->bits_per_byte ==
          Approx(report.eval->loss / std::log(2.0) * 400 / 1000));
  REQUIRE(report.tokens_per_second > 0);
}

TEST_CASE("a local run is reproducible and its export goes on from there") {
  const Data data;
  LocalRunOptions options = Options(data);
  options.steps = 6;
  options.data = {data.File("a.bin"), data.File("b.bin")};
  options.out = data.File("model");
  const auto ignore = [](const LocalStep&) {};
  const LocalReport first = Must(RunLocal(kFs, Clock::Real(), options, ignore));
  options.out.clear();
  const LocalReport second =
      Must(RunLocal(kFs, Clock::Real(), options, ignore));
  REQUIRE(first.eval->loss == second.eval->loss);

  REQUIRE(Must(ReadHfConfig(kFs, data.File("model"))).layers == 2);
  options.init_dir = data.File("model");
  options.steps = 1;
  options.train.lr = 0;
  REQUIRE(Must(RunLocal(kFs, Clock::Real(), options, ignore)).eval->loss ==
          first.eval->loss);
}

TEST_CASE("what a local run cannot do is refused") {
  const Data data;
  const auto code = [&](const LocalRunOptions& options) {
    return RunLocal(kFs, Clock::Real(), options, [](const LocalStep&) {})
        .status()
        .code();
  };
  LocalRunOptions options = Options(data);
  options.data = {data.File("a.bin"), data.File("b.bin"), data.File("a.bin")};
  REQUIRE(code(options) == absl::StatusCode::kInvalidArgument);
  options = Options(data);
  options.data = {data.File("missing.bin")};
  REQUIRE(code(options) == absl::StatusCode::kNotFound);
  options = Options(data);
  options.train.seq_len = 17;
  REQUIRE(code(options) == absl::StatusCode::kInvalidArgument);
  options = Options(data);
  options.model.vocab = 40;
  REQUIRE(code(options) == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("an export that could not be written is refused before any step") {
  const Data data;
  LocalRunOptions options = Options(data);
  options.out = data.File("model");
  absl::StatusCode expected = absl::StatusCode::kAlreadyExists;
  std::string named = options.out;
  SECTION("the directory exists") { Must(kFs->CreateDirs(options.out)); }
  SECTION("its parent is a file") {
    options.out = data.File("a.bin/model");
    expected = absl::StatusCode::kInternal;
    named = data.File("a.bin");
  }
  SECTION("there is no such tokenizer") {
    options.tokenizer_files = {data.File("none.model")};
    expected = absl::StatusCode::kNotFound;
    named = data.File("none.model");
  }
  uint64_t steps = 0;
  const absl::Status status =
      RunLocal(kFs, Clock::Real(), options, [&](const LocalStep&) {
        ++steps;
      }).status();
  REQUIRE(status.code() == expected);
  REQUIRE_THAT(std::string(status.message()), Catch::Contains(named));
  REQUIRE(steps == 0);
}

TEST_CASE("C8.3 a local run that stays non-finite stops and says so") {
  const Data data;
  LocalRunOptions options = Options(data);
  options.train.lr = 1e30;
  options.train.max_skipped_steps = 3;
  uint64_t steps = 0;
  const absl::Status status =
      RunLocal(kFs, Clock::Real(), options, [&](const LocalStep&) {
        ++steps;
      }).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE_THAT(std::string(status.message()),
               Catch::Contains("3 steps in a row"));
  REQUIRE(steps < 40);
}

}  // namespace
}  // namespace diloco
