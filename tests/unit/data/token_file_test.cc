// Token files: sizes, headers, offsets beyond 2 GiB, ids.
#include "worker/data/token_file.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/data_files.h"

namespace diloco {
namespace {

using testing::Bytes;
using testing::kFs;
using testing::LlmCHeader;

std::string OpenError(const std::string& path, TokenFormat format) {
  const absl::Status status = TokenFile::Open(kFs, path, format).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST_CASE("ids of both widths and both llm.c dtypes are read") {
  const TempDir dir;
  const std::vector<uint16_t> narrow = {7, 65535, 0, 12};
  const std::vector<uint32_t> wide = {7, 65535, 0, 12};
  struct Case {
    std::string path;
    TokenFormat format;
    int width;
  };
  const std::vector<Case> cases = {
      {dir.Write("a", Bytes(narrow)), TokenFormat::kUint16, 2},
      {dir.Write("b", Bytes(wide)), TokenFormat::kUint32, 4},
      {dir.Write("c", LlmCHeader(20240520, 1, 4) + Bytes(narrow)),
       TokenFormat::kLlmC, 2},
      {dir.Write("d", LlmCHeader(20240801, 7, 4) + Bytes(wide)),
       TokenFormat::kLlmC, 4}};
  for (const Case& test : cases) {
    const auto file = TokenFile::Open(kFs, test.path, test.format);
    REQUIRE(file.ok());
    REQUIRE(file->tokens() == 4);
    REQUIRE(file->width() == test.width);
    std::vector<int32_t> ids(3);
    REQUIRE(file->Read(1, absl::MakeSpan(ids)).ok());
    REQUIRE(ids == std::vector<int32_t>{65535, 0, 12});
    const auto scan = file->ScanIds();
    REQUIRE(scan->max_id == 65535);
    REQUIRE(scan->max_position == 1);
  }
}

TEST_CASE("C1.1 a window beyond 2 GiB of a shard is read from its place") {
  const TempDir dir;
  const std::string path =
      dir.Write("big.bin", LlmCHeader(20240520, 1, 1'200'000'000));
  std::filesystem::resize_file(path, 1024 + 2'400'000'000);
  {
    auto file = kFs->OpenForWrite(path);
    REQUIRE((*file)
                ->WriteAt(1024 + 2 * uint64_t{1'100'000'000},
                          Bytes(std::vector<uint16_t>{1, 2, 3}))
                .ok());
  }
  const auto file = TokenFile::Open(kFs, path, TokenFormat::kLlmC);
  REQUIRE(file.ok());
  REQUIRE(file->tokens() == 1'200'000'000);
  std::vector<int32_t> ids(3);
  REQUIRE(file->Read(1'100'000'000, absl::MakeSpan(ids)).ok());
  REQUIRE(ids == std::vector<int32_t>{1, 2, 3});
}

TEST_CASE("C1.6 an odd size is refused with both numbers") {
  const TempDir dir;
  const std::string path = dir.Write("odd.bin", std::string(2001, 'x'));
  const std::string error = OpenError(path, TokenFormat::kUint16);
  REQUIRE_THAT(error, Catch::Contains(path));
  REQUIRE_THAT(error, Catch::Contains("2001 bytes"));
  REQUIRE_THAT(error, Catch::Contains("multiple of 2"));
  REQUIRE_THAT(OpenError(dir.Write("odd32.bin", std::string(2002, 'x')),
                         TokenFormat::kUint32),
               Catch::Contains("multiple of 4"));
}

TEST_CASE("C1.6 a damaged llm.c header is refused with field and values") {
  const TempDir dir;
  struct Case {
    std::string content;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {
      {LlmCHeader(20240520, 1, 1000) + std::string(1998, 'x'),
       {"1000 tokens", "3024 bytes", "3022"}},
      {LlmCHeader(20240520, 1, 1000) + std::string(2002, 'x'),
       {"1000 tokens", "3024 bytes", "3026"}},
      {LlmCHeader(20240521, 1, 1000) + std::string(2000, 'x'),
       {"magic 20240521", "20240520", "20240801"}},
      {LlmCHeader(20240520, 2, 1000) + std::string(2000, 'x'),
       {"version 2", "expected 1"}},
      {LlmCHeader(20240520, 1, -5), {"token count -5"}},
      {LlmCHeader(20240520, 1, 0), {"token count 0"}},
      {LlmCHeader(20240801, 7, 1000) + std::string(2000, 'x'),
       {"1000 tokens", "5024 bytes", "3024"}},
      {std::string(1000, 'x'), {"1024 bytes", "1000"}},
      {"", {"1024 bytes", "has 0"}}};
  for (const Case& test : cases) {
    const TempDir own;
    const std::string path = own.Write("shard.bin", test.content);
    const std::string error = OpenError(path, TokenFormat::kLlmC);
    REQUIRE_THAT(error, Catch::Contains(path));
    for (const std::string& part : test.says) {
      REQUIRE_THAT(error, Catch::Contains(part));
    }
  }
}

TEST_CASE("a file that became shorter is an error, not a signal") {
  const TempDir dir;
  const std::string path =
      dir.Write("a.bin", Bytes(testing::Counting(100'000, 500)));
  const auto file = TokenFile::Open(kFs, path, TokenFormat::kUint16);
  std::filesystem::resize_file(path, 1000);
  std::vector<int32_t> ids(10);
  const absl::Status status = file->Read(90'000, absl::MakeSpan(ids));
  REQUIRE(status.code() == absl::StatusCode::kDataLoss);
  REQUIRE_THAT(std::string(status.message()),
               Catch::Contains("200000") && Catch::Contains("1000"));
  REQUIRE(file->ScanIds().status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("an unknown format name is refused with the known ones") {
  REQUIRE(*ParseTokenFormat("uint32") == TokenFormat::kUint32);
  REQUIRE_THAT(std::string(ParseTokenFormat("u16").status().message()),
               Catch::Contains("uint16, uint32, llm.c"));
}

}  // namespace
}  // namespace diloco
