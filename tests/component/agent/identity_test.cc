// What a run must be equal to, by arithmetic.

#include <cmath>

#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

constexpr double kLearningRate = 0.05;

// fp32 both ways, outer rate 1 without momentum.
void MakePlain(Fixture& fixture) {
  fixture.policy.codec_up = Codec::kFp32;
  fixture.settings.codec_up = Codec::kFp32;
  fixture.policy.outer_lr = 1;
  fixture.policy.outer_momentum = 0;
  fixture.settings.train.lr = kLearningRate;
}

TEST_CASE("H = 1 with inner SGD equals SGD on the mean gradient") {
  constexpr int kRounds = 6;
  Fixture fixture(2);
  MakePlain(fixture);
  fixture.policy.interval = 1;
  fixture.policy.train_tokens = fixture.settings.train.tokens = 8 * 2 * kRounds;
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1);
  std::vector<float> got, other;
  a.prepare = [&](FakeTrainer& trainer) {
    trainer.UsePlainSgd();
    trainer.KeepAnchor(&got);
  };
  b.prepare = [&](FakeTrainer& trainer) {
    trainer.UsePlainSgd();
    trainer.KeepAnchor(&other);
  };
  a.Start();
  b.Start();
  a.Join();
  b.Join();
  REQUIRE(a.status.ok());
  REQUIRE(b.status.ok());
  REQUIRE(fixture.Status().fragments[0].version == kRounds);

  // One process that takes both batches: the gradient of a value is
  // value - target + 1e-3 x first id, and the first id moves by the windows
  // drawn.
  std::vector<double> theta(static_cast<size_t>(fixture.layout.elements));
  for (size_t i = 0; i < theta.size(); ++i) {
    theta[i] = static_cast<float>(i % 7) * 0.01f;
  }
  for (int step = 0; step < kRounds; ++step) {
    for (const TensorSpec& tensor : fixture.layout.tensors) {
      for (int64_t i = 0; i < tensor.elements; ++i) {
        double& value = theta[static_cast<size_t>(tensor.offset + i)];
        double mean = 0;
        for (int worker = 0; worker < 2; ++worker) {
          const double first_id = (worker * 11 + 2 * step) % 50;
          mean += (value - (0.5 + 0.25 * worker) + 1e-3 * first_id) / 2;
        }
        value -= kLearningRate * mean;
      }
    }
  }
  REQUIRE(got.size() == theta.size());
  REQUIRE(got == other);
  double difference = 0, norm = 0;
  for (const TensorSpec& tensor : fixture.layout.tensors) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.elements; ++i) {
      const auto at = static_cast<size_t>(i);
      difference += (got[at] - theta[at]) * (got[at] - theta[at]);
      norm += theta[at] * theta[at];
    }
  }
  REQUIRE(norm > 0);
  REQUIRE(std::sqrt(difference / norm) < 2e-7);
}

TEST_CASE("k workers with equal data equal one") {
  const auto run = [](int workers) {
    Fixture fixture(workers);
    fixture.StartCoordinator();
    std::vector<std::unique_ptr<Worker>> all;
    for (int i = 0; i < workers; ++i) {
      all.push_back(std::make_unique<Worker>(fixture, i, "", /*data=*/0));
      all.back()->Start();
    }
    for (const auto& worker : all) {
      worker->Join();
      REQUIRE(worker->status.ok());
    }
    REQUIRE(fixture.Status().fragments[0].version == 6);
    return fixture.Status().fragments[0].digest;
  };
  const Digest one = run(1);
  REQUIRE(run(2) == one);
  REQUIRE(run(4) == one);
}

TEST_CASE("C7.3 the outer momentum survives a restart, and it matters") {
  const auto run = [](double momentum, bool restart) {
    Fixture fixture(1);
    fixture.policy.outer_momentum = momentum;
    fixture.StartCoordinator();
    Worker worker(fixture, 0);
    std::atomic<bool> reached{false}, go{!restart};
    worker.options.after_apply = [&](uint64_t version, Trainer&) {
      if (version != 3) return;
      reached = true;
      while (!go) std::this_thread::yield();
    };
    worker.Start();
    if (restart) {
      fixture.Await([&] { return reached.load(); });
      fixture.StopCoordinator();
      fixture.StartCoordinator();
      go = true;
    }
    worker.Join();
    INFO(worker.status.ToString());
    REQUIRE(worker.status.ok());
    return fixture.Status().fragments[0].digest;
  };
  const Digest whole = run(0.5, false);
  REQUIRE(run(0.5, true) == whole);
  REQUIRE(run(0, false) != whole);
}

TEST_CASE("C7.3 the optimiser's state survives a restart, and it matters") {
  // The only worker crashes while it delivers its third update.
  const auto run = [](bool crash, bool cold) {
    Fixture fixture(1);
    fixture.StartCoordinator();
    auto worker = std::make_unique<Worker>(fixture, 0);
    if (crash) {
      worker->options.stop_requested = [worker = worker.get()] {
        if (worker->port.offers().size() < 3) return false;
        worker->port.set_cut(true);
        return true;
      };
      worker->Start();
      worker->Join();
      worker = std::make_unique<Worker>(fixture, 0);
      worker->prepare = [cold](FakeTrainer& trainer) {
        if (cold) trainer.StartCold();
      };
    }
    worker->Start();
    worker->Join();
    INFO(worker->status.ToString());
    REQUIRE(worker->status.ok());
    REQUIRE(fixture.Status().fragments[0].version == 6);
    return fixture.Status().fragments[0].digest;
  };
  const Digest whole = run(false, false);
  REQUIRE(run(true, false) == whole);
  REQUIRE(run(true, true) != whole);
}

TEST_CASE("C7.3 error feedback survives a restart, and it matters") {
  // The only worker crashes while it delivers its third update, and what it has
  // in its scratch directory is as it was then.
  const auto run = [](Codec codec, bool feedback, bool crash,
                      LatePolicy late = LatePolicy::kCarry) {
    Fixture fixture(1);
    fixture.policy.codec_up = fixture.settings.codec_up = codec;
    fixture.policy.late = fixture.settings.late = late;
    fixture.settings.error_feedback = feedback;
    fixture.settings.stochastic_rounding = codec == Codec::kE3m0;
    fixture.StartCoordinator();
    auto worker = std::make_unique<Worker>(fixture, 0);
    if (crash) {
      worker->options.stop_requested = [worker = worker.get()] {
        if (worker->port.offers().size() < 3) return false;
        worker->port.set_cut(true);
        return true;
      };
      worker->Start();
      worker->Join();
      worker = std::make_unique<Worker>(fixture, 0);
    }
    worker->Start();
    worker->Join();
    INFO(worker->status.ToString());
    REQUIRE(worker->status.ok());
    REQUIRE(fixture.Status().fragments[0].version == 6);
    return fixture.Status().fragments[0].digest;
  };
  for (Codec codec : {Codec::kInt8, Codec::kInt8Buckets, Codec::kE3m0}) {
    INFO(CodecName(codec));
    const Digest whole = run(codec, true, false);
    CHECK(run(codec, true, true) == whole);
    CHECK(run(codec, true, true, LatePolicy::kReject) == whole);
    const Digest without = run(codec, false, false);
    CHECK(run(codec, false, true) == without);
    // This trainer's updates have so few values that buckets lose nothing.
    if (codec != Codec::kInt8Buckets) CHECK(without != whole);
  }
}

TEST_CASE("a refused update does not get those after it refused") {
  Fixture fixture(1);
  fixture.policy.codec_up = fixture.settings.codec_up = Codec::kInt8;
  fixture.settings.error_feedback = true;
  fixture.policy.deadline = absl::Milliseconds(500);
  fixture.policy.short_round = ShortRound::kVoid;
  fixture.StartCoordinator();
  Worker worker(fixture, 0);
  worker.prepare = [](FakeTrainer& trainer) {
    trainer.UsePlainSgd();  // The optimiser's state does not keep the spike.
    trainer.SpikeAtStep(8, 0x1p110f);
  };
  worker.Start();
  worker.Join();
  INFO(worker.status.ToString());
  REQUIRE(worker.status.ok());
  CHECK(fixture.UpdatesAre("refused", 1));
  REQUIRE(fixture.Status().fragments[0].version == 6);
}

}  // namespace
}  // namespace diloco
