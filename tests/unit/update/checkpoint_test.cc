#include "worker/update/checkpoint.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

CheckpointHeader SampleHeader(uint64_t version) {
  CheckpointHeader header;
  header.run = "genesis";
  header.lineage = std::string(16, '\x11');
  header.settings_digest = BlockDigest("settings");
  header.layout_digest = BlockDigest("layout");
  header.local.fragments.resize(2);
  HeldFragment& first = header.local.fragments[0];
  first.version = version;
  first.window = {.round = version + 1,
                  .base_version = version,
                  .steps_done = 3,
                  .tokens = 24,
                  .steps = 3,
                  .loss_sum = 7.5,
                  .losses = 3,
                  .lr_sum = 0.375,
                  .progress = 0.25,
                  .progress_step = 0.0625};
  HeldFragment& second = header.local.fragments[1];
  second.version = version + 1;
  second.window = first.window;
  second.window.delivered = second.window.last = true;
  second.ahead = {.steps_done = 1, .tokens = 8, .steps = 1};
  header.spooled.resize(2);
  header.data_cursor = 10 * version;
  header.inner_steps = 5 * version + 3;
  header.optimizer_steps = 5 * version + 2;
  header.ramp_steps_left = 4;
  header.totals = {.tokens = 64 * version,
                   .skipped_steps = 1,
                   .train_seconds = 12.5,
                   .transfer_seconds = 0.25,
                   .wait_seconds = 0.5,
                   .bytes_sent = 1000,
                   .bytes_received = 3000};
  return header;
}

std::vector<NamedBuffer> SampleBuffers(uint64_t version) {
  const auto start = static_cast<float>(version);
  return {{"local", {start, -0.0f, 1e-40f}}, {"anchor", {start + 1, 2, 3}}};
}

SpooledUpdate SampleSpool() {
  SpooledUpdate spooled;
  spooled.file = "update-1.part";
  spooled.round = 3;
  spooled.base_version = 2;
  spooled.base_digest = BlockDigest("theta");
  spooled.bytes = 99;
  spooled.digest = BlockDigest("update");
  spooled.codec = Codec::kFp16;
  spooled.tokens = 40;
  spooled.steps = 5;
  spooled.loss = 2.25;
  spooled.lr_sum = 0.0625;
  spooled.data_end = 12'800;
  return spooled;
}

void RequireSameWindows(const LocalState& found, const LocalState& expected) {
  REQUIRE(found.fragments.size() == expected.fragments.size());
  for (size_t i = 0; i < expected.fragments.size(); ++i) {
    REQUIRE(found.fragments[i].version == expected.fragments[i].version);
    REQUIRE(found.fragments[i].window == expected.fragments[i].window);
    REQUIRE(found.fragments[i].ahead == expected.fragments[i].ahead);
  }
}

// The version that the newest checkpoint holds; 0: none. Its content is that
// of the version's sample.
uint64_t NewestVersion(FileSystem* fs) {
  absl::StatusOr<std::optional<Checkpoint>> loaded =
      CheckpointStore(fs, "scratch").LoadNewest();
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  if (!loaded->has_value()) return 0;
  const Checkpoint& checkpoint = **loaded;
  const uint64_t version = *checkpoint.header.local.fragments.at(0).version;
  const CheckpointHeader expected = SampleHeader(version);
  RequireSameWindows(checkpoint.header.local, expected.local);
  REQUIRE(checkpoint.header.data_cursor == expected.data_cursor);
  REQUIRE(checkpoint.header.inner_steps == expected.inner_steps);
  REQUIRE(checkpoint.header.totals == expected.totals);
  REQUIRE(checkpoint.buffers == SampleBuffers(version));
  return version;
}

absl::Status WriteVersion(CheckpointStore& store, uint64_t version) {
  return store.Write(SampleHeader(version), SampleBuffers(version));
}

// A store with checkpoints of versions 1 and 2.
CheckpointStore TwoWritten(FaultFileSystem* fs) {
  REQUIRE(fs->CreateDirs("scratch").ok());
  CheckpointStore store(fs, "scratch");
  REQUIRE(WriteVersion(store, 1).ok());
  REQUIRE(WriteVersion(store, 2).ok());
  return store;
}

TEST_CASE("a place on the schedule is kept to the last bit") {
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs("scratch").ok());
  CheckpointStore store(&fs, "scratch");
  CheckpointHeader header = SampleHeader(2);
  header.local.progress = 1.0 / 3;
  REQUIRE(store.Write(header, SampleBuffers(2)).ok());
  const auto loaded = store.LoadNewest();
  REQUIRE(loaded.ok());
  REQUIRE((*loaded)->header.local.progress == 1.0 / 3);
}

TEST_CASE("C7.1 a crash at any step leaves the new checkpoint or the old") {
  for (const bool torn : {false, true}) {
    bool whole = false;
    for (int steps = 1; !whole; ++steps) {
      INFO("stopped at step " << steps);
      REQUIRE(steps < 100);
      FaultFileSystem fs;
      CheckpointStore store = TwoWritten(&fs);
      fs.StopAfter(steps);
      whole = WriteVersion(store, 3).ok();
      torn ? fs.CrashKeeping(7) : fs.Crash();
      const uint64_t version = NewestVersion(&fs);
      REQUIRE((version == 3 || (version == 2 && !whole)));
      // And the next one is written over what is left.
      CheckpointStore again(&fs, "scratch");
      REQUIRE(again.LoadNewest().ok());
      REQUIRE(WriteVersion(again, 4).ok());
      REQUIRE(NewestVersion(&fs) == 4);
    }
  }
}

TEST_CASE("C7.1 a full disk is named and the old checkpoint stays") {
  FaultFileSystem fs;
  CheckpointStore store = TwoWritten(&fs);
  fs.set_space(fs.bytes_used() + 100);
  const absl::Status status = WriteVersion(store, 3);
  REQUIRE(absl::IsResourceExhausted(status));
  REQUIRE(status.message().find("scratch/checkpoint-000003.ckpt") !=
          std::string::npos);
  REQUIRE(NewestVersion(&fs) == 2);
  fs.set_space(UINT64_MAX);
  REQUIRE(WriteVersion(store, 3).ok());
  REQUIRE(NewestVersion(&fs) == 3);
}

TEST_CASE("C7.1 a failed sync is an error and the old checkpoint stays") {
  for (int sync : {1, 2}) {
    FaultFileSystem fs;
    CheckpointStore store = TwoWritten(&fs);
    fs.FailSync(sync);
    REQUIRE_FALSE(WriteVersion(store, 3).ok());
    fs.Crash();
    REQUIRE(NewestVersion(&fs) == 2);
  }
}

TEST_CASE("a checkpoint with a flipped bit is passed over") {
  FaultFileSystem fs;
  TwoWritten(&fs);
  const std::string newest = "scratch/checkpoint-000002.ckpt";
  const absl::StatusOr<std::string> bytes = ReadFile(&fs, newest);
  REQUIRE(bytes.ok());
  // Every byte, except those of the format number.
  for (uint64_t at = 0; at < bytes->size(); ++at) {
    if (at >= 8 && at < 12) continue;
    fs.FlipBit(newest, at, static_cast<int>(at % 8));
    REQUIRE(NewestVersion(&fs) == 1);
    fs.FlipBit(newest, at, static_cast<int>(at % 8));
  }
  REQUIRE(NewestVersion(&fs) == 2);
  fs.FlipBit(newest, 40, 0);
  fs.FlipBit("scratch/checkpoint-000001.ckpt", 40, 0);
  REQUIRE(NewestVersion(&fs) == 0);
}

TEST_CASE("C7.4 a checkpoint of a newer format is refused, not passed over") {
  FaultFileSystem fs;
  TwoWritten(&fs);
  fs.FlipBit("scratch/checkpoint-000002.ckpt", 8, 0);  // 2 becomes 3.
  const absl::Status status =
      CheckpointStore(&fs, "scratch").LoadNewest().status();
  REQUIRE(absl::IsFailedPrecondition(status));
  for (const char* word :
       {"scratch/checkpoint-000002.ckpt", "format 3", "reads 1 and 2"}) {
    REQUIRE(status.message().find(word) != std::string::npos);
  }
}

// DILOCO_WRITE_GOLDEN=1 writes the file anew, to be reviewed as a diff.
TEST_CASE("the bytes of a checkpoint do not change") {
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs("scratch").ok());
  CheckpointStore store(&fs, "scratch");
  CheckpointHeader header = SampleHeader(2);
  header.spooled[1] = SampleSpool();
  REQUIRE(store.Write(header, SampleBuffers(2)).ok());
  const absl::StatusOr<std::string> bytes =
      ReadFile(&fs, "scratch/checkpoint-000001.ckpt");
  REQUIRE(bytes.ok());
  const std::string path = DILOCO_GOLDEN_DIR "/checkpoint-2.ckpt";
  if (std::getenv("DILOCO_WRITE_GOLDEN") != nullptr) {
    REQUIRE(WriteFileAtomic(FileSystem::Posix(), path, *bytes).ok());
  }
  const absl::StatusOr<std::string> golden =
      ReadFile(FileSystem::Posix(), path);
  INFO(golden.status().ToString());
  REQUIRE(golden.ok());
  REQUIRE(*bytes == *golden);

  const absl::StatusOr<std::optional<Checkpoint>> loaded =
      CheckpointStore(&fs, "scratch").LoadNewest();
  REQUIRE(loaded.ok());
  RequireSameWindows((*loaded)->header.local, header.local);
  REQUIRE_FALSE((*loaded)->header.spooled.at(0).has_value());
  const SpooledUpdate& spooled = (*loaded)->header.spooled.at(1).value();
  REQUIRE(spooled.digest == SampleSpool().digest);
  REQUIRE(spooled.base_digest == SampleSpool().base_digest);
  REQUIRE(spooled.steps == 5);
  REQUIRE(spooled.loss == 2.25);
  REQUIRE(spooled.lr_sum == 0.0625);
  REQUIRE(spooled.data_end == 12'800);
}

TEST_CASE("C7.4 a checkpoint of format 1 is read: it has one fragment") {
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs("scratch").ok());
  const absl::StatusOr<std::string> golden =
      ReadFile(FileSystem::Posix(), DILOCO_GOLDEN_DIR "/checkpoint-1.ckpt");
  REQUIRE(golden.ok());
  REQUIRE(WriteFileAtomic(&fs, "scratch/checkpoint-000001.ckpt", *golden).ok());
  const absl::StatusOr<std::optional<Checkpoint>> loaded =
      CheckpointStore(&fs, "scratch").LoadNewest();
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  const CheckpointHeader& header = (*loaded)->header;
  REQUIRE(header.local.fragments.size() == 1);
  const HeldFragment& fragment = header.local.fragments[0];
  REQUIRE(fragment.version == 2);
  REQUIRE(fragment.window == Window{.round = 3,
                                    .base_version = 2,
                                    .steps_done = 3,
                                    .tokens = 24,
                                    .steps = 3,
                                    .loss_sum = 7.5,
                                    .losses = 3});
  REQUIRE(fragment.ahead == Window{});
  REQUIRE(header.spooled.at(0).value().digest == SampleSpool().digest);
  REQUIRE((*loaded)->buffers == SampleBuffers(2));
}

}  // namespace
}  // namespace diloco
