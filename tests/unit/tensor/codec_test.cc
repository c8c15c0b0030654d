// The 16-bit formats against hand-made vectors, against each other on every
// path that this CPU has, and, where DILOCO_FIXTURES names the folder, against
// the reference vectors.
#include "common/tensor/codec.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/support/catch.h"

namespace diloco {
namespace {

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

struct Vector {
  uint32_t fp32;
  uint16_t fp16;
  uint16_t bf16;
};

// Bit patterns: value, fp16, bf16.
constexpr Vector kVectors[] = {
    {0x00000000, 0x0000, 0x0000},  // 0
    {0x80000000, 0x8000, 0x8000},  // -0
    {0x3f800000, 0x3c00, 0x3f80},  // 1
    {0xbf800000, 0xbc00, 0xbf80},
    {0x3eaaaaab, 0x3555, 0x3eab},  // 1/3
    {0x40490fdb, 0x4248, 0x4049},  // pi
    // Ties to even around 1, and just beside them.
    {0x3f801000, 0x3c00, 0x3f80},
    {0x3f803000, 0x3c02, 0x3f80},
    {0x3f801001, 0x3c01, 0x3f80},
    {0x3f802fff, 0x3c01, 0x3f80},
    {0x3f808000, 0x3c04, 0x3f80},
    {0x3f818000, 0x3c0c, 0x3f82},
    {0x3f808001, 0x3c04, 0x3f81},
    {0x3f817fff, 0x3c0c, 0x3f81},
    // The largest fp16, and the tie between it and infinity.
    {0x477fe000, 0x7bff, 0x4780},
    {0x477fefff, 0x7bff, 0x4780},
    {0x477ff000, 0x7c00, 0x4780},
    {0xc77ff000, 0xfc00, 0xc780},
    {0x47800000, 0x7c00, 0x4780},
    // The smallest normal fp16, the largest subnormal, the smallest one.
    {0x38800000, 0x0400, 0x3880},
    {0x387fc000, 0x03ff, 0x3880},
    {0x387fe000, 0x0400, 0x3880},  // The tie between them.
    {0x33800000, 0x0001, 0x3380},
    {0xb3800000, 0x8001, 0xb380},
    {0x33000000, 0x0000, 0x3300},  // The tie with 0.
    {0x33000001, 0x0001, 0x3300},
    {0x33c00000, 0x0002, 0x33c0},  // The tie between 1 and 2 units.
    {0x34200000, 0x0002, 0x3420},  // 2.5 units.
    {0x32ffffff, 0x0000, 0x3300},
    // float32 subnormals; the largest values; infinities.
    {0x00000001, 0x0000, 0x0000},
    {0x00008000, 0x0000, 0x0000},
    {0x00018000, 0x0000, 0x0002},
    {0x807fffff, 0x8000, 0x8080},
    {0x7f7fffff, 0x7c00, 0x7f80},
    {0x7f7f7fff, 0x7c00, 0x7f7f},
    {0x7f800000, 0x7c00, 0x7f80},
    {0xff800000, 0xfc00, 0xff80},
};

std::vector<CpuPath> Paths() {
  std::vector<CpuPath> paths;
  for (CpuPath path : kCpuPaths) {
    if (CpuHasPath(path)) {
      paths.push_back(path);
    } else {
      WARN("this CPU lacks " << CpuPathName(path) << ": not tested here");
    }
  }
  return paths;
}

bool IsNan16(uint16_t bits, uint16_t infinity) {
  return (bits & 0x7fff) > infinity;
}

TEST_CASE("float32 is rounded to fp16 and bf16: ties, overflow, subnormals") {
  for (const Vector& vector : kVectors) {
    INFO(std::hex << vector.fp32);
    CHECK(Fp16FromFloat(FromBits(vector.fp32)) == vector.fp16);
    CHECK(Bf16FromFloat(FromBits(vector.fp32)) == vector.bf16);
  }
}

TEST_CASE("any NaN stays a NaN") {
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0xff800001u,
                        0xffffffffu, 0x7f80ffffu}) {
    CHECK(IsNan16(Fp16FromFloat(FromBits(bits)), 0x7c00));
    CHECK(IsNan16(Bf16FromFloat(FromBits(bits)), 0x7f80));
  }
  CHECK(std::isnan(FloatFromFp16(0x7c01)));
  CHECK(std::isnan(FloatFromBf16(0xff81)));
}

TEST_CASE("every fp16 pattern decodes to the value it stands for") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t exponent = (bits >> 10) & 31;
    const double fraction = bits & 0x3ff;
    const float value = FloatFromFp16(static_cast<uint16_t>(bits));
    if (exponent == 31) {
      REQUIRE(std::isnan(value) == (fraction != 0));
      REQUIRE((fraction != 0 || std::isinf(value)));
    } else {
      const double expected =
          exponent == 0
              ? std::ldexp(fraction, -24)
              : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
      REQUIRE(std::fabs(value) == expected);
      REQUIRE(Fp16FromFloat(value) == bits);
    }
    REQUIRE(std::signbit(value) == (bits >= 0x8000));
  }
}

TEST_CASE("every finite bf16 pattern survives a round trip") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FloatFromBf16(static_cast<uint16_t>(bits));
    REQUIRE(Bits(value) == bits << 16);
    if (!std::isnan(value)) REQUIRE(Bf16FromFloat(value) == bits);
  }
}

TEST_CASE("bulk loops give the scalar bits on every path, at any alignment") {
  // All fp16 patterns as input, and float32 patterns around every rounding.
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (uint32_t low :
         {0x0000, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff}) {
      values.push_back(FromBits(high << 16 | low));
    }
  }
  values.resize(values.size() - 5);  // No multiple of a vector.
  for (CpuPath path : Paths()) {
    INFO(CpuPathName(path));
    for (Codec codec : {Codec::kFp32, Codec::kFp16, Codec::kBf16}) {
      const size_t bytes = EncodedBytes(codec, values.size());
      std::string buffer(bytes + 1, '\0');
      const absl::Span<char> encoded = absl::MakeSpan(&buffer[1], bytes);
      EncodeOnPath(path, codec, values, encoded);
      std::vector<float> decoded(values.size());
      DecodeOnPath(path, codec, encoded, absl::MakeSpan(decoded));
      size_t wrong = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        float expected = values[i];
        if (codec == Codec::kFp16) {
          expected = FloatFromFp16(Fp16FromFloat(values[i]));
        } else if (codec == Codec::kBf16) {
          expected = FloatFromBf16(Bf16FromFloat(values[i]));
        }
        if (Bits(decoded[i]) != Bits(expected)) ++wrong;
      }
      CHECK(wrong == 0);
    }
    // Signalling NaNs of fp16, which no encoder makes.
    std::vector<uint16_t> patterns(0x10000);
    for (size_t i = 0; i < patterns.size(); ++i) {
      patterns[i] = static_cast<uint16_t>(i);
    }
    std::vector<float> decoded(patterns.size());
    DecodeOnPath(
        path, Codec::kFp16,
        absl::MakeConstSpan(reinterpret_cast<const char*>(patterns.data()),
                            2 * patterns.size()),
        absl::MakeSpan(decoded));
    size_t wrong = 0;
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (Bits(decoded[i]) != Bits(FloatFromFp16(patterns[i]))) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("codec names and ids are fixed, unknown ones are refused") {
  CHECK(static_cast<uint32_t>(Codec::kFp32) == 1);
  CHECK(static_cast<uint32_t>(Codec::kFp16) == 2);
  CHECK(static_cast<uint32_t>(Codec::kBf16) == 3);
  CHECK(static_cast<uint32_t>(Codec::kInt8) == 4);
  CHECK(static_cast<uint32_t>(Codec::kInt8Buckets) == 5);
  CHECK(static_cast<uint32_t>(Codec::kE3m0) == 6);
  for (Codec codec : kCodecs) {
    CHECK(ParseCodec(CodecName(codec)).value() == codec);
    CHECK(CodecFromId(static_cast<uint32_t>(codec)).value() == codec);
  }
  CHECK(ParseCodec("bf16").value() == Codec::kBf16);
  CHECK(CodecFromId(2).value() == Codec::kFp16);
  CHECK(ParseCodec("fp8").status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(!CodecFromId(0).ok());
  CHECK(!CodecFromId(99).ok());
}

TEST_CASE("reference vectors of half precision") {
  const char* folder = std::getenv("DILOCO_FIXTURES");
  if (folder == nullptr) {
    WARN("DILOCO_FIXTURES is not set: reference vectors not tested here");
    return;
  }
  std::ifstream file(std::string(folder) + "/half_vectors.json");
  REQUIRE(file.good());
  const auto json = nlohmann::json::parse(file);
  const auto hex = [](const nlohmann::json& text) {
    return static_cast<uint32_t>(
        std::stoul(text.get<std::string>(), nullptr, 16));
  };
  int rows = 0;
  for (const auto& group : json.at("encode")) {
    for (const auto& row : group.at("rows")) {
      const float value = FromBits(hex(row[0]));
      INFO(row.dump());
      if (row[1] == "nan") {
        CHECK(IsNan16(Fp16FromFloat(value), 0x7c00));
        CHECK(IsNan16(Bf16FromFloat(value), 0x7f80));
      } else {
        CHECK(Fp16FromFloat(value) == hex(row[1]));
        CHECK(Bf16FromFloat(value) == hex(row[2]));
      }
      ++rows;
    }
  }
  for (const char* codec : {"fp16", "bf16"}) {
    for (const auto& row : json.at("decode").at(codec)) {
      INFO(codec << " " << row.dump());
      const auto bits = static_cast<uint16_t>(hex(row[0]));
      const float value =
          codec[0] == 'f' ? FloatFromFp16(bits) : FloatFromBf16(bits);
      if (row[1] == "nan") {
        CHECK(std::isnan(value));
      } else {
        CHECK(Bits(value) == hex(row[1]));
      }
      ++rows;
    }
  }
  CHECK(rows > 0);
}

}  // namespace
}  // namespace diloco
