// The written-out backward pass against finite differences, tensor by tensor.
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/train/small_model.h"
#include "worker/train/probe.h"

namespace diloco {
namespace {

using testing::LayoutOf;
using testing::Must;

double Objective(const ModelConfig& config, const Layout& layout,
                 const std::vector<float>& theta, const Batch& batch) {
  const ForwardProbe probe =
      Must(RunForwardProbe(config, layout, theta, batch));
  return probe.loss + probe.z_loss;
}

// Moves each tensor by a random sign per element and compares the change of the
// loss with what the gradient promises.
void CheckGradient(const ModelConfig& config) {
  const Layout layout = LayoutOf(config);
  const std::vector<float> theta = testing::RandomTheta(layout, 7);
  Batch batch = testing::RandomBatch(config, 3, 11);
  batch.counted.assign(3 * config.max_positions, 1);
  for (int64_t i = 0; i < config.max_positions; i += 3) batch.counted[i] = 0;
  const ForwardProbe probe =
      Must(RunForwardProbe(config, layout, theta, batch));
  std::mt19937 random(5);
  for (const TensorSpec& tensor : layout.tensors) {
    std::vector<float> up = theta;
    std::vector<float> down = theta;
    double promised = 0;
    const float by = 1e-3f;
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.elements; ++i) {
      // Mostly along the gradient, so that the change is far above rounding.
      const bool along = random() % 4 != 0;
      const float sign = (probe.grads[i] >= 0) == along ? 1.0f : -1.0f;
      up[i] += by * sign;
      down[i] -= by * sign;
      promised += (static_cast<double>(up[i]) - down[i]) * probe.grads[i];
    }
    const double seen = Objective(config, layout, up, batch) -
                        Objective(config, layout, down, batch);
    INFO(tensor.decl.name << " promised " << promised << " seen " << seen);
    REQUIRE(promised > 5e-5);
    REQUIRE(seen == Approx(promised).epsilon(0.01));
  }
}

TEST_CASE("gradient of a one-layer untied model") {
  ModelConfig config = testing::SmallConfig();
  config.layers = 1;
  CheckGradient(config);
}

TEST_CASE("gradient with tied embeddings") {
  ModelConfig config = testing::SmallConfig();
  config.tied = true;
  CheckGradient(config);
}

TEST_CASE("gradient with query and key norms and as many kv heads as heads") {
  ModelConfig config = testing::SmallConfig();
  config.qk_norm = true;
  config.kv_heads = config.heads;
  CheckGradient(config);
}

TEST_CASE("gradient with z-loss") {
  ModelConfig config = testing::SmallConfig();
  config.z_loss = 0.05;
  CheckGradient(config);
}

TEST_CASE("gradient with a head dimension other than hidden / heads") {
  ModelConfig config = testing::SmallConfig();
  config.head_dim = 12;
  CheckGradient(config);
}

TEST_CASE("z-loss is reported apart from the cross-entropy") {
  ModelConfig config = testing::SmallConfig();
  const Layout layout = LayoutOf(config);
  const std::vector<float> theta = testing::RandomTheta(layout, 7);
  const Batch batch = testing::RandomBatch(config, 3, 11);
  const ForwardProbe plain =
      Must(RunForwardProbe(config, layout, theta, batch));
  config.z_loss = 0.1;
  const ForwardProbe with = Must(RunForwardProbe(config, layout, theta, batch));
  REQUIRE(plain.loss == with.loss);
  REQUIRE(plain.z_loss == 0);
  REQUIRE(with.z_loss > 0);
}

TEST_CASE("a tied model's embedding gradient is the sum of both uses") {
  ModelConfig tied = testing::SmallConfig();
  tied.tied = true;
  ModelConfig untied = tied;
  untied.tied = false;
  const Layout tied_layout = LayoutOf(tied);
  const Layout untied_layout = LayoutOf(untied);
  const std::vector<float> theta = testing::RandomTheta(tied_layout, 3);
  std::vector<float> apart(untied_layout.elements);
  const auto copy = [&](const std::string& from, const std::string& to) {
    const TensorSpec& source = *tied_layout.Find(from);
    std::copy_n(theta.begin() + source.offset, source.elements,
                apart.begin() + untied_layout.Find(to)->offset);
  };
  for (const TensorSpec& tensor : tied_layout.tensors) {
    copy(tensor.decl.name, tensor.decl.name);
  }
  const std::string embedding = "model.embed_tokens.weight";
  copy(embedding, "lm_head.weight");
  const Batch batch = testing::RandomBatch(tied, 2, 4);
  const ForwardProbe one =
      Must(RunForwardProbe(tied, tied_layout, theta, batch));
  const ForwardProbe two =
      Must(RunForwardProbe(untied, untied_layout, apart, batch));
  REQUIRE(one.loss == two.loss);
  const TensorSpec& shared = *tied_layout.Find(embedding);
  for (int64_t i = 0; i < shared.elements; ++i) {
    const float sum =
        two.grads[untied_layout.Find(embedding)->offset + i] +
        two.grads[untied_layout.Find("lm_head.weight")->offset + i];
    REQUIRE(one.grads[shared.offset + i] == Approx(sum).margin(1e-6));
  }
}

}  // namespace
}  // namespace diloco
