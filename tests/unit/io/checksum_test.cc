// CRC-32C and digests against published vectors, and the ways of computing
// them against each other.
#include "common/io/crc32c.h"
#include "common/io/crc32c_wide.h"
#include "common/io/digest.h"
#include "common/io/sha256_lanes.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

// Bytes without a pattern, from a small generator.
std::string Bytes(size_t n) {
  std::string bytes(n, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

TEST_CASE("CRC-32C of the vectors of RFC 3720, on both paths") {
  std::string up(32, '\0');
  std::string down(32, '\0');
  for (int i = 0; i < 32; ++i) {
    up[i] = static_cast<char>(i);
    down[i] = static_cast<char>(31 - i);
  }
  const struct {
    std::string bytes;
    uint32_t crc;
  } vectors[] = {{"", 0},
                 {"123456789", 0xe3069283},
                 {std::string(32, '\0'), 0x8a9136aa},
                 {std::string(32, '\xff'), 0x62a8ab43},
                 {up, 0x46dd794e},
                 {down, 0x113fdb5c}};
  for (const auto& vector : vectors) {
    CHECK(Crc32c(vector.bytes) == vector.crc);
    CHECK(crc32c_internal::ExtendByTable(0, vector.bytes) == vector.crc);
  }
}

TEST_CASE("CRC-32C of long inputs is the same on both paths and in pieces") {
  const std::string bytes = Bytes(100003);
  for (size_t n : {0, 1, 7, 8, 9, 4095, 12287, 12288, 12289, 50000, 100003}) {
    for (size_t begin : {0, 1, 3}) {
      const absl::string_view part = absl::string_view(bytes).substr(begin, n);
      CHECK(Crc32c(part) == crc32c_internal::ExtendByTable(0, part));
    }
  }
  for (size_t cut : {1, 12289, 77777}) {
    const uint32_t first = Crc32c(absl::string_view(bytes).substr(0, cut));
    CHECK(ExtendCrc32c(first, absl::string_view(bytes).substr(cut)) ==
          Crc32c(bytes));
  }
}

TEST_CASE("CRC-32C by wide multiplication is that of the tables") {
  if (!HasWideCrc32c()) {
    WARN("skipped: this CPU has no 512-bit carry-less multiplication");
    return;
  }
  const std::string bytes = Bytes(70000);
  for (size_t blocks : {1, 2, 3, 4, 5, 17, 256}) {
    for (size_t begin : {0, 1, 63}) {
      const absl::string_view part =
          absl::string_view(bytes).substr(begin, blocks * kWideCrcBytes);
      CHECK(ExtendCrc32cWide(0x12345678, part) ==
            crc32c_internal::ExtendByTable(0x12345678, part));
    }
  }
  for (size_t bit = 0; bit < 8 * 2 * kWideCrcBytes; ++bit) {
    std::string one(2 * kWideCrcBytes, '\0');
    one[bit / 8] = static_cast<char>(1 << bit % 8);
    REQUIRE(ExtendCrc32cWide(0, one) == crc32c_internal::ExtendByTable(0, one));
  }
}

TEST_CASE("SHA-256 of the vectors of FIPS 180") {
  CHECK(Sha256("").ToHex() ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Sha256("abc").ToHex() ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")
            .ToHex() ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST_CASE("SHA-256 of many inputs at once equals that of each") {
  if (!HasSha256Lanes()) {
    WARN("this CPU lacks AVX-512: not tested here");
    return;
  }
  const std::string bytes = Bytes(kSha256Lanes * 64 * 1001 + 1);
  for (size_t n : {0, 64, 128, 64 * 1001}) {
    for (size_t count : {size_t{1}, size_t{9}, kSha256Lanes}) {
      const auto digests = Sha256Lanes(bytes.data() + 1, n, count);
      for (size_t lane = 0; lane < count; ++lane) {
        CHECK(digests[lane] ==
              Sha256(absl::string_view(bytes).substr(1 + lane * n, n)));
      }
    }
  }
}

TEST_CASE("the block digest is the hash of the hashes of 1 MiB blocks") {
  const std::string bytes = Bytes(28 * kDigestBlockBytes + 17);
  std::string hashes;
  for (size_t at = 0; at < bytes.size(); at += kDigestBlockBytes) {
    hashes += Sha256(absl::string_view(bytes).substr(at, kDigestBlockBytes))
                  .ToBytes();
  }
  CHECK(BlockDigest(bytes) == Sha256(hashes));
  CHECK(BlockDigest("") == Sha256(""));
  CHECK(BlockDigest("abc") == Sha256(Sha256("abc").ToBytes()));
}

TEST_CASE("a digest in pieces of any size equals the whole one") {
  const std::string bytes = Bytes(35 * kDigestBlockBytes + 100);
  const Digest whole = BlockDigest(bytes);
  for (size_t piece :
       {99999, 1 << 20, (1 << 20) + 1, 3 << 20, 1 << 23, 1 << 25}) {
    BlockDigester digester;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      digester.Update(absl::string_view(bytes).substr(at, piece));
      digester.Finish();  // Looking in between changes nothing.
    }
    CHECK(digester.bytes() == bytes.size());
    CHECK(digester.Finish() == whole);
  }
}

TEST_CASE("the block list names the block that differs") {
  std::string bytes = Bytes(3 * kDigestBlockBytes + 5);
  BlockDigester good;
  good.Update(bytes);
  bytes[2 * kDigestBlockBytes + 12345] ^= 1;
  BlockDigester bad;
  bad.Update(bytes);
  const std::vector<Digest> a = good.Blocks();
  const std::vector<Digest> b = bad.Blocks();
  REQUIRE(a.size() == 4);
  REQUIRE(b.size() == 4);
  for (size_t i = 0; i < 4; ++i) CHECK((a[i] == b[i]) == (i != 2));
  CHECK(good.Finish() != bad.Finish());
  CHECK(DigestOfBlocks(a) == good.Finish());
}

TEST_CASE("a file's digest is that of its content, read errors are reported") {
  FaultFileSystem fs;
  const std::string bytes = Bytes(20 * kDigestBlockBytes + 1);
  REQUIRE(WriteFileAtomic(&fs, "f", bytes).ok());
  auto file = fs.OpenForRead("f");
  REQUIRE(file.ok());
  CHECK(BlockDigestOfFile(**file).value() == BlockDigest(bytes));
  fs.FailRead(2);
  CHECK(BlockDigestOfFile(**file).status().code() ==
        absl::StatusCode::kDataLoss);
}

TEST_CASE("digests have text and raw forms, and refuse others") {
  const Digest digest = Sha256("abc");
  CHECK(Digest::FromHex(digest.ToHex()).value() == digest);
  CHECK(Digest::FromBytes(digest.ToBytes()).value() == digest);
  CHECK(digest.Short() == "ba7816bf8f01");
  CHECK(digest.ToBytes().size() == 32);
  CHECK(!Digest::FromHex("ba78").ok());
  CHECK(!Digest::FromHex(std::string(64, 'g')).ok());
  CHECK(!Digest::FromHex(std::string(1000, '0')).ok());
  CHECK(!Digest::FromBytes("short").ok());
  CHECK(!Digest::FromBytes(std::string(33, 'x')).ok());
}

}  // namespace
}  // namespace diloco
