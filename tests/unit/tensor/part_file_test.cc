// Writing and reading part files, and what a reader refuses.
#include "common/tensor/part_file.h"

#include <bit>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/catch.h"
#include "tests/unit/tensor/part_test_util.h"

namespace diloco {
namespace {

absl::StatusOr<PartReader> OpenBytes(FaultFileSystem* fs,
                                     absl::string_view bytes) {
  REQUIRE(WriteFileAtomic(fs, "part", bytes).ok());
  return PartReader::Open(*fs->OpenForRead("part"), "part");
}

TEST_CASE(
    "a part file reads back as its codec rounds, and its digest is right") {
  // One frame, exactly one, one and a bit, several.
  for (int64_t n : {int64_t{1}, int64_t{1000}, kFrameElements,
                    kFrameElements + 1, 5 * kFrameElements + 256}) {
    const std::vector<float> values = Values(n);
    for (Codec codec : {Codec::kFp32, Codec::kFp16, Codec::kBf16}) {
      FaultFileSystem fs;
      PartHeader header;
      header.codec = codec;
      header.fragment = 2;
      header.first_element = 3 * kFrameElements;
      const Digest digest = WritePart(&fs, "p", header, values).value();
      const std::string bytes = ReadFile(&fs, "p").value();
      CHECK(bytes.size() == PartFileBytes(codec, n));
      CHECK(BlockDigest(bytes) == digest);
      auto reader = PartReader::Open(*fs.OpenForRead("p"), "p");
      REQUIRE(reader.ok());
      CHECK(reader->header().codec == codec);
      CHECK(reader->header().fragment == 2);
      CHECK(reader->header().first_element == 3 * kFrameElements);
      CHECK(reader->header().elements == n);
      REQUIRE(reader->frames() == FrameCount(n));
      std::vector<float> decoded;
      for (int64_t i = 0; i < reader->frames(); ++i) {
        std::vector<float> frame(reader->FrameElements(i));
        REQUIRE(reader->ReadFrame(i, absl::MakeSpan(frame)).ok());
        decoded.insert(decoded.end(), frame.begin(), frame.end());
      }
      std::string encoded(EncodedBytes(codec, n), '\0');
      std::vector<float> expected(n);
      Encode(codec, values, absl::MakeSpan(&encoded[0], encoded.size()));
      Decode(codec, encoded, absl::MakeSpan(expected));
      CHECK(decoded == expected);
    }
  }
}

TEST_CASE("the digest of values names a fragment version") {
  const std::vector<float> values = {1.0f, -2.0f, 0.5f};
  CHECK(DigestOfValues(values) ==
        BlockDigest(absl::string_view(
            reinterpret_cast<const char*>(values.data()), 12)));
  // -0 and 0 are different bits, so different versions.
  CHECK(DigestOfValues({0.0f}) != DigestOfValues({-0.0f}));
}

TEST_CASE("a file cut at any byte of its prefix, or in a frame, is refused") {
  const std::string whole = PartBytes(Codec::kFp16, Values(700));
  const uint64_t prefix = PartPrefixBytes(700);
  REQUIRE(whole.size() > prefix);
  for (size_t size = 0; size < whole.size(); size += size < prefix ? 1 : 97) {
    FaultFileSystem fs;
    const absl::Status status =
        OpenBytes(&fs, absl::string_view(whole).substr(0, size)).status();
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(absl::StrContains(status.message(), "size is"));
  }
  FaultFileSystem fs;
  CHECK(!OpenBytes(&fs, whole + "x").ok());
  CHECK(OpenBytes(&fs, whole).ok());
}

TEST_CASE("one flipped bit anywhere is found") {
  const std::string whole = PartBytes(Codec::kFp32, Values(40));
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    FaultFileSystem fs;
    auto reader = OpenBytes(&fs, bytes);
    if (bit / 8 < PartPrefixBytes(40)) {
      REQUIRE(reader.status().code() == absl::StatusCode::kInvalidArgument);
    } else {
      REQUIRE(reader.ok());
      std::vector<float> out(40);
      const absl::Status status = reader->ReadFrame(0, absl::MakeSpan(out));
      REQUIRE(status.code() == absl::StatusCode::kDataLoss);
      REQUIRE(absl::StrContains(status.message(), "frame 0 of 1"));
    }
  }
}

TEST_CASE("hostile headers with right checksums are refused by field") {
  const struct {
    const char* mention;
    size_t at;
    uint64_t value;
    int width;
  } cases[] = {
      {"codec", 12, 99, 4},
      {"frames", 20, 2, 4},
      {"frames", 20, 0xffffffff, 4},
      {"first_element", 24, 1, 8},
      {"first_element", 24, uint64_t{1} << 62, 8},
      {"first_element", 24, static_cast<uint64_t>(-kFrameElements), 8},
      {"elements", 32, 0, 8},
      {"elements", 32, UINT64_MAX, 8},
      {"elements", 32, uint64_t{1} << 62, 8},
      {"frames", 32, uint64_t{1} << 40, 8},
      {"file_bytes", 32, 999, 8},
      {"file_bytes", 40, UINT64_MAX, 8},
      {"reserved", 48, 1, 8},
      {"reserved", 56, 1, 4},
      {"offset of frame 0", 64, 0, 8},
      {"offset of frame 0", 64, UINT64_MAX, 8},
      {"size of frame 0", 72, 0, 4},
      {"size of frame 0", 72, 0xffffffff, 4},
      {"word after the table", 64 + 16 + 4, 1, 4},
  };
  const std::string whole = PartBytes(Codec::kFp16, Values(1000));
  for (const auto& c : cases) {
    std::string bytes = whole;
    PutLe(&bytes, c.at, c.value, c.width);
    FixChecksums(&bytes, 1);
    const absl::Status status = ParsePartPrefix(bytes).status();
    INFO(c.mention << ": " << status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), c.mention));
  }
  std::string bytes = whole;
  bytes[0] = 'X';
  CHECK(absl::StrContains(ParsePartPrefix(bytes).status().message(), "magic"));
  bytes = whole;
  PutLe(&bytes, 8, 2, 4);
  FixChecksums(&bytes, 1);
  CHECK(absl::StrContains(ParsePartPrefix(bytes).status().message(),
                          "format is 2"));
}

TEST_CASE("overlapping frames are refused") {
  std::string bytes =
      PartBytes(Codec::kFp16, Values(kFrameElements + kFrameElements / 2));
  REQUIRE(ParsePartPrefix(bytes).ok());
  PutLe(&bytes, kPartHeaderBytes + 16, PartPrefixBytes(2 * kFrameElements), 8);
  FixChecksums(&bytes, 2);
  CHECK(absl::StrContains(ParsePartPrefix(bytes).status().message(),
                          "offset of frame 1"));
}

TEST_CASE("a huge consistent count is refused for want of bytes, unallocated") {
  // 2^40 elements need a table of 64 MiB; 64 bytes are here.
  PartHeader header;
  header.codec = Codec::kFp16;
  header.elements = 1000;
  std::string bytes = PartBytes(Codec::kFp16, Values(1000));
  PutLe(&bytes, 32, kMaxPartElements, 8);
  PutLe(&bytes, 20, FrameCount(kMaxPartElements), 4);
  PutLe(&bytes, 40, PartFileBytes(Codec::kFp16, kMaxPartElements), 8);
  FixChecksums(&bytes, 1);
  REQUIRE(ParsePartHeader(bytes).ok());
  const absl::Status status = ParsePartPrefix(bytes).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(status.message(), "size is"));
}

TEST_CASE("write errors reach the caller") {
  for (int n : {1, 2, 3}) {
    FaultFileSystem fs;
    fs.FailWrite(n);
    const std::vector<float> values = Values(kFrameElements + 1);
    CHECK(WritePart(&fs, "p", PartHeader(), values).status().code() ==
          absl::StatusCode::kDataLoss);
  }
  FaultFileSystem fs;
  fs.set_space(1000);
  CHECK(WritePart(&fs, "p", PartHeader(), Values(1000)).status().code() ==
        absl::StatusCode::kResourceExhausted);
}

TEST_CASE("golden part files keep their bytes") {
  // A file of each codec, from integers alone; regenerated only together with
  // a new format number.
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i) - 150) / 1024.0f;
  }
  const struct {
    Codec codec;
    const char* name;
  } cases[] = {{Codec::kFp32, "part_fp32.bin"},
               {Codec::kFp16, "part_fp16.bin"},
               {Codec::kBf16, "part_bf16.bin"}};
  for (const auto& c : cases) {
    const std::string path = absl::StrCat(DILOCO_GOLDEN_DIR "/", c.name);
    const std::string bytes = PartBytes(c.codec, values);
    if (std::getenv("DILOCO_WRITE_GOLDEN") != nullptr) {
      REQUIRE(WriteFileAtomic(FileSystem::Posix(), path, bytes).ok());
    }
    CHECK(ReadFile(FileSystem::Posix(), path).value() == bytes);
  }
}

}  // namespace
}  // namespace diloco
