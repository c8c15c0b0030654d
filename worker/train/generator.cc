// Implements generator.h.
#include "worker/train/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/train/decoder.h"
#include "worker/train/flat_params.h"
#include "worker/train/torch_guard.h"

namespace diloco {
namespace {

// SplitMix64: the same draws on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  double Uniform() {  // In [0, 1).
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return static_cast<double>(x >> 11) * 0x1.0p-53;
  }

 private:
  uint64_t state_;
};

int32_t PickToken(absl::Span<const float> logits, const SampleOptions& options,
                  Random& random) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) {
    return static_cast<int32_t>(best - logits.begin());
  }
  std::vector<double> weight(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    weight[i] = std::exp((static_cast<double>(logits[i]) - *best) /
                         options.temperature);
  }
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return weight[a] > weight[b]; });
  size_t kept = 0;
  double mass = 0;
  while (kept < order.size() && (kept == 0 || mass < options.top_p * total)) {
    mass += weight[order[kept++]];
  }
  double left = random.Uniform() * mass;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= weight[order[i]];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

class TorchGenerator final : public Generator {
 public:
  TorchGenerator(const ModelConfig& model, const Layout& layout,
                 absl::Span<const float> params)
      : model_(model),
        layout_(layout),
        params_(layout_, at::kCPU, /*with_grads=*/false),
        decoder_(model, params_) {
    std::copy(params.begin(), params.end(),
              params_.values().mutable_data_ptr<float>());
  }

  absl::StatusOr<std::vector<int32_t>> Generate(
      absl::Span<const int32_t> prompt, const SampleOptions& options) override {
    RETURN_IF_ERROR(Check(prompt, options));
    return Guarded("generation", [&]() -> absl::StatusOr<std::vector<int32_t>> {
      return Run(prompt, options);
    });
  }

 private:
  absl::Status Check(absl::Span<const int32_t> prompt,
                     const SampleOptions& options) const {
    if (prompt.empty())
      return absl::InvalidArgumentError("the prompt is empty");
    for (const int32_t id : prompt) {
      if (id >= 0 && id < model_.vocab) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("prompt token id ", id, ", the model's vocabulary has ",
                       model_.vocab));
    }
    if (!(options.temperature >= 0) || !(options.top_p > 0) ||
        !(options.top_p <= 1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "temperature ", options.temperature, " and top_p ", options.top_p,
          "; temperature is 0 or more, top_p above 0 and at most 1"));
    }
    return absl::OkStatus();
  }

  std::vector<int32_t> Run(absl::Span<const int32_t> prompt,
                           const SampleOptions& options) {
    std::vector<int32_t> ids(prompt.begin(), prompt.end());
    Random random(options.seed);
    at::Tensor logits_V = Restart(ids);
    while (ids.size() < prompt.size() + options.tokens) {
      const int32_t next =
          PickToken(absl::MakeConstSpan(logits_V.const_data_ptr<float>(),
                                        static_cast<size_t>(logits_V.numel())),
                    options, random);
      if (options.stop_id == next) break;
      ids.push_back(next);
      logits_V = decoder_.length() < model_.max_positions
                     ? decoder_.Append({next})
                     : Restart(ids);
    }
    ids.erase(ids.begin(), ids.begin() + static_cast<int64_t>(prompt.size()));
    return ids;
  }

  // Feeds the end of `ids`: all of it while it fits, otherwise half of the
  // positions, so that there is room to go on.
  at::Tensor Restart(absl::Span<const int32_t> ids) {
    decoder_.Reset();
    const size_t most = static_cast<size_t>(model_.max_positions);
    const size_t kept = ids.size() < most ? ids.size() : (most + 1) / 2;
    return decoder_.Append(ids.subspan(ids.size() - kept));
  }

  const ModelConfig model_;
  const Layout layout_;
  const FlatParams params_;
  Decoder decoder_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Generator>> MakeGenerator(
    const ModelConfig& model, const Layout& layout,
    absl::Span<const float> params, int threads) {
  if (static_cast<int64_t>(params.size()) != layout.elements) {
    return absl::InvalidArgumentError(absl::StrCat(
        params.size(), " parameter values for a layout of ", layout.elements));
  }
  return Guarded("generator",
                 [&]() -> absl::StatusOr<std::unique_ptr<Generator>> {
                   at::set_num_threads(std::max(threads, 1));
                   return std::unique_ptr<Generator>(
                       std::make_unique<TorchGenerator>(model, layout, params));
                 });
}

}  // namespace diloco
