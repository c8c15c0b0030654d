// The checks of an update while its bytes arrive.
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/layout.h"
#include "common/tensor/part_file.h"
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
  for (Codec codec : {Codec::kFp32, Codec::kFp16}) {
    const std::string bytes = PartBytes(codec, values);
    // The rounded values and a plain sum over them.
    std::vector<float> decoded(values.size());
    std::string encoded(EncodedBytes(codec, values.size()), '\0');
    Encode(codec, values, absl::MakeSpan(&encoded[0], encoded.size()));
    Decode(codec, encoded, absl::MakeSpan(decoded));
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
