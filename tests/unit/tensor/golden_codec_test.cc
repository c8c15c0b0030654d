// The bits of the codecs with scales: the same on every path of this CPU, and,
// as unit_tensor_o0 compiles this file and the kernels without optimisation, at
// every level of it.
#include "common/io/digest.h"
#include "tests/support/catch.h"
#include "tests/unit/tensor/codec_test_util.h"

namespace diloco {
namespace {

std::string BytesDigest(const std::string& bytes) {
  return BlockDigest(bytes).ToHex().substr(0, 16);
}

std::string ValuesDigest(const std::vector<float>& values) {
  return BlockDigest(
             absl::string_view(reinterpret_cast<const char*>(values.data()),
                               4 * values.size()))
      .ToHex()
      .substr(0, 16);
}

TEST_CASE("every path gives the same bits, which do not change") {
  // A run with a part of a block, denormals and a block of zeros in it.
  std::vector<float> values = Bells((1 << 16) + 77);
  for (size_t i = 512; i < 768; ++i) values[i] = 0;
  for (size_t i = 1024; i < 1056; ++i) values[i] *= 0x1p-120f;
  const struct {
    Codec codec;
    bool stochastic;
    const char* encoded;
    const char* decoded;
  } cases[] = {
      {Codec::kInt8, false, "2f62f19376f0f141", "5a77cd9ea6fc18b7"},
      {Codec::kInt8, true, "9cc423d11b502579", "61fd69b16bcc780b"},
      {Codec::kInt8Buckets, false, "76f2c585e8955833", "4d5dad19d3c93bcd"},
      {Codec::kE3m0, false, "7ebc4d7f7b285729", "fff7233489378160"},
      {Codec::kE3m0, true, "e7c1db6c57cd9069", "a7caeee016352c03"},
  };
  for (CpuPath path : kCpuPaths) {
    if (!CpuHasPath(path)) {
      WARN("this CPU lacks " << CpuPathName(path) << ": not tested here");
      continue;
    }
    for (const auto& c : cases) {
      INFO(CpuPathName(path)
           << " " << CodecName(c.codec) << " stochastic " << c.stochastic);
      const std::string bytes =
          Encoded(c.codec, values, {c.stochastic, 11, 12}, path);
      CHECK(BytesDigest(bytes) == c.encoded);
      const std::vector<float> decoded =
          Decoded(c.codec, bytes, values.size(), path);
      CHECK(ValuesDigest(decoded) == c.decoded);
      // At any alignment, and in ranges.
      std::string shifted = "x" + bytes;
      std::vector<float> again(values.size());
      DecodeOnPath(path, c.codec, absl::MakeConstSpan(shifted).subspan(1),
                   absl::MakeSpan(again));
      CHECK((again == decoded));
      for (size_t first = 0; first < again.size(); first += 1024) {
        const absl::Span<float> range =
            absl::MakeSpan(again).subspan(first, 1024);
        for (float& value : range) value = -1;
        DecodeRangeOnPath(path, c.codec, bytes, values.size(), first, range);
      }
      CHECK((again == decoded));
    }
  }
}

}  // namespace
}  // namespace diloco
