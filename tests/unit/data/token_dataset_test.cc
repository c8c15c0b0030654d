// Windows of a shard: bounds, order, restart, manifest.
#include "worker/data/token_dataset.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/data/dataset_manifest.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/data_files.h"
#include "worker/data/permutation.h"

namespace diloco {
namespace {

using testing::Bytes;
using testing::Counting;
using testing::kFs;

absl::StatusOr<TokenDataset> Open(const std::string& path, uint32_t seq_len,
                                  uint64_t vocab = 1000, uint64_t seed = 1) {
  return TokenDataset::Open(kFs, path,
                            {.format = TokenFormat::kUint16,
                             .seq_len = seq_len,
                             .vocab = vocab,
                             .seed = seed});
}

DatasetManifest::Shard ShardOf(const std::string& file, uint64_t bytes) {
  DatasetManifest::Shard shard;
  shard.file = file;
  shard.file_bytes = bytes;
  return shard;
}

TEST_CASE("C1.2 files shorter than one window are refused with the numbers") {
  const TempDir dir;
  for (const size_t tokens : {0, 1, 128}) {
    const std::string path =
        dir.Write(std::to_string(tokens), Bytes(Counting(tokens, 9)));
    const absl::Status status = Open(path, 128).status();
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE_THAT(std::string(status.message()),
                 Catch::Contains(path) &&
                     Catch::Contains(std::to_string(tokens) + " tokens") &&
                     Catch::Contains("129"));
  }
  for (const size_t tokens : {129, 130}) {
    const auto data = Open(
        dir.Write(std::to_string(tokens), Bytes(Counting(tokens, 9))), 128);
    REQUIRE(data.ok());
    REQUIRE(data->windows() == 1);
    REQUIRE(data->Next(0, 1)->size() == 129);
  }
  // 257 ids are exactly two windows that share one id.
  REQUIRE(Open(dir.Write("257", Bytes(Counting(257, 9))), 128)->windows() == 2);
  REQUIRE(Open(dir.Write("256", Bytes(Counting(256, 9))), 128)->windows() == 1);
}

TEST_CASE("a missing shard is named") {
  const TempDir dir;
  const absl::Status status = Open(dir.File("none.bin"), 8).status();
  REQUIRE(status.code() == absl::StatusCode::kNotFound);
  REQUIRE_THAT(std::string(status.message()),
               Catch::Contains(dir.File("none.bin")));
}

TEST_CASE("C1.5 an id outside the vocabulary is refused with its position") {
  const TempDir dir;
  std::vector<uint16_t> ids = Counting(10'000, 400);
  ids[7'777] = 500;
  const std::string path = dir.Write("a.bin", Bytes(ids));
  REQUIRE(Open(path, 16, 501).ok());
  const absl::Status status = Open(path, 16, 500).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(status.message()),
               Catch::Contains(path) && Catch::Contains("token id 500") &&
                   Catch::Contains("position 7777") &&
                   Catch::Contains("has 500"));
}

TEST_CASE("C1.4 wide ids read as narrow ones are refused or named") {
  const TempDir dir;
  std::vector<uint32_t> wide(1000);
  for (size_t i = 0; i < wide.size(); ++i) {
    wide[i] = static_cast<uint32_t>(i * 70 % 70'000);
  }
  const std::string path = dir.Write("wide.bin", Bytes(wide));
  // Without a manifest: the scan refuses what the vocabulary does not have and
  // says which setting to look at.
  REQUIRE_THAT(std::string(Open(path, 16, 1000).status().message()),
               Catch::Contains("check dtype"));
  const auto file = TokenFile::Open(kFs, path, TokenFormat::kUint16);
  REQUIRE(file->ScanIds()->looks_wider);

  DatasetManifest manifest;
  manifest.dtype = TokenFormat::kUint32;
  manifest.vocab = 70'000;
  manifest.shards = {ShardOf("wide.bin", 4000)};
  dir.Write(kManifestName, ManifestToJson(manifest));
  const absl::Status status = Open(path, 16, 70'000).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(status.message()), Catch::Contains(path) &&
                                                  Catch::Contains("uint32") &&
                                                  Catch::Contains("uint16"));
  REQUIRE(TokenDataset::Open(
              kFs, path,
              {.format = TokenFormat::kUint32, .seq_len = 16, .vocab = 70'000})
              .ok());
}

TEST_CASE("ordinary narrow ids do not look wide") {
  const TempDir dir;
  const auto file = TokenFile::Open(
      kFs, dir.Write("a", Bytes(Counting(1000, 500))), TokenFormat::kUint16);
  REQUIRE_FALSE(file->ScanIds()->looks_wider);
}

TEST_CASE("C1.6 a shard that does not have the manifest's size is refused") {
  const TempDir dir;
  const std::string path = dir.Write("a.bin", Bytes(Counting(1000, 500)));
  DatasetManifest manifest;
  manifest.vocab = 500;
  manifest.shards = {ShardOf("a.bin", 2400)};
  dir.Write(kManifestName, ManifestToJson(manifest));
  REQUIRE_THAT(std::string(Open(path, 16).status().message()),
               Catch::Contains("2400 bytes") && Catch::Contains("2000"));
}

// The windows' first ids, which name them in a counting file.
std::vector<int32_t> Firsts(const std::vector<int32_t>& ids, size_t width) {
  std::vector<int32_t> firsts;
  for (size_t i = 0; i < ids.size(); i += width) firsts.push_back(ids[i]);
  return firsts;
}

TEST_CASE("C1.8 every window once per epoch, another order in each") {
  const TempDir dir;
  // 97 windows of 8 + 1 ids.
  const auto data =
      Open(dir.Write("a.bin", Bytes(Counting(97 * 8 + 1, 1000))), 8);
  REQUIRE(data->windows() == 97);
  std::vector<std::vector<int32_t>> orders;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<int32_t> order = Firsts(*data->Next(97 * epoch, 97), 9);
    REQUIRE(std::set<int32_t>(order.begin(), order.end()).size() == 97);
    orders.push_back(order);
  }
  REQUIRE(orders[0] != orders[1]);
  REQUIRE(orders[1] != orders[2]);
  REQUIRE_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
  const auto other = Open(dir.File("a.bin"), 8, 1000, /*seed=*/2);
  REQUIRE(Firsts(*other->Next(0, 97), 9) != orders[0]);
}

TEST_CASE("C1.8 a restart at any cursor continues the same stream") {
  const TempDir dir;
  const std::string path =
      dir.Write("a.bin", Bytes(Counting(97 * 8 + 1, 1000)));
  const auto whole = Open(path, 8);
  const std::vector<int32_t> stream = *whole->Next(0, 300);
  // In mid-epoch, at the epoch's end, in epoch 2; batches of 8 cross both.
  for (const uint64_t start : {uint64_t{40}, uint64_t{97}, uint64_t{150}}) {
    const auto resumed = Open(path, 8);
    uint64_t cursor = start;
    std::vector<int32_t> again;
    while (cursor + 8 <= 300) {
      const std::vector<int32_t> batch = *resumed->Next(cursor, 8);
      again.insert(again.end(), batch.begin(), batch.end());
      cursor += 8;
    }
    REQUIRE(std::equal(again.begin(), again.end(),
                       stream.begin() + static_cast<int64_t>(start * 9)));
  }
}

TEST_CASE("windows in order share one id and end at the file's end") {
  const TempDir dir;
  const auto data = Open(dir.Write("a.bin", Bytes(Counting(30, 1000))), 8);
  const std::vector<int32_t> ids = *data->InOrder(1, 2);
  REQUIRE(Firsts(ids, 9) == std::vector<int32_t>{8, 16});
  REQUIRE(ids[8] == 16);
  REQUIRE(data->InOrder(2, 2).status().code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("a permutation visits everything once, for any size") {
  for (const uint64_t size : {1, 2, 3, 4, 5, 63, 64, 65, 1000}) {
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      const Permutation order(size, 42, epoch);
      std::vector<bool> seen(size, false);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t at = order.At(i);
        REQUIRE(at < size);
        REQUIRE_FALSE(seen[at]);
        seen[at] = true;
      }
    }
  }
  REQUIRE(Permutation(uint64_t{1} << 40, 1, 0).At(5) < uint64_t{1} << 40);
}

TEST_CASE("the order of a run never changes") {
  // A change would shuffle the data of running runs.
  const Permutation order(1000, 1, 0);
  std::vector<uint64_t> first;
  for (uint64_t i = 0; i < 6; ++i) first.push_back(order.At(i));
  REQUIRE(first == std::vector<uint64_t>{712, 60, 940, 821, 292, 781});
}

TEST_CASE("a manifest survives writing and reading, bad ones are named") {
  const TempDir dir;
  DatasetManifest manifest;
  manifest.dtype = TokenFormat::kUint32;
  manifest.vocab = 70'000;
  manifest.tokenizer = "tokenizer.model";
  manifest.tokenizer_digest = "ab";
  manifest.eos_id = 2;
  manifest.shards = {{.file = "train-0.bin",
                      .split = "train",
                      .file_bytes = 12,
                      .digest = "cd",
                      .tokens = 3,
                      .documents = 1,
                      .text_bytes = 9,
                      .max_id = 69'999}};
  const std::string path = dir.Write(kManifestName, ManifestToJson(manifest));
  const auto read = ReadManifest(kFs, path);
  REQUIRE(read.ok());
  REQUIRE(ManifestToJson(*read) == ManifestToJson(manifest));
  for (const auto& [text, says] :
       std::vector<std::pair<const char*, const char*>>{
           {"{", "not valid JSON"},
           {"[]", "not an object"},
           {"{}", "missing key format"},
           {R"({"format": "1"})", "format: not a whole number"}}) {
    const TempDir own;
    const absl::Status status =
        ReadManifest(kFs, own.Write("dataset.json", text)).status();
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE_THAT(std::string(status.message()),
                 Catch::Contains("dataset.json") && Catch::Contains(says));
  }
}

}  // namespace
}  // namespace diloco
