// The learning rate as a function of progress.
#include "worker/core/schedule.h"

#include <cmath>

#include "tests/support/catch.h"

namespace diloco {
namespace {

TrainSettings Settings(ScheduleShape shape) {
  TrainSettings train;
  train.lr = 1e-3;
  train.tokens = 3000;
  train.warmup_tokens = 500;
  train.min_lr = 0.1;
  train.decay_share = 0.2;
  train.schedule = shape;
  return train;
}

TEST_CASE("cosine by progress equals the usual formula by step") {
  // 30 steps of 100 tokens, 5 of them warm-up: the training reference's rates.
  const TrainSettings train = Settings(ScheduleShape::kCosine);
  for (int n = 1; n <= 30; ++n) {
    const double usual =
        n <= 5 ? 1e-3 * n / 5
               : 1e-3 * (0.1 + 0.9 * 0.5 * (1 + std::cos(M_PI * (n - 5) / 25)));
    const double lr = LearningRate(train, ProgressAtStep(0, 1.0 / 30, n - 1));
    REQUIRE(std::abs(lr - usual) <= 1e-7 * usual);
  }
}

TEST_CASE("cutting the run into windows does not move the rate") {
  for (ScheduleShape shape :
       {ScheduleShape::kCosine, ScheduleShape::kWsd, ScheduleShape::kLinear}) {
    const TrainSettings train = Settings(shape);
    for (int n = 0; n < 30; ++n) {
      const double whole = LearningRate(train, ProgressAtStep(0, 1.0 / 30, n));
      const double window_start = (n / 7) * 7 / 30.0;
      const double in_window =
          LearningRate(train, ProgressAtStep(window_start, 1.0 / 30, n % 7));
      REQUIRE(std::abs(whole - in_window) <= 1e-12);
    }
  }
}

TEST_CASE("a worker with fewer steps crosses the same interval") {
  // 5 steps of 0.02 end where 10 steps of 0.01 end.
  REQUIRE(ProgressAtStep(0.3, 0.02, 4) == Approx(ProgressAtStep(0.3, 0.01, 9)));
}

TEST_CASE("wsd holds the peak and then falls in a line to the floor") {
  const TrainSettings train = Settings(ScheduleShape::kWsd);
  REQUIRE(LearningRate(train, 500.0 / 3000) == Approx(1e-3));
  REQUIRE(LearningRate(train, 0.79) == Approx(1e-3));
  REQUIRE(LearningRate(train, 0.9) == Approx(0.55e-3));
  REQUIRE(LearningRate(train, 1.0) == Approx(0.1e-3));
}

TEST_CASE("linear falls to the floor and constant stays") {
  REQUIRE(LearningRate(Settings(ScheduleShape::kLinear), 1.0) ==
          Approx(0.1e-3));
  REQUIRE(LearningRate(Settings(ScheduleShape::kLinear),
                       (500 + 1250) / 3000.0) == Approx(0.55e-3));
  REQUIRE(LearningRate(Settings(ScheduleShape::kConstant), 1.0) ==
          Approx(1e-3));
}

TEST_CASE("progress beyond the end stays at the last rate") {
  for (ScheduleShape shape :
       {ScheduleShape::kCosine, ScheduleShape::kWsd, ScheduleShape::kLinear}) {
    const TrainSettings train = Settings(shape);
    REQUIRE(LearningRate(train, 1.3) == LearningRate(train, 1.0));
  }
}

TEST_CASE("warm-up of the whole run or none at all is well defined") {
  TrainSettings train = Settings(ScheduleShape::kWsd);
  train.warmup_tokens = 0;
  REQUIRE(LearningRate(train, 0) == Approx(1e-3));
  train.warmup_tokens = 3000;
  REQUIRE(LearningRate(train, 0.5) == Approx(0.5e-3));
  REQUIRE(LearningRate(train, 1) == Approx(1e-3));
  train.warmup_tokens = 2700;  // Leaves 300 of the 600 tokens of decay.
  REQUIRE(LearningRate(train, 0.95) == Approx(0.55e-3));
}

TEST_CASE("the ramp after a cold start rises to one and stays there") {
  REQUIRE(JoinRamp(0, 50) == Approx(0.02));
  REQUIRE(JoinRamp(24, 50) == Approx(0.5));
  REQUIRE(JoinRamp(49, 50) == 1.0);
  REQUIRE(JoinRamp(1000, 50) == 1.0);
  REQUIRE(JoinRamp(0, 0) == 1.0);
  REQUIRE(JoinRamp(0, 1) == 1.0);
}

TEST_CASE("a worker that is off its stretch comes onto it without a jump") {
  REQUIRE(FollowProgress(std::nullopt, 0.5, 0.01, 10) == 0.5);
  // Behind: at twice the pace.
  double progress = 0.44;
  for (int step = 1; step <= 10; ++step) {
    const double target = 0.5 + step * 0.01;
    const double next = FollowProgress(progress, target, 0.01, 10);
    REQUIRE(next - progress <= 0.02 + 1e-12);
    progress = next;
  }
  REQUIRE(progress == Approx(0.6));
  // Ahead: it waits.
  REQUIRE(FollowProgress(0.53, 0.51, 0.01, 10) == 0.53);
  REQUIRE(FollowProgress(0.53, 0.54, 0.01, 10) == 0.54);
  // More than the stretch behind: it has been away.
  REQUIRE(FollowProgress(0.39, 0.51, 0.01, 10) == 0.51);
  // On it, to the last bit as without.
  for (uint64_t step = 1; step < 10; ++step) {
    const double target = ProgressAtStep(0.5, 0.01, step);
    REQUIRE(FollowProgress(ProgressAtStep(0.5, 0.01, step - 1), target, 0.01,
                           10) == target);
  }
}

}  // namespace
}  // namespace diloco
