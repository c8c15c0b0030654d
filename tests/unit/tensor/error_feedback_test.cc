// Error feedback over rounds: nothing is lost, and what was refused comes back.
#include "common/tensor/error_feedback.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/tensor/codec.h"
#include "tests/support/catch.h"
#include "tests/unit/tensor/part_test_util.h"

namespace diloco {
namespace {

// One update: what is sent, and the residual after it.
std::vector<float> Send(Codec codec, std::vector<float> values,
                        std::vector<float>* residual) {
  AddResidual(*residual, absl::MakeSpan(values));
  std::string bytes(EncodedBytes(codec, values.size()), '\0');
  Encode(codec, values, absl::MakeSpan(&bytes[0], bytes.size()));
  std::vector<float> sent(values.size());
  Decode(codec, bytes, absl::MakeSpan(sent));
  KeepError(values, sent, absl::MakeSpan(*residual));
  return sent;
}

TEST_CASE("what was sent and the residual add up to everything") {
  const std::vector<float> delta = Values(1000);
  for (Codec codec : {Codec::kInt8, Codec::kInt8Buckets, Codec::kE3m0}) {
    INFO(CodecName(codec));
    std::vector<float> residual(delta.size(), 0.0f);
    std::vector<double> sent(delta.size(), 0.0);
    std::vector<double> plain(delta.size(), 0.0);
    constexpr int kRounds = 40;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<float> nothing(delta.size(), 0.0f);
      const std::vector<float> without = Send(codec, delta, &nothing);
      const std::vector<float> with = Send(codec, delta, &residual);
      for (size_t i = 0; i < delta.size(); ++i) {
        sent[i] += with[i];
        plain[i] += without[i];
      }
    }
    double worst = 0, worst_plain = 0;
    for (size_t i = 0; i < delta.size(); ++i) {
      const double all = kRounds * static_cast<double>(delta[i]);
      worst = std::max(worst, std::fabs(sent[i] + residual[i] - all));
      worst_plain = std::max(worst_plain, std::fabs(plain[i] - all));
    }
    // Rounding of the sums alone; without the residual the error grows.
    CHECK(worst < 1e-7);
    CHECK(worst_plain > 1e-4);
  }
}

TEST_CASE("a refused update's payload comes back") {
  const std::vector<float> delta = Values(300);
  std::vector<float> residual(delta.size(), 0.25f);
  const std::vector<float> sent = Send(Codec::kE3m0, delta, &residual);
  GiveBack(sent, absl::MakeSpan(residual));
  for (size_t i = 0; i < delta.size(); ++i) {
    REQUIRE(residual[i] == Approx(delta[i] + 0.25f).epsilon(1e-6));
  }
}

TEST_CASE("what is not finite does not stay in a residual") {
  std::vector<float> delta(512, 0.5f);
  delta[3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> residual(512, 0.125f);
  const std::vector<float> sent = Send(Codec::kInt8, delta, &residual);
  REQUIRE(std::isnan(sent[0]));
  GiveBack(sent, absl::MakeSpan(residual));
  for (size_t i = 0; i < 256; ++i) REQUIRE(residual[i] == 0);
  for (size_t i = 256; i < 512; ++i) REQUIRE(residual[i] == Approx(0.625));
}

}  // namespace
}  // namespace diloco
