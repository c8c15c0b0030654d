// Error feedback from one update to the next, through checkpoints and refusals.
#include "worker/update/residual.h"

#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

// Comparisons of so many values stand in parentheses: printing them takes for
// ever.
constexpr int64_t kElements = kFrameElements + 600;

std::vector<float> Delta(int seed) {
  std::vector<float> values(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    values[i] =
        static_cast<float>((i * 7919 + seed * 104729) % 2003 - 1001) * 0x1p-12f;
  }
  return values;
}

// One worker's updates in a file system of its own.
struct Sender {
  std::vector<float> Encode(int seed, Codec codec = Codec::kE3m0,
                            bool wanted = true) {
    auto file = fs.OpenForWrite("p").value();
    REQUIRE(file->Truncate(0).ok());
    PartWriter writer(file.get(), {codec, 0, 0, kElements},
                      residual.Begin(wanted, kElements, {}));
    const std::vector<float> delta = Delta(seed);
    for (int64_t i = 0; i < FrameCount(kElements); ++i) {
      REQUIRE(writer
                  .Append(absl::MakeConstSpan(delta).subspan(i * kFrameElements,
                                                             kFrameElements))
                  .ok());
    }
    REQUIRE(writer.Finish().ok());
    const PartReader reader = Open();
    std::vector<float> sent(kElements);
    for (int64_t i = 0; i < reader.frames(); ++i) {
      REQUIRE(reader
                  .ReadFrame(i, absl::MakeSpan(sent).subspan(i * kFrameElements,
                                                             kFrameElements))
                  .ok());
    }
    return sent;
  }
  PartReader Open() {
    return PartReader::Open(fs.OpenForRead("p").value(), "p").value();
  }
  std::vector<float> Buffer(const std::string& name) {
    std::vector<NamedBuffer> buffers;
    residual.Export(0, &buffers);
    for (const NamedBuffer& buffer : buffers) {
      if (buffer.first == name) return buffer.second;
    }
    return {};
  }

  FaultFileSystem fs;
  Residual residual;
};

double Largest(const std::vector<float>& values) {
  double largest = 0;
  for (float value : values) {
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  return largest;
}

TEST_CASE("an accepted update's error goes into the next one") {
  Sender sender;
  const std::vector<float> first = sender.Encode(1);
  sender.residual.Accepted();
  const std::vector<float> left = sender.Buffer("residual");
  REQUIRE(left.size() == kElements);
  CHECK(Largest(left) > 0.01);
  const std::vector<float> second = sender.Encode(1);
  CHECK((first != second));
  sender.residual.Accepted();
  const std::vector<float> end = sender.Buffer("residual");
  const std::vector<float> delta = Delta(1);
  std::vector<float> off(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    off[i] = first[i] + second[i] + end[i] - 2 * delta[i];
  }
  CHECK(Largest(off) < 1e-6);
}

TEST_CASE("an update that came too late changes nothing") {
  Sender sender;
  sender.Encode(1);
  sender.residual.Accepted();
  const std::vector<float> before = sender.Buffer("residual");
  const std::vector<float> late = sender.Encode(2);
  sender.residual.Late();
  CHECK((sender.Buffer("residual") == before));
  CHECK(sender.Buffer("residual_after").empty());
  CHECK((sender.Encode(2) == late));
}

TEST_CASE("what may have been sent is not sent twice") {
  Sender sender;
  sender.Encode(1);
  sender.residual.Accepted();
  sender.residual.Lost();
  CHECK_FALSE(sender.Buffer("residual").empty());
  sender.Encode(2);
  CHECK(sender.residual.pending());
  sender.residual.Lost();
  CHECK_FALSE(sender.residual.pending());
  CHECK(sender.Buffer("residual").empty());
}

TEST_CASE("a refused update comes back whole") {
  Sender sender;
  sender.Encode(1);
  sender.residual.Accepted();
  const std::vector<float> before = sender.Buffer("residual");
  sender.Encode(2);
  REQUIRE(sender.residual.Refused(sender.Open()).ok());
  const std::vector<float> after = sender.Buffer("residual");
  const std::vector<float> delta = Delta(2);
  std::vector<float> off(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    off[i] = after[i] - before[i] - delta[i];
  }
  CHECK(Largest(off) < 1e-6);
}

TEST_CASE(
    "a refused update that cannot be read leaves the residual as it was") {
  Sender sender;
  sender.Encode(1);
  sender.residual.Accepted();
  const std::vector<float> before = sender.Buffer("residual");
  sender.Encode(2);
  std::string bytes = ReadFile(&sender.fs, "p").value();
  bytes.back() ^= 1;
  REQUIRE(WriteFileAtomic(&sender.fs, "p", bytes).ok());
  CHECK(sender.residual.Refused(sender.Open()).code() ==
        absl::StatusCode::kDataLoss);
  CHECK((sender.Buffer("residual") == before));
  CHECK(sender.Buffer("residual_after").empty());
}

TEST_CASE("a checkpoint between encoding and verdict goes on bit for bit") {
  Sender whole;
  whole.Encode(1);
  whole.residual.Accepted();
  whole.Encode(2);
  Sender restored;
  std::vector<NamedBuffer> buffers;
  whole.residual.Export(0, &buffers);
  CHECK(buffers.size() == 2);
  for (const NamedBuffer& buffer : buffers) {
    CHECK(restored.residual.Import(0, buffer));
  }
  CHECK_FALSE(restored.residual.Import(0, {"local", {}}));
  whole.residual.Accepted();
  restored.residual.Accepted();
  CHECK((whole.Encode(3) == restored.Encode(3)));
}

TEST_CASE("without error feedback nothing is kept; what was left is sent") {
  Sender sender;
  sender.Encode(1, Codec::kFp16, false);
  sender.residual.Accepted();
  CHECK(sender.Buffer("residual").empty());
  sender.Encode(1);
  sender.residual.Accepted();
  const std::vector<float> left = sender.Buffer("residual");
  // The run's settings change.
  const std::vector<float> sent = sender.Encode(2, Codec::kFp32, false);
  const std::vector<float> delta = Delta(2);
  bool same = true;
  for (int64_t i = 0; i < kElements; ++i) {
    same = same && sent[i] == delta[i] + left[i];
  }
  CHECK(same);
  sender.residual.Accepted();
  CHECK((sender.Encode(3, Codec::kFp32, false) == Delta(3)));
  CHECK(sender.Buffer("residual").empty());
}

}  // namespace
}  // namespace diloco
