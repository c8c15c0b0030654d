// Runs of several fragments, each with its own rounds.

#include "common/model/fragments.h"

#include "common/tensor/part_file.h"
#include "coordinator/aggregate/fold_kernel.h"
#include "tests/component/agent/agent_run.h"

namespace diloco {
namespace {

constexpr uint32_t kFragmentCount = 3;
constexpr int kRunSteps = 30;

struct Fragmented : Fixture {
  explicit Fragmented(int workers) : Fixture(workers) {
    settings.fragments.pattern = FragmentPattern::kBalanced;
    settings.fragments.count = kFragmentCount;
    settings.codec_up = policy.codec_up = Codec::kFp32;
    layout = *ModelLayout(settings.model, settings.fragments);
    settings.layout_digest = layout.ComputeDigest();
  }

  std::vector<Digest> Digests() {
    std::vector<Digest> digests;
    for (const auto& fragment : Status().fragments) {
      digests.push_back(fragment.digest);
    }
    return digests;
  }
};

std::vector<Digest> RunFragments(Fragmented& fixture, int workers) {
  RunWorkers(fixture, workers);
  REQUIRE(fixture.Status().phase == RunPhase::kFinished);
  REQUIRE(fixture.Status().folded_tokens == fixture.settings.train.tokens);
  return fixture.Digests();
}

// The fragments' digests after the run of one worker, by the formulas alone.
std::vector<Digest> ReferenceDigests(const Fragmented& fixture) {
  const Layout& layout = fixture.layout;
  FakeTrainer trainer(layout, 0.5f);
  std::vector<std::vector<float>> theta, momentum, delta;
  for (const FragmentSpec& spec : layout.fragments) {
    std::vector<float>& values = theta.emplace_back();
    for (int64_t i = 0; i < spec.elements; ++i) {
      values.push_back(static_cast<float>((spec.first + i) % 7) * 0.01f);
    }
    momentum.emplace_back(values.size(), 0.0f);
    delta.emplace_back(values.size(), 0.0f);
  }
  for (uint32_t f = 0; f < kFragmentCount; ++f) {
    REQUIRE(trainer.Load(f, theta[f]).ok());
  }
  CountingData data(0);
  OuterSettings outer;
  outer.lr = static_cast<float>(fixture.policy.outer_lr);
  outer.momentum = static_cast<float>(fixture.policy.outer_momentum);
  const auto interval = static_cast<int>(fixture.policy.interval);
  const auto overlap = static_cast<int>(fixture.settings.overlap);
  std::vector<int> taken(kFragmentCount, 0);
  for (int t = 1; t <= kRunSteps; ++t) {
    const absl::StatusOr<Batch> batch =
        data.Read(static_cast<uint64_t>(2 * (t - 1)), 2);
    REQUIRE(trainer.Step(*batch, fixture.settings.train.lr).ok());
    for (uint32_t f = 0; f < kFragmentCount; ++f) {
      const int first = static_cast<int>(
          FirstDueStep(f, kFragmentCount, static_cast<uint32_t>(interval)));
      const bool last = t == kRunSteps;
      const auto merge = [&](float mix) {
        const FoldInput input{
            Codec::kFp32,
            absl::MakeConstSpan(reinterpret_cast<const char*>(delta[f].data()),
                                delta[f].size() * sizeof(float)),
            1};
        std::vector<float> change(delta[f].size());
        FoldTile({input}, outer, absl::MakeSpan(momentum[f]),
                 absl::MakeSpan(change));
        ApplyChange(change, absl::MakeSpan(theta[f]));
        REQUIRE(trainer.Adopt(f, theta[f], Trainer::MergeMode::kMix, mix).ok());
        taken[f] = 0;
      };
      const auto mix = static_cast<float>(fixture.settings.mix);
      if (taken[f] != 0 && t == taken[f] + overlap) merge(mix);
      if ((t - first) % interval != 0 && !last) continue;
      REQUIRE(trainer.ReadLocal(f, absl::MakeSpan(delta[f])).ok());
      for (size_t i = 0; i < delta[f].size(); ++i) {
        delta[f][i] = theta[f][i] - delta[f][i];
      }
      taken[f] = t;
      if (last) {
        merge(0);
      } else if (overlap == 0) {
        merge(mix);
      }
    }
  }
  std::vector<Digest> digests;
  for (const std::vector<float>& values : theta) {
    digests.push_back(DigestOfValues(values));
  }
  return digests;
}

TEST_CASE("each fragment's theta is that of the formulas") {
  Fragmented fixture(1);
  fixture.settings.overlap = GENERATE(0u, 1u, 2u);
  fixture.settings.mix = GENERATE(0.0, 0.5);
  REQUIRE(RunFragments(fixture, 1) == ReferenceDigests(fixture));
}

TEST_CASE("fragments: restarts of the coordinator change nothing") {
  const uint32_t overlap = GENERATE(0u, 2u);
  Fragmented calm(2);
  calm.settings.overlap = overlap;
  const std::vector<Digest> expected = RunFragments(calm, 2);
  Fragmented fixture(2);
  fixture.settings.overlap = overlap;
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1);
  a.Start();
  b.Start();
  RestartCoordinatorAtEachVersion(fixture);
  a.Join();
  b.Join();
  REQUIRE(a.status.ok());
  REQUIRE(b.status.ok());
  REQUIRE(fixture.Digests() == expected);
}

TEST_CASE(
    "C7.3 fragments: a worker restarted at any step goes on bit for bit") {
  const uint32_t overlap = GENERATE(0u, 2u);
  Fragmented calm(2);
  calm.settings.overlap = overlap;
  calm.settings.mix = 0.5;
  const std::vector<Digest> expected = RunFragments(calm, 2);
  for (const int stop_before : {4, 7, 8, 9, 10, 11}) {
    INFO("stopped before step " << stop_before);
    Fragmented fixture(2);
    fixture.settings.overlap = overlap;
    fixture.settings.mix = 0.5;
    RunWithCrashBefore(stop_before, fixture);
    REQUIRE(fixture.Digests() == expected);
  }
}

TEST_CASE(
    "fragments: an update whose receipt is overtaken by the round counts") {
  const LatePolicy late = GENERATE(LatePolicy::kCarry, LatePolicy::kReject);
  const auto settle = [late](Fragmented& fixture) {
    fixture.policy.late = fixture.settings.late = late;
    fixture.settings.overlap = 2;
    fixture.settings.mix = 0.5;
  };
  Fragmented calm(1);
  settle(calm);
  const std::vector<Digest> expected = RunFragments(calm, 1);
  Fragmented fixture(1);
  settle(fixture);
  fixture.StartCoordinator();
  Worker a(fixture, 0);
  a.port.CutUploadsAfterCommit();
  a.Start();
  // The version is published before the receipt comes.
  fixture.Await([&] { return a.port.cancelled_uploads() > 0; });
  a.port.set_uploads_cut(false);
  a.Join();
  REQUIRE(a.status.ok());
  REQUIRE(fixture.Digests() == expected);
}

TEST_CASE("C6.5 late: reject drops the steps where merges keep a share") {
  Fixture fixture(2);
  fixture.MakeLong();
  fixture.policy.late = fixture.settings.late = LatePolicy::kReject;
  fixture.policy.deadline = absl::Milliseconds(500);
  fixture.settings.mix = 0.5;
  fixture.StartCoordinator();
  Worker goes_on(fixture, 0), late(fixture, 1);
  std::vector<uint32_t> takes;
  late.prepare = [&](FakeTrainer& trainer) { trainer.LogTakes(&takes); };
  late.port.set_uploads_cut(true);
  goes_on.Start();
  late.Start();
  fixture.Await([&] { return late.port.cancelled_uploads() > 0; });
  late.port.set_uploads_cut(false);
  fixture.Await([&] { return late.port.offers().size() >= 3; });
  late.stop = goes_on.stop = true;
  late.Join();
  goes_on.Join();
  for (const UpdateOffer& offer : late.port.offers()) CHECK(offer.steps <= 5);
  for (const uint32_t steps : takes) CHECK(steps <= 5);
}

TEST_CASE("fragments: a flipped bit in one of them is named and mended") {
  Fragmented fixture(2);
  fixture.StartCoordinator();
  Worker a(fixture, 0), b(fixture, 1);
  bool flipped = false;
  a.options.after_apply = [&](uint64_t version, Trainer& trainer) {
    if (version != 2 || flipped) return;
    flipped = true;
    // Of the last fragment.
    static_cast<FakeTrainer&>(trainer).anchor().back() += 1.0f;
    const int64_t at = fixture.layout.fragments.back().first;
    static_cast<FakeTrainer&>(trainer).anchor()[static_cast<size_t>(at)] +=
        1.0f;
  };
  a.Start();
  b.Start();
  a.Join();
  b.Join();
  REQUIRE(a.status.ok());
  REQUIRE(a.metrics.Text().find("diloco_worker_digest_mismatches_total 1") !=
          std::string::npos);
  REQUIRE(fixture.Status().folded_tokens == fixture.settings.train.tokens);
}

TEST_CASE("C5.4 a leaving worker hands in what it has of every fragment") {
  Fragmented fixture(2);
  fixture.MakeLong();
  fixture.StartCoordinator();
  Worker stays(fixture, 0), goes(fixture, 1);
  int steps = 0;
  goes.prepare = [&](FakeTrainer& trainer) {
    trainer.SpendBeforeStep([&] {
      if (++steps == 9) goes.stop = true;
    });
  };
  stays.Start();
  goes.Start();
  goes.Join();
  INFO(goes.status.ToString());
  REQUIRE(goes.status.ok());
  // What it had trained of each fragment when it was asked to stop was offered,
  // or the whole of a window that it could finish.
  std::vector<uint32_t> offered(kFragmentCount, 0);
  for (const UpdateOffer& offer : goes.port.offers()) {
    offered[offer.fragment] += offer.steps;
  }
  for (const uint32_t steps_offered : offered) CHECK(steps_offered >= 9);
}

}  // namespace
}  // namespace diloco
