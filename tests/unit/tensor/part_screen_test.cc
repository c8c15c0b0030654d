// The checks of an update while its bytes arrive.
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/codec/counter_random.h"
#include "common/tensor/layout.h"
#include "common/tensor/part_file.h"
#include "common/tensor/scan.h"
#include "tests/support/catch.h"
#include "tests/unit/tensor/part_test_util.h"

namespace diloco {
namespace {

constexpr int64_t kElements = kFrameElements + 700;

PartScreen::Expect Expected(Codec codec = Codec::kFp16,
                            int64_t elements = kElements) {
  return {codec, /*fragment=*/3, elements};
}

absl::Status FeedAll(PartScreen* screen, absl::string_view bytes,
                     size_t piece) {
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const absl::Status status = screen->Feed(bytes.substr(at, piece));
    if (!status.ok()) return status;
  }
  return screen->Finish();
}

TEST_CASE("a good update passes; its figures do not depend on the pieces") {
  const std::vector<float> values = Values(kElements);
  for (Codec codec : kCodecs) {
    const std::string bytes = PartBytes(codec, values);
    const std::vector<float> decoded = RoundedAsPart(codec, values);
    // The rounded values and a plain sum over them.
    float max_abs = 0;
    long double sum = 0;
    for (float value : decoded) {
      max_abs = std::max(max_abs, std::fabs(value));
      sum += static_cast<long double>(value) * value;
    }
    double first_sum = 0;
    for (size_t piece :
         {size_t{1} << 20, bytes.size(), size_t{4096}, size_t{61}}) {
      PartScreen screen(Expected(codec));
      REQUIRE(FeedAll(&screen, bytes, piece).ok());
      CHECK(screen.max_abs() == max_abs);
      CHECK(std::fabs(screen.sum_squares() - static_cast<double>(sum)) <
            1e-12 * static_cast<double>(sum));
      if (first_sum == 0) first_sum = screen.sum_squares();
      CHECK(screen.sum_squares() == first_sum);
    }
  }
}

TEST_CASE("a truncated upload says how many bytes are missing") {
  const std::string bytes = PartBytes(Codec::kFp16, Values(kElements));
  for (size_t size : {size_t{0}, size_t{63}, size_t{64}, size_t{100},
                      bytes.size() / 2, bytes.size() - 1}) {
    PartScreen screen(Expected());
    REQUIRE(screen.Feed(absl::string_view(bytes).substr(0, size)).ok());
    const absl::Status status = screen.Finish();
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(absl::StrContains(
        status.message(),
        absl::StrCat(bytes.size() - size, " of ", bytes.size())));
    // And goes on from there.
    REQUIRE(screen.Feed(absl::string_view(bytes).substr(size)).ok());
    CHECK(screen.Finish().ok());
  }
}

TEST_CASE("C6.6 NaN or infinity is refused with its element") {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(),
                    std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    for (int64_t at :
         {int64_t{0}, kFrameElements - 1, kFrameElements, kElements - 1}) {
      std::vector<float> values = Values(kElements);
      values[at] = bad;
      const std::string bytes = PartBytes(Codec::kFp16, values);
      PartScreen screen(Expected());
      const absl::Status status = FeedAll(&screen, bytes, 10000);
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(absl::StrContains(status.message(), absl::StrCat("element ", at)));
      // Sticky.
      CHECK(screen.Feed("x") == status);
      CHECK(screen.Finish() == status);
    }
  }
}

TEST_CASE("C6.6 a finite value beyond what the fold takes is refused") {
  const Layout layout =
      BuildLayout({{"a.weight", {kFrameElements, 1}}, {"b.weight", {700}}}, 1)
          .value();
  PartScreen::Expect expect = {Codec::kFp32, /*fragment=*/0, kElements};
  expect.max_magnitude = 0x1p96f;
  expect.layout = &layout;
  std::vector<float> values = Values(kElements);
  values[kFrameElements + 17] = -0x1p96f;
  PartScreen good(expect);
  CHECK(FeedAll(&good, PartBytes(Codec::kFp32, values, 0), 10000).ok());
  values[kFrameElements + 17] = -1e38f;
  PartScreen screen(expect);
  const absl::Status status =
      FeedAll(&screen, PartBytes(Codec::kFp32, values, 0), 10000);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  INFO(status);
  CHECK(absl::StrContains(status.message(),
                          "b.weight[17] (element 262161 of fragment 0) is "
                          "-1e+38"));
}

TEST_CASE("C6.6 a scale that is no scale is refused with its tensor") {
  const Layout layout =
      BuildLayout({{"a.weight", {kFrameElements, 1}}, {"b.weight", {700}}}, 1)
          .value();
  const int64_t elements = layout.elements;
  const auto refused = [&](Codec codec, size_t behind_prefix, uint64_t bits,
                           int width) {
    std::string bytes = PartBytes(codec, Values(elements), 0);
    const size_t frame = ParsePartPrefix(bytes)->frames[1].offset;
    PutLe(&bytes, frame + behind_prefix, bits, width);
    FixFrameChecksums(&bytes);
    PartScreen::Expect expect = {codec, /*fragment=*/0, elements};
    expect.layout = &layout;
    PartScreen screen(expect);
    const absl::Status status = FeedAll(&screen, bytes, 10000);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CHECK(absl::StrContains(refused(Codec::kInt8, 258, 0xbf80, 2),
                          "the scale of the block at b.weight[256] (element "
                          "262400 of fragment 0) is -1;"));
  CHECK(absl::StrContains(refused(Codec::kE3m0, 0, 0x7f800000, 4),
                          "b.weight[0] (element 262144 of fragment 0) is inf"));
  CHECK(absl::StrContains(refused(Codec::kInt8Buckets, 4 * 9, 0x7fc00000, 4),
                          "mean 9 of frame 1 of fragment 0 is nan"));
}

TEST_CASE(
    "C6.6 values of lossy codecs beyond what the fold takes are refused") {
  for (Codec codec : {Codec::kInt8, Codec::kInt8Buckets, Codec::kE3m0}) {
    std::vector<float> values = Values(kElements);
    PartScreen::Expect expect = Expected(codec);
    expect.max_magnitude = 0x1p96f;
    values[kFrameElements + 300] = 0x1p95f;
    PartScreen good(expect);
    CHECK(FeedAll(&good, PartBytes(codec, values), 10000).ok());
    values[kFrameElements + 300] = 0x1p97f;
    PartScreen screen(expect);
    const absl::Status status =
        FeedAll(&screen, PartBytes(codec, values), 10000);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), "element 262444"));
  }
}

// Random damage with right checksums, so that it reaches what lies behind them:
// whatever is let through has values that the fold can take.
TEST_CASE("C6.6 no mutation of an update gets a bad value through") {
  constexpr int kMutations = 4000;
  constexpr float kMax = 0x1p96f;
  counter_random::Key key = counter_random::MakeKey(1, 1);
  uint32_t drawn = 0;
  const auto draw = [&](size_t bound) {
    return counter_random::Bits(key, drawn++) % static_cast<uint32_t>(bound);
  };
  int passed = 0, refused = 0;
  for (Codec codec : kCodecs) {
    const int64_t elements = 700;
    const std::string whole = PartBytes(codec, Values(elements));
    const size_t prefix = PartPrefixBytes(elements);
    for (int i = 0; i < kMutations; ++i) {
      std::string bytes = whole;
      // Scales are few: half of the hits go to the beginning of the frame.
      for (uint32_t hits = 1 + draw(4); hits > 0; --hits) {
        const size_t span = draw(2) == 0 ? 8 : bytes.size() - prefix;
        const size_t at = draw(10) == 0 ? draw(prefix) : prefix + draw(span);
        bytes[at] = static_cast<char>(draw(256));
      }
      if (draw(10) == 0) bytes.resize(draw(bytes.size()));
      if (draw(20) == 0) bytes += bytes.substr(0, draw(100));
      if (bytes.size() >= prefix) {
        FixChecksums(&bytes, 1);
        FixFrameChecksums(&bytes);
      }
      PartScreen::Expect expect = Expected(codec, elements);
      expect.max_magnitude = kMax;
      PartScreen screen(expect);
      if (!FeedAll(&screen, bytes, 1 + draw(300)).ok()) {
        ++refused;
        continue;
      }
      ++passed;
      REQUIRE(bytes.size() == whole.size());
      std::vector<float> values(elements);
      Decode(codec, absl::MakeConstSpan(bytes).subspan(prefix),
             absl::MakeSpan(values));
      REQUIRE(FindBeyond(values, kMax) == -1);
      REQUIRE(screen.max_abs() <= kMax);
    }
  }
  // Neither is the exception.
  CHECK(passed > kMutations / 2);
  CHECK(refused > kMutations / 2);
}

TEST_CASE("C6.6 denormals and all zero pass") {
  std::vector<float> values(kElements, 0.0f);
  PartScreen zero(Expected());
  CHECK(FeedAll(&zero, PartBytes(Codec::kFp16, values), 5000).ok());
  CHECK(zero.max_abs() == 0);
  CHECK(zero.sum_squares() == 0);
  values.assign(kElements, 0x1p-24f);
  values[5] = -0x1p-24f;
  PartScreen denormal(Expected());
  CHECK(FeedAll(&denormal, PartBytes(Codec::kFp16, values), 5000).ok());
  CHECK(denormal.max_abs() == 0x1p-24f);
}

TEST_CASE("a damaged frame is DATA_LOSS naming the frame") {
  std::string bytes = PartBytes(Codec::kFp16, Values(kElements));
  bytes[bytes.size() - 10] ^= 4;
  PartScreen screen(Expected());
  const absl::Status status = FeedAll(&screen, bytes, 1 << 20);
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(status.message(), "frame 1"));
}

TEST_CASE("C6.6 another codec, fragment, size or more bytes are refused") {
  const std::string bytes = PartBytes(Codec::kFp16, Values(kElements));
  const auto mentions = [&](PartScreen::Expect expect, const char* what) {
    PartScreen screen(expect);
    const absl::Status status = FeedAll(&screen, bytes, 100);
    return status.code() == absl::StatusCode::kInvalidArgument &&
           absl::StrContains(status.message(), what);
  };
  CHECK(mentions(Expected(Codec::kFp32), "codec is fp16, expected fp32"));
  CHECK(mentions({Codec::kFp16, 0, kElements}, "fragment is 3, expected 0"));
  CHECK(mentions(Expected(Codec::kFp16, kElements + 256), "elements is"));
  PartScreen screen(Expected());
  const absl::Status status = FeedAll(&screen, bytes + "more", bytes.size());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(status.message(), "4 bytes behind its end"));
}

TEST_CASE("a part that does not begin at element 0 is refused") {
  FaultFileSystem fs;
  PartHeader header;
  header.codec = Codec::kFp16;
  header.fragment = 3;
  header.first_element = kFrameElements;
  REQUIRE(WritePart(&fs, "p", header, Values(kElements)).ok());
  PartScreen screen(Expected());
  const absl::Status status = screen.Feed(ReadFile(&fs, "p").value());
  CHECK(absl::StrContains(status.message(), "first_element"));
}

TEST_CASE("every flipped bit of a small upload is refused") {
  const std::string whole = PartBytes(Codec::kFp16, Values(20));
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    PartScreen screen(Expected(Codec::kFp16, 20));
    REQUIRE(!FeedAll(&screen, bytes, 7).ok());
  }
}

}  // namespace
}  // namespace diloco
