// The whole fold on files: digests, blob, images, refusals and faults.
#include "coordinator/aggregate/fold.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

constexpr int64_t kElements = 2 * kFrameElements + 512;

std::vector<float> Values(uint32_t seed, int64_t n = kElements) {
  std::vector<float> values(n);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = (static_cast<float>(seed >> 8) - 0x1p23f) * 0x1p-32f;
  }
  return values;
}

absl::Status WriteUpdate(FileSystem* fs, const std::string& path,
                         absl::Span<const float> values,
                         Codec codec = Codec::kFp16, uint32_t fragment = 0) {
  ASSIGN_OR_RETURN(auto file, fs->OpenForWrite(path));
  PartHeader header;
  header.codec = codec;
  header.fragment = fragment;
  header.elements = static_cast<int64_t>(values.size());
  PartWriter writer(file.get(), header);
  for (int64_t i = 0; i < FrameCount(header.elements); ++i) {
    RETURN_IF_ERROR(
        writer.Append(values.subspan(i * kFrameElements, kFrameElements)));
  }
  return writer.Finish().status();
}

// A fold with its files, theta and momentum.
class Setup {
 public:
  Setup() : theta(Values(99)), momentum(kElements, 0.0f) {}

  void Add(const std::string& worker, absl::Span<const float> values,
           uint64_t weight = 1, Codec codec = Codec::kFp16,
           uint32_t fragment = 0) {
    REQUIRE(WriteUpdate(&fs, worker, values, codec, fragment).ok());
    Open(worker, weight);
  }
  void Open(const std::string& worker, uint64_t weight = 1) {
    auto reader = PartReader::Open(*fs.OpenForRead(worker), worker);
    REQUIRE(reader.ok());
    readers.push_back(std::make_unique<PartReader>(*std::move(reader)));
    members.push_back({worker, weight, readers.back().get()});
  }
  absl::StatusOr<FoldResult> Run(bool images = false,
                                 Codec codec_down = Codec::kFp32) {
    ASSIGN_OR_RETURN(auto blob, fs.OpenForWrite("blob"));
    ASSIGN_OR_RETURN(auto image, fs.OpenForWrite("theta"));
    ASSIGN_OR_RETURN(auto buffer, fs.OpenForWrite("momentum"));
    FoldOutput output;
    output.blob = blob.get();
    if (images) {
      output.theta_image = image.get();
      output.momentum_image = buffer.get();
    }
    return Fold(0, members, OuterSettings(), codec_down, absl::MakeSpan(theta),
                absl::MakeSpan(momentum), output);
  }
  std::vector<float> ReadPart(const std::string& path) {
    auto reader = PartReader::Open(*fs.OpenForRead(path), path);
    REQUIRE(reader.ok());
    std::vector<float> values(reader->header().elements);
    for (int64_t i = 0; i < reader->frames(); ++i) {
      REQUIRE(reader
                  ->ReadFrame(i, absl::MakeSpan(values).subspan(
                                     i * kFrameElements, kFrameElements))
                  .ok());
    }
    return values;
  }
  Digest DigestOf(const std::string& path) {
    return BlockDigest(ReadFile(&fs, path).value());
  }

  FaultFileSystem fs;
  std::vector<float> theta, momentum;
  std::vector<std::unique_ptr<PartReader>> readers;
  std::vector<FoldMember> members;
};

bool Refused(const absl::Status& status, absl::string_view mention) {
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(status.message(), mention));
  return status.code() == absl::StatusCode::kInvalidArgument &&
         absl::StrContains(status.message(), mention);
}

TEST_CASE("lossy updates fold as what they decode to, whatever their frames") {
  for (Codec codec : {Codec::kInt8, Codec::kInt8Buckets, Codec::kE3m0}) {
    INFO(CodecName(codec));
    Setup lossy;
    lossy.Add("a", Values(1), 1, codec);
    lossy.Add("b", Values(2), 3, codec);
    const FoldResult result = lossy.Run().value();
    Setup plain;
    plain.Add("a", lossy.ReadPart("a"), 1, Codec::kFp32);
    plain.Add("b", lossy.ReadPart("b"), 3, Codec::kFp32);
    CHECK(plain.Run().value().digest == result.digest);
    CHECK((plain.theta == lossy.theta));
    CHECK((plain.momentum == lossy.momentum));
    CHECK(lossy.ReadPart("a") != Values(1));
  }
}

TEST_CASE("a damaged frame of a lossy update is found and named") {
  Setup setup;
  setup.Add("a", Values(1), 1, Codec::kE3m0);
  REQUIRE(WriteUpdate(&setup.fs, "b", Values(2), Codec::kE3m0, 0).ok());
  std::string bytes = ReadFile(&setup.fs, "b").value();
  bytes[bytes.size() - 7] ^= 1;
  REQUIRE(WriteFileAtomic(&setup.fs, "b", bytes).ok());
  setup.Open("b");
  const absl::Status status = setup.Run().status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(status.message(), "b: "));
}

TEST_CASE("a worker that adds the blob's change has the coordinator's digest") {
  for (Codec codec_down : {Codec::kFp32, Codec::kFp16, Codec::kBf16}) {
    Setup setup;
    setup.Add("a", Values(1));
    setup.Add("b", Values(2), 3);
    std::vector<float> copy = setup.theta;
    const FoldResult result = setup.Run(false, codec_down).value();
    CHECK(result.digest == DigestOfValues(setup.theta));
    CHECK(result.blob_digest == setup.DigestOf("blob"));
    CHECK(result.blob_bytes == ReadFile(&setup.fs, "blob")->size());
    CHECK(copy != setup.theta);
    ApplyChange(setup.ReadPart("blob"), absl::MakeSpan(copy));
    CHECK(copy == setup.theta);
    CHECK(DigestOfValues(copy) == result.digest);
  }
}

TEST_CASE("images hold theta and momentum after the fold") {
  Setup setup;
  setup.Add("a", Values(1));
  const FoldResult result = setup.Run(true).value();
  CHECK(setup.ReadPart("theta") == setup.theta);
  CHECK(setup.ReadPart("momentum") == setup.momentum);
  CHECK(result.theta_image_digest == setup.DigestOf("theta"));
  CHECK(result.momentum_image_digest == setup.DigestOf("momentum"));
  CHECK(result.image_bytes == ReadFile(&setup.fs, "theta")->size());
  // WriteImage makes the same file.
  auto file = setup.fs.OpenForWrite("again");
  REQUIRE(file.ok());
  CHECK(WriteImage(file->get(), 0, setup.theta).value() ==
        result.theta_image_digest);
  CHECK(ReadFile(&setup.fs, "again").value() ==
        ReadFile(&setup.fs, "theta").value());
}

TEST_CASE("the norm of the mean is that of the members' mean") {
  Setup setup;
  setup.Add("a", std::vector<float>(kElements, 0.5f));
  setup.Add("b", std::vector<float>(kElements, 0.25f));
  CHECK(setup.Run()->mean_norm ==
        Approx(0.375 * std::sqrt(static_cast<double>(kElements))));
}

TEST_CASE("C6.4 the divisor is the accepted weight, not a configured count") {
  Setup two;
  two.Add("a", std::vector<float>(kElements, 1.0f));
  two.Add("b", std::vector<float>(kElements, 1.0f));
  REQUIRE(two.Run().ok());
  CHECK((two.momentum == std::vector<float>(kElements, 1.0f)));
  Setup three;
  three.Add("a", std::vector<float>(kElements, 1.0f));
  three.Add("b", std::vector<float>(kElements, 1.0f));
  three.Add("c", std::vector<float>(kElements, 1.0f));
  REQUIRE(three.Run().ok());
  CHECK((three.theta == two.theta));
}

TEST_CASE("a fold repeats bit for bit, also when two members share a file") {
  Setup first, second;
  for (Setup* setup : {&first, &second}) {
    setup->Add("a", Values(1), 7);
    setup->Open("a", 5);
    setup->Add("b", Values(3), 11);
  }
  CHECK(first.Run()->digest == second.Run()->digest);
  CHECK((first.theta == second.theta));
  Setup other;
  other.Add("a", Values(1), 12);
  other.Add("b", Values(3), 11);
  REQUIRE(other.Run().ok());
  for (int64_t i = 0; i < kElements; ++i) {
    REQUIRE(std::fabs(other.theta[i] - first.theta[i]) < 1e-7);
  }
}

TEST_CASE(
    "C6.6 the fold itself refuses what the screens should have, theta is "
    "untouched") {
  for (float huge : {1e38f, std::numeric_limits<float>::infinity(),
                     std::numeric_limits<float>::quiet_NaN()}) {
    Setup setup;
    std::vector<float> values(kElements, 0.0f);
    values.back() = huge;
    setup.Add("calm", Values(1), 1, Codec::kFp32);
    setup.Add("mallory", values, 1, Codec::kFp32);
    const std::vector<float> theta = setup.theta;
    CHECK(Refused(setup.Run().status(), "mallory"));
    CHECK((setup.theta == theta));
    CHECK((setup.momentum == std::vector<float>(kElements, 0.0f)));
    // The same from the figure of the screen, without looking.
    setup.members[1].max_abs = huge;
    CHECK(Refused(setup.Run().status(), "mallory"));
  }
  Setup setup;
  setup.Add("a", std::vector<float>(kElements, kMaxFoldMagnitude), 1,
            Codec::kFp32);
  REQUIRE(setup.Run().ok());
  CHECK(std::isfinite(setup.theta[0]));
}

TEST_CASE("C6.6 headers that disagree are refused before anything changes") {
  const auto refused = [](Codec codec, uint32_t fragment, int64_t n,
                          const char* mention) {
    Setup setup;
    setup.Add("a", Values(1));
    setup.Add("odd", Values(2, n), 1, codec, fragment);
    const std::vector<float> theta = setup.theta;
    const bool ok = Refused(setup.Run().status(), mention);
    return ok && setup.theta == theta;
  };
  CHECK(refused(Codec::kFp32, 0, kElements, "odd is in fp32"));
  CHECK(refused(Codec::kFp16, 1, kElements, "of fragment 1"));
  CHECK(refused(Codec::kFp16, 0, kElements - 256, "odd"));
  CHECK(refused(Codec::kFp16, 0, kElements + 256, "odd"));
}

TEST_CASE("weights of zero in all, or beyond 64 bits, are refused") {
  Setup zero;
  zero.Add("a", Values(1), 0);
  CHECK(Refused(zero.Run().status(), "all 0"));
  Setup over;
  over.Add("a", Values(1), UINT64_MAX);
  over.Add("b", Values(1), 1);
  CHECK(Refused(over.Run().status(), "64 bits at b"));
}

TEST_CASE("a change beyond fp16 is refused when the downlink is fp16") {
  Setup setup;
  setup.Add("a", std::vector<float>(kElements, 60000.0f), 1, Codec::kFp32);
  CHECK(Refused(setup.Run(false, Codec::kFp16).status(), "fp32"));
  CHECK(setup.Run(false, Codec::kFp32).ok());
}

TEST_CASE("a frame that rotted in the spool is named, not folded") {
  Setup setup;
  setup.Add("a", Values(1));
  REQUIRE(WriteUpdate(&setup.fs, "b", Values(2)).ok());
  setup.fs.FlipBit("b", ReadFile(&setup.fs, "b")->size() - 3, 5);
  setup.Open("b");
  const absl::Status status = setup.Run().status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(status.message(), "frame 2 of 3"));
}

TEST_CASE("C7.1 a full disk in mid-fold is reported as such") {
  for (bool images : {false, true}) {
    Setup setup;
    setup.Add("a", Values(1));
    setup.fs.set_space(setup.fs.bytes_used() + (1 << 20) + 1000);
    CHECK(setup.Run(images).status().code() ==
          absl::StatusCode::kResourceExhausted);
  }
}

TEST_CASE("a fragment smaller than a tile folds as well") {
  FaultFileSystem fs;
  REQUIRE(WriteUpdate(&fs, "a", std::vector<float>(256, 0.5f)).ok());
  auto reader = PartReader::Open(*fs.OpenForRead("a"), "a");
  REQUIRE(reader.ok());
  std::vector<float> theta(256, 1.0f), momentum(256, 0.0f);
  auto blob = fs.OpenForWrite("blob");
  REQUIRE(blob.ok());
  FoldOutput output;
  output.blob = blob->get();
  const FoldMember member = {"a", 1, &*reader};
  const auto result =
      Fold(0, {member}, {1.0f, 0.0f, true}, Codec::kFp32, absl::MakeSpan(theta),
           absl::MakeSpan(momentum), output);
  REQUIRE(result.ok());
  CHECK(theta == std::vector<float>(256, 0.5f));
  CHECK(result->digest == DigestOfValues(theta));
}

}  // namespace
}  // namespace diloco
