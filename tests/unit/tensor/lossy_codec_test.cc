// The codecs with scales: int8, int8 with bucket means, E3M0. Formulas by hand,
// and what they do to odd values.
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "common/tensor/codec.h"
#include "common/tensor/codec/counter_random.h"
#include "common/tensor/codec/int8_buckets.h"
#include "tests/support/catch.h"
#include "tests/unit/tensor/codec_test_util.h"
#include "tests/unit/tensor/part_test_util.h"

namespace diloco {
namespace {

constexpr Codec kLossy[] = {Codec::kInt8, Codec::kInt8Buckets, Codec::kE3m0};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RoundTrip(Codec codec, const std::vector<float>& values,
                             const Rounding& rounding = {}) {
  return Decoded(codec, Encoded(codec, values, rounding), values.size());
}

float MaxAbs(const std::vector<float>& values, size_t first) {
  float max = 0;
  for (size_t i = first; i < std::min(values.size(), first + 256); ++i) {
    max = std::max(max, std::fabs(values[i]));
  }
  return max;
}

TEST_CASE("sizes: int8 at least 3.95 times, E3M0 7.7 times smaller than fp32") {
  CHECK(EncodedBytes(Codec::kInt8, 256) == 258);
  CHECK(EncodedBytes(Codec::kInt8, 257) == 261);
  CHECK(EncodedBytes(Codec::kE3m0, 256) == 132);
  CHECK(EncodedBytes(Codec::kE3m0, 257) == 137);
  CHECK(EncodedBytes(Codec::kE3m0, 259) == 138);
  CHECK(EncodedBytes(Codec::kInt8Buckets, 1000) == 2024);
  for (Codec codec : kLossy) CHECK(EncodedBytes(codec, 0) == 0);
  // Part files with everything in them, from a small model on.
  for (int64_t elements : {int64_t{5'000'192}, int64_t{100'000'000}}) {
    const auto times = [&](Codec codec) {
      return static_cast<double>(PartFileBytes(Codec::kFp32, elements)) /
             static_cast<double>(PartFileBytes(codec, elements));
    };
    CHECK(times(Codec::kInt8) >= 3.95);
    CHECK(times(Codec::kInt8Buckets) >= 3.95);
    CHECK(times(Codec::kE3m0) >= 7.7);
  }
}

TEST_CASE("int8: half a step of the block's scale at most") {
  for (size_t n : {size_t{1}, size_t{255}, size_t{256}, size_t{70001}}) {
    const std::vector<float> values = Bells(n);
    const std::vector<float> decoded = RoundTrip(Codec::kInt8, values);
    size_t wrong = 0;
    for (size_t i = 0; i < n; ++i) {
      // The scale is rounded up to 8 bits.
      const float scale = MaxAbs(values, i / 256 * 256) / 127 * (1 + 0x1p-7f);
      if (!(std::fabs(decoded[i] - values[i]) <= scale / 2)) ++wrong;
    }
    CHECK(wrong == 0);
  }
  // By hand: scale 2^-7 exactly, ties to even.
  std::vector<float> values(256, 0.0f);
  values[0] = 127 * 0x1p-7f;
  values[1] = 2.5f * 0x1p-7f;
  values[2] = -3.5f * 0x1p-7f;
  values[3] = 0.5f * 0x1p-7f;
  values[4] = -0.51f * 0x1p-7f;
  const std::string bytes = Encoded(Codec::kInt8, values);
  CHECK((bytes.substr(0, 8) ==
         std::string("\x00\x3c\x7f\x02\xfc\x00\xff\x00", 8)));
  CHECK(RoundTrip(Codec::kInt8, values)[2] == -4 * 0x1p-7f);
}

TEST_CASE("E3M0: thresholds half way in logarithm, eight levels") {
  // All values within 2^-100 of the largest: levels by hand.
  std::vector<float> values(256, 0.0f);
  values[0] = -3.0f;  // The scale.
  values[1] = 3.0f * 0.7072f;
  values[2] = 3.0f * 0.7070f;
  values[3] = -3.0f * 0x1p-6f;
  values[4] = 3.0f * 0x1p-6f * 0.7072f;
  values[5] = -3.0f * 0x1p-6f * 0.7070f;
  values[6] = 1.5f;
  values[130] = 0.75f;  // In the high half of byte 2.
  const std::vector<float> decoded = RoundTrip(Codec::kE3m0, values);
  CHECK(decoded[0] == -3.0f);
  CHECK(decoded[1] == 3.0f);
  CHECK(decoded[2] == 1.5f);
  CHECK(decoded[3] == -3.0f * 0x1p-6f);
  CHECK(decoded[4] == 3.0f * 0x1p-6f);
  CHECK(decoded[5] == 0.0f);
  CHECK(!std::signbit(decoded[5]));
  CHECK(decoded[6] == 1.5f);
  CHECK(decoded[130] == 0.75f);
  const std::string bytes = Encoded(Codec::kE3m0, values);
  CHECK((bytes.substr(0, 8) ==
         std::string("\x00\x00\x40\x40\x0f\x07\x56\x09", 8)));
  // Everything within a factor of sqrt(2), or zero.
  const std::vector<float> bells = Bells(70001);
  const std::vector<float> back = RoundTrip(Codec::kE3m0, bells);
  size_t wrong = 0;
  for (size_t i = 0; i < bells.size(); ++i) {
    const float scale = MaxAbs(bells, i / 256 * 256);
    const float ratio = back[i] / bells[i];
    const bool zero = back[i] == 0 && std::fabs(bells[i]) <= 0.011049f * scale;
    if (!zero && !(ratio > 0.70710f && ratio < 1.41422f)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("int8 with bucket means: the published vector") {
  const std::vector<float> x = {-1, -0.5, 0, 0.25, 0.5, 1, 2, -2.25};
  std::vector<uint8_t> codes(x.size());
  for (CpuPath path : kCpuPaths) {
    if (!CpuHasPath(path)) continue;
    std::vector<float> four(4);
    const float scale = int8_buckets_codec::Quantise(
        path, x, absl::MakeSpan(codes), absl::MakeSpan(four));
    CHECK(scale == Approx(1.9330306).epsilon(1e-7));
    CHECK(codes == std::vector<uint8_t>{1, 2, 2, 2, 2, 3, 3, 1});
    CHECK(four == std::vector<float>{0, -1.625, 0.0625, 1.5});
    std::vector<float> all(256);
    CHECK(int8_buckets_codec::Quantise(path, x, absl::MakeSpan(codes),
                                       absl::MakeSpan(all)) ==
          Approx(0.0302036).epsilon(1e-5));
    CHECK(codes == std::vector<uint8_t>{95, 111, 128, 136, 145, 161, 194, 54});
  }
  // Every bucket has one member, so nothing is lost.
  CHECK(RoundTrip(Codec::kInt8Buckets, x) == x);
}

TEST_CASE("int8 with bucket means: error of normal values, sums are kept") {
  std::vector<float> values(1 << 18);
  const counter_random::Key key = counter_random::MakeKey(5, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    float sum = -6;  // Twelve uniform values: nearly normal, deviation 1.
    for (uint32_t k = 0; k < 12; ++k) {
      const auto at = static_cast<uint32_t>(12 * i + k);
      sum += static_cast<float>(counter_random::Bits(key, at) >> 8) * 0x1p-24f;
    }
    values[i] = sum;
  }
  const std::vector<float> decoded = RoundTrip(Codec::kInt8Buckets, values);
  double squares = 0, difference = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double d = static_cast<double>(decoded[i]) - values[i];
    squares += d * d;
    difference += d;
  }
  // The limit of hivemind's tests; more than 1e-5 shows that it does compress.
  CHECK(squares / static_cast<double>(values.size()) < 8e-4);
  CHECK(squares / static_cast<double>(values.size()) > 1e-5);
  CHECK(std::fabs(difference) / static_cast<double>(values.size()) < 1e-7);
  const std::vector<float> same(1000, 0.125f);
  CHECK(RoundTrip(Codec::kInt8Buckets, same) == same);
  CHECK(RoundTrip(Codec::kInt8Buckets, {3.5f}) == std::vector<float>{3.5f});
}

TEST_CASE("zero stays zero, tiny blocks become zero, large ones survive") {
  for (Codec codec : kLossy) {
    INFO(CodecName(codec));
    const std::vector<float> zero(700, 0.0f);
    CHECK(RoundTrip(codec, zero) == zero);
    for (float tiny : {0x1p-149f, 0x1p-126f, 0x1.fffffep-101f}) {
      for (float value : RoundTrip(codec, std::vector<float>(700, tiny))) {
        REQUIRE(std::fabs(value) <= tiny);
      }
    }
    for (float value : {0x1p-100f, -0x1p-64f, 0x1p96f, -0x1p119f}) {
      // 127 steps of a scale that is rounded up to 8 bits.
      const std::vector<float> values(300, value);
      for (float back : RoundTrip(codec, values)) {
        REQUIRE(back / value == Approx(1).epsilon(0.005));
      }
      CHECK(!FindBadScale(codec, Encoded(codec, values), 300).has_value());
    }
  }
}

TEST_CASE("C6.6 NaN, infinity and huge values make their block NaN") {
  for (Codec codec : kLossy) {
    INFO(CodecName(codec));
    for (float bad : {kNan, -kNan, kInfinity, -kInfinity, 0x1p120f}) {
      for (size_t at : {size_t{0}, size_t{255}, size_t{300}, size_t{600}}) {
        std::vector<float> values = Bells(601);
        values[at] = bad;
        const std::string bytes = Encoded(codec, values);
        const std::vector<float> decoded = Decoded(codec, bytes, values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          const bool hit = codec == Codec::kInt8Buckets || i / 256 == at / 256;
          REQUIRE(std::isnan(decoded[i]) == hit);
        }
        const auto found = FindBadScale(codec, bytes, values.size());
        REQUIRE(found.has_value());
        CHECK(std::isnan(found->scale));
        CHECK(found->index ==
              (codec == Codec::kInt8Buckets ? 0 : at / 256 * 256));
      }
    }
  }
}

TEST_CASE("scales that no encoder writes are found") {
  const std::vector<float> values = Bells(600);
  const auto bad = [&](Codec codec, size_t at, uint32_t bits, size_t width) {
    std::string bytes = Encoded(codec, values);
    REQUIRE(!FindBadScale(codec, bytes, values.size()).has_value());
    PutLe(&bytes, at, bits, static_cast<int>(width));
    const auto found = FindBadScale(codec, bytes, values.size());
    return found.has_value() ? static_cast<int>(found->index) : -1;
  };
  for (uint32_t bits : {0xbf80u, 0x8000u, 0x7f80u, 0x7fc0u, 0x0001u, 0x7e80u}) {
    INFO(std::hex << bits);
    CHECK(bad(Codec::kInt8, 258, bits, 2) == 256);
  }
  for (uint32_t bits : {0xbf800000u, 0x80000000u, 0x7f800000u, 0x7fc00000u,
                        0xff800001u, 0x00000001u, 0x00800000u, 0x7f000000u}) {
    INFO(std::hex << bits);
    CHECK(bad(Codec::kE3m0, 2 * 132, bits, 4) == 512);
  }
  for (uint32_t bits : {0x7f800000u, 0x7fc00000u, 0xff800001u, 0xff000000u}) {
    INFO(std::hex << bits);
    CHECK(bad(Codec::kInt8Buckets, 4 * 17, bits, 4) == 17);
  }
  CHECK(bad(Codec::kInt8Buckets, 4 * 17, 0xbf800000, 4) == -1);
  for (Codec codec : {Codec::kFp32, Codec::kFp16, Codec::kBf16}) {
    const std::string ones(EncodedBytes(codec, 256), '\xff');
    CHECK(!FindBadScale(codec, ones, 256).has_value());
  }
}

TEST_CASE(
    "stochastic rounding: each value between its neighbours, mean right") {
  constexpr size_t kSeeds = 4096;
  for (Codec codec : {Codec::kInt8, Codec::kE3m0}) {
    INFO(CodecName(codec));
    std::vector<float> values = Bells(300, 3);
    values[0] = 2.5f;
    values[1] = 0;
    std::vector<double> sums(values.size());
    std::vector<float> lowest = values, highest = values;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const std::vector<float> decoded =
          RoundTrip(codec, values, {true, seed, 7});
      for (size_t i = 0; i < values.size(); ++i) {
        sums[i] += decoded[i];
        lowest[i] = std::min(lowest[i], decoded[i]);
        highest[i] = std::max(highest[i], decoded[i]);
      }
    }
    for (size_t i = 0; i < values.size(); ++i) {
      INFO(i << " " << values[i]);
      const float scale = MaxAbs(values, i / 256 * 256);
      const float step = codec == Codec::kInt8
                             ? scale / 127 * (1 + 0x1p-7f)
                             : std::max(scale * 0x1p-6f, std::fabs(values[i]));
      REQUIRE(highest[i] - lowest[i] <= step * 1.001f);
      // Five deviations of the mean of values that differ by one step at most.
      const double mean = sums[i] / kSeeds;
      REQUIRE(std::fabs(mean - values[i]) <=
              5 * 0.5 * step / std::sqrt(static_cast<double>(kSeeds)));
    }
    CHECK(sums[1] == 0);
  }
}

TEST_CASE("random bits depend on seed, stream and index alone") {
  const auto bits = [](uint64_t seed, uint64_t stream, uint32_t index) {
    return counter_random::Bits(counter_random::MakeKey(seed, stream), index);
  };
  // Part of what an update's bytes are: they must not change.
  CHECK(bits(0, 0, 0) == 0x4181dbf0);
  CHECK(bits(1, 2, 3) == 0x7030ac3d);
  std::map<uint32_t, int> seen;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (uint64_t stream = 0; stream < 8; ++stream) {
      for (uint32_t index = 0; index < 64; ++index) {
        ++seen[bits(seed, stream, index)];
      }
    }
  }
  CHECK(seen.size() >= 4096 - 2);
  // Each bit is set half the time.
  const counter_random::Key key = counter_random::MakeKey(9, 9);
  int ones[32] = {};
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    const uint32_t word = counter_random::Bits(key, i);
    for (int b = 0; b < 32; ++b) ones[b] += word >> b & 1;
  }
  for (int count : ones) CHECK(std::abs(count - (1 << 15)) < 5 * 128);
}

TEST_CASE("any bytes decode on every path alike, reading nothing outside") {
  std::string bytes(20000, '\0');
  const counter_random::Key key = counter_random::MakeKey(2, 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] =
        static_cast<char>(counter_random::Bits(key, static_cast<uint32_t>(i)));
  }
  for (Codec codec : kLossy) {
    const size_t n = 5000;
    const std::string run = bytes.substr(0, EncodedBytes(codec, n));
    const std::vector<float> first = Decoded(codec, run, n, kCpuPaths[0]);
    for (CpuPath path : kCpuPaths) {
      if (!CpuHasPath(path)) continue;
      const std::vector<float> values = Decoded(codec, run, n, path);
      size_t wrong = 0;
      for (size_t i = 0; i < n; ++i) {
        if (std::isnan(values[i]) && std::isnan(first[i])) continue;
        if (std::bit_cast<uint32_t>(values[i]) !=
            std::bit_cast<uint32_t>(first[i])) {
          ++wrong;
        }
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace
}  // namespace diloco
