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
    for (Codec codec : kCodecs) {
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
      CHECK((decoded == RoundedAsPart(codec, values)));
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

TEST_CASE("error feedback: what a part lost is in the next one") {
  const int64_t n = kFrameElements + 700;
  const std::vector<float> values = Values(n);
  const auto write = [&](FaultFileSystem* fs, std::vector<float>* residual) {
    auto file = fs->OpenForWrite("p").value();
    PartHeader header;
    header.codec = Codec::kE3m0;
    header.elements = n;
    PartWriter writer(file.get(), header,
                      {{}, *residual, absl::MakeSpan(*residual)});
    for (int64_t i = 0; i < FrameCount(n); ++i) {
      REQUIRE(writer
                  .Append(absl::MakeConstSpan(values).subspan(
                      i * kFrameElements, kFrameElements))
                  .ok());
    }
    REQUIRE(writer.Finish().ok());
    auto reader = PartReader::Open(*fs->OpenForRead("p"), "p").value();
    std::vector<float> read(n);
    for (int64_t i = 0; i < reader.frames(); ++i) {
      REQUIRE(reader
                  .ReadFrame(i, absl::MakeSpan(read).subspan(i * kFrameElements,
                                                             kFrameElements))
                  .ok());
    }
    return read;
  };
  FaultFileSystem fs;
  std::vector<float> residual(n, 0.0f);
  const std::vector<float> first = write(&fs, &residual);
  CHECK((first == RoundedAsPart(Codec::kE3m0, values)));
  const std::vector<float> second = write(&fs, &residual);
  size_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float all = first[i] + second[i] + residual[i];
    if (!(std::fabs(all - 2 * values[i]) <= 1e-9f)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK((first != second));
}

TEST_CASE("stochastic parts: another seed, other bytes; each frame its own") {
  const std::vector<float> values(2 * kFrameElements, 0.3f);
  const auto bytes = [&](uint64_t seed) {
    FaultFileSystem fs;
    auto file = fs.OpenForWrite("p").value();
    PartHeader header;
    header.codec = Codec::kInt8;
    header.elements = static_cast<int64_t>(values.size());
    std::vector<float> graded = values;
    for (size_t i = 0; i < graded.size(); i += 256) graded[i] = 1;
    PartWriter writer(file.get(), header, {{true, seed, 0}, {}, {}});
    for (int64_t i = 0; i < 2; ++i) {
      REQUIRE(writer
                  .Append(absl::MakeConstSpan(graded).subspan(
                      i * kFrameElements, kFrameElements))
                  .ok());
    }
    REQUIRE(writer.Finish().ok());
    return ReadFile(&fs, "p").value();
  };
  const std::string one = bytes(1);
  CHECK((one == bytes(1)));
  CHECK((one != bytes(2)));
  const size_t frame = EncodedBytes(Codec::kInt8, kFrameElements);
  CHECK(one.substr(one.size() - 2 * frame, frame) !=
        one.substr(one.size() - frame));
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
               {Codec::kBf16, "part_bf16.bin"},
               {Codec::kInt8, "part_int8.bin"},
               {Codec::kInt8Buckets, "part_int8_buckets.bin"},
               {Codec::kE3m0, "part_e3m0.bin"}};
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
