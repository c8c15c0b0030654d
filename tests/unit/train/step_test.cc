// One optimiser step: accumulation, skipping, decay, bad batches, determinism.
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/train/small_model.h"
#include "worker/train/probe.h"

namespace diloco {
namespace {

using testing::LayoutOf;
using testing::LocalOf;
using testing::MakeTrainer;
using testing::Must;

TEST_CASE("C8.1 micro-batches of unequal token counts equal one batch") {
  const ModelConfig config = testing::SmallConfig();
  const std::vector<float> theta = testing::RandomTheta(LayoutOf(config), 1);
  Batch batch = testing::RandomBatch(config, 5, 2);
  // Window 0 keeps one prediction, window 1 none, the others all.
  batch.counted.assign(5 * config.max_positions, 1);
  for (int64_t i = 0; i < 2 * config.max_positions; ++i) batch.counted[i] = 0;
  batch.counted[3] = 1;
  TrainSettings train = testing::SmallTrain();
  train.clip = 0;
  auto whole = MakeTrainer(config, theta, train);
  auto split = MakeTrainer(config, theta, train, {.micro_batch = 1});
  auto uneven = MakeTrainer(config, theta, train, {.micro_batch = 3});
  const StepResult a = Must(whole->Step(batch, 1e-3));
  REQUIRE(a.tokens == 1 + 3 * static_cast<uint64_t>(config.max_positions));
  REQUIRE_FALSE(a.skipped);
  for (auto* other : {&split, &uneven}) {
    const StepResult b = Must((*other)->Step(batch, 1e-3));
    REQUIRE(b.tokens == a.tokens);
    REQUIRE(b.loss == Approx(a.loss).epsilon(1e-6));
    REQUIRE(b.grad_norm == Approx(a.grad_norm).epsilon(1e-6));
    REQUIRE(testing::RelativeDistance(LocalOf(**other), LocalOf(*whole)) <
            1e-6);
  }
}

TEST_CASE("C8.1 a batch in which nothing counts changes nothing") {
  const ModelConfig config = testing::SmallConfig();
  const std::vector<float> theta = testing::RandomTheta(LayoutOf(config), 1);
  auto trainer = MakeTrainer(config, theta);
  Batch batch = testing::RandomBatch(config, 2, 2);
  batch.counted.assign(2 * config.max_positions, 0);
  const StepResult result = Must(trainer->Step(batch, 1e-3));
  REQUIRE(result.skipped);
  REQUIRE(result.tokens == 0);
  REQUIRE(std::isfinite(result.loss));
  REQUIRE(LocalOf(*trainer) == theta);
  REQUIRE(trainer->optimizer_steps() == 0);
  const LossSum sum = Must(trainer->Evaluate(batch));
  REQUIRE(sum.tokens == 0);
  REQUIRE(sum.loss_sum == 0);
}

TEST_CASE("C8.3 a non-finite step is skipped and the next one is normal") {
  const ModelConfig config = testing::SmallConfig();
  const Layout layout = LayoutOf(config);
  const std::vector<float> theta = testing::RandomTheta(layout, 1);
  const Batch batch = testing::RandomBatch(config, 2, 2);
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity());
  std::vector<float> poisoned = theta;
  poisoned[layout.Find("model.layers.1.mlp.up_proj.weight")->offset + 5] = bad;

  auto trainer = MakeTrainer(config, theta);
  Must(trainer->Step(batch, 1e-3));
  const std::vector<float> before = LocalOf(*trainer);
  Must(trainer->ImportState("local", poisoned));
  const StepResult result = Must(trainer->Step(batch, 1e-3));
  REQUIRE(result.skipped);
  REQUIRE(result.tokens == 2 * static_cast<uint64_t>(config.max_positions));
  REQUIRE(trainer->optimizer_steps() == 1);

  // As if the skipped step had not been.
  Must(trainer->ImportState("local", before));
  auto undisturbed = MakeTrainer(config, theta);
  Must(undisturbed->Step(batch, 1e-3));
  Must(trainer->Step(batch, 1e-3));
  Must(undisturbed->Step(batch, 1e-3));
  REQUIRE(LocalOf(*trainer) == LocalOf(*undisturbed));
}

TEST_CASE("weight decay moves matrices and leaves vectors and padding") {
  const ModelConfig config = testing::SmallConfig();
  const Layout layout = LayoutOf(config);
  const std::vector<float> theta = testing::RandomTheta(layout, 1);
  const Batch batch = testing::RandomBatch(config, 2, 2);
  TrainSettings train = testing::SmallTrain();
  train.weight_decay = 0;
  auto plain = MakeTrainer(config, theta, train);
  train.weight_decay = 0.5;
  auto decayed = MakeTrainer(config, theta, train);
  Must(plain->Step(batch, 0.1));
  Must(decayed->Step(batch, 0.1));
  const std::vector<float> a = LocalOf(*plain);
  const std::vector<float> b = LocalOf(*decayed);
  std::vector<bool> inside(layout.elements, false);
  for (const TensorSpec& tensor : layout.tensors) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.elements; ++i) {
      inside[i] = true;
      const float expected =
          tensor.decl.shape.size() < 2 ? a[i] : a[i] - 0.1f * 0.5f * theta[i];
      REQUIRE(b[i] == Approx(expected).margin(1e-6));
    }
  }
  for (int64_t i = 0; i < layout.elements; ++i) {
    if (!inside[i]) REQUIRE(b[i] == 0);
  }
}

// Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, in double, from the
// gradients that a pass of its own gives.
TEST_CASE("several steps follow AdamW's formula") {
  const ModelConfig config = testing::SmallConfig();
  const Layout layout = LayoutOf(config);
  const std::vector<float> theta = testing::RandomTheta(layout, 1);
  TrainSettings train = testing::SmallTrain();
  train.clip = 0;
  train.weight_decay = 0.1;
  constexpr double kLr = 1e-2;
  auto trainer = MakeTrainer(config, theta, train);
  std::vector<double> m(theta.size(), 0), v(theta.size(), 0);
  for (int step = 1; step <= 4; ++step) {
    const Batch batch = testing::RandomBatch(config, 2, step);
    const std::vector<float> before = LocalOf(*trainer);
    const ForwardProbe probe =
        Must(RunForwardProbe(config, layout, before, batch));
    Must(trainer->Step(batch, kLr));
    const std::vector<float> after = LocalOf(*trainer);
    for (const TensorSpec& tensor : layout.tensors) {
      const double decay =
          tensor.decl.shape.size() < 2 ? 0 : train.weight_decay;
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.elements;
           ++i) {
        const double g = probe.grads[i];
        m[i] = train.beta1 * m[i] + (1 - train.beta1) * g;
        v[i] = train.beta2 * v[i] + (1 - train.beta2) * g * g;
        const double mean = m[i] / (1 - std::pow(train.beta1, step));
        const double square = v[i] / (1 - std::pow(train.beta2, step));
        const double expected = before[i] * (1 - kLr * decay) -
                                kLr * mean / (std::sqrt(square) + train.eps);
        // A gradient near zero is mostly rounding, and AdamW divides by it.
        if (std::abs(g) < 1e-6) continue;
        CAPTURE(step, tensor.decl.name, i);
        REQUIRE(after[i] == Approx(expected).margin(2e-4 * kLr));
      }
    }
    REQUIRE(trainer->optimizer_steps() == static_cast<uint64_t>(step));
  }
}

TEST_CASE("the same steps give the same bits with one thread") {
  ModelConfig config = testing::SmallConfig();
  config.tied = true;
  const std::vector<float> theta = testing::RandomTheta(LayoutOf(config), 1);
  auto a = MakeTrainer(config, theta);
  auto b = MakeTrainer(config, theta);
  for (uint32_t step = 0; step < 5; ++step) {
    const Batch batch = testing::RandomBatch(config, 4, step);
    Must(a->Evaluate(testing::RandomBatch(config, 1, 9)));  // No side effect.
    const StepResult x = Must(a->Step(batch, 1e-2));
    const StepResult y = Must(b->Step(batch, 1e-2));
    REQUIRE(x.loss == y.loss);
    REQUIRE(x.grad_norm == y.grad_norm);
  }
  REQUIRE(LocalOf(*a) == LocalOf(*b));
}

TEST_CASE("evaluation equals the loss that the step reports") {
  const ModelConfig config = testing::SmallConfig();
  auto trainer = MakeTrainer(config, testing::RandomTheta(LayoutOf(config), 1));
  const Batch batch = testing::RandomBatch(config, 3, 2);
  const LossSum sum = Must(trainer->Evaluate(batch));
  const StepResult step = Must(trainer->Step(batch, 1e-3));
  REQUIRE(sum.loss_sum / static_cast<double>(sum.tokens) ==
          Approx(step.loss).epsilon(1e-7));
}

TEST_CASE("a bad batch is refused with its place, nothing is touched") {
  const ModelConfig config = testing::SmallConfig();
  const std::vector<float> theta = testing::RandomTheta(LayoutOf(config), 1);
  auto trainer = MakeTrainer(config, theta);
  Batch batch = testing::RandomBatch(config, 2, 2);
  batch.ids[config.max_positions + 1 + 4] = static_cast<int32_t>(config.vocab);
  const absl::Status status = trainer->Step(batch, 1e-3).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(status.message()),
               Catch::Contains("token id 61 at position 4 of window 1"));
  batch.ids.pop_back();
  REQUIRE(trainer->Step(batch, 1e-3).status().code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(LocalOf(*trainer) == theta);
}

TEST_CASE("a device that is not there is named") {
  const ModelConfig config = testing::SmallConfig();
  const auto status = [&](const char* device) {
    return MakeTorchTrainer(config, LayoutOf(config), testing::SmallTrain(),
                            {.device = device})
        .status();
  };
  REQUIRE(status("tpu").code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(status("cuda:99").code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE_THAT(std::string(status("cuda:99").message()),
               Catch::Contains("cuda:99 is not available"));
}

}  // namespace
}  // namespace diloco
