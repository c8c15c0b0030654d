// Several fragments in flight: crashes, offline tools, rollback.
#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "coordinator/offline/lineage.h"
#include "coordinator/offline/run_archive.h"
#include "coordinator/offline/run_copy.h"
#include "coordinator/offline/verify.h"
#include "tests/component/coordinator/offline_run.h"

namespace diloco {
namespace {

const std::string kNextLineage(16, 'L');

void CutInThree(TestRun& run) {
  run.options.layout =
      BuildLayout({{"a.weight", {30, 10}, TensorClass::kMatrix, true, 0},
                   {"b.weight", {20, 30}, TensorClass::kMatrix, true, 1},
                   {"c.norm", {100}, TensorClass::kVector, false, 2}},
                  3)
          .value();
  run.options.policy.interval = 6;
  run.options.image_every = 4;
  run.options.settings_text = "outer.lr = 0.7\n";
  run.options.settings_digest = Sha256(run.options.settings_text);
}

// Both workers' updates of a fragment; false when the process ends meanwhile.
bool DeliverFragment(TestRun& run, uint32_t fragment) {
  for (const std::string& worker : run.workers) {
    const auto view = run.View(worker);
    if (!view.ok()) return false;
    for (const LeaseView& lease : view->view.leases) {
      if (lease.fragment != fragment || lease.delivered) continue;
      const TestUpdate update =
          run.UpdateOf(lease, run.Values(worker, lease.round, 1));
      if (!run.Deliver(worker, update).ok()) return false;
    }
  }
  return true;
}

std::vector<Digest> Digests(TestRun& run) {
  std::vector<Digest> digests;
  for (const auto& fragment : run.Status().fragments) {
    digests.push_back(fragment.digest);
  }
  return digests;
}

// As far as `rounds` of each fragment, in the order in which they are due, the
// uploads of a fragment before the fold of the one before.
bool Train(TestRun& run, uint64_t rounds) {
  for (uint64_t round = 1; round <= rounds; ++round) {
    for (const uint32_t fragment : {1u, 2u, 0u}) {
      const auto view = run.View(run.workers[0]);
      if (!view.ok()) return false;
      if (view->fragments[fragment].version >= round) continue;
      if (!DeliverFragment(run, fragment)) return false;
    }
    for (uint32_t fragment = 0; fragment < 3; ++fragment) {
      if (!run.AwaitVersion(round, fragment).ok()) return false;
    }
  }
  return true;
}

std::string ProblemIn(TestRun& run, const std::string& dir) {
  const auto archive = RunArchive::Read(&run.fs, dir);
  if (!archive.ok()) return archive.status().ToString();
  std::string problem;
  VerifyRun(**archive, [&](const Finding& finding) {
    if (finding.kind == Finding::Kind::kProblem) problem += finding.text;
  });
  return problem;
}

TEST_CASE("fragments have versions and images of their own, never all at once",
          "[fragments]") {
  TestRun run(2);
  CutInThree(run);
  REQUIRE(run.Start().ok());
  run.JoinAll();
  // Three rounds are open from the start, with windows up to the offsets.
  const auto view = run.View("a");
  REQUIRE(view->view.leases.size() == 3);
  CHECK(view->view.leases[0].lease.steps == 6);
  CHECK(view->view.leases[1].lease.steps == 2);
  CHECK(view->view.leases[2].lease.steps == 4);
  REQUIRE(Train(run, 6));
  for (const char* image :
       {"f00-v000004.theta", "f01-v000005.theta", "f02-v000006.theta"}) {
    INFO(image);
    CHECK(run.FilesWith(image).size() == 1);
  }
  for (const char* image : {"f01-v000004.theta", "f00-v000005.theta"}) {
    INFO(image);
    CHECK(run.FilesWith(image).empty());
  }
  // One first window and five whole ones for each of two workers.
  const uint64_t steps = (36 + 32 + 34) / 3;
  CHECK(run.Status().folded_tokens == 2 * 10 * steps);
  run.End();
  CHECK(ProblemIn(run, kStateDir) == "");
}

TEST_CASE("a crash with several fragments in flight leads to the same bits") {
  constexpr uint64_t kRounds = 4;
  std::vector<Digest> expected;
  int changes = 0;
  {
    TestRun run(2);
    CutInThree(run);
    REQUIRE(run.Start().ok());
    run.JoinAll();
    const int before = run.fs.mutations();
    REQUIRE(Train(run, kRounds));
    changes = run.fs.mutations() - before;
    expected = Digests(run);
  }
  REQUIRE(changes > 50);
  for (int at = 1; at < changes; at += 7) {
    TestRun run(2);
    CutInThree(run);
    REQUIRE(run.Start().ok());
    run.JoinAll();
    run.fs.StopAfter(at);
    CAPTURE(at);
    if (!Train(run, kRounds)) {
      run.End();
      run.fs.Crash();
      REQUIRE(run.Start().ok());
      REQUIRE(Train(run, kRounds));
    }
    CHECK(Digests(run) == expected);
    run.End();
    CHECK(ProblemIn(run, kStateDir) == "");
  }
}

TEST_CASE("a run of several fragments goes back to a vector of versions") {
  TestRun run(2);
  CutInThree(run);
  REQUIRE(run.Start().ok());
  const Fencing before = run.coordinator->fencing();
  run.JoinAll();
  REQUIRE(Train(run, 2));
  REQUIRE(DeliverFragment(run, 1));
  REQUIRE(run.AwaitVersion(3, 1).ok());
  const std::vector<Digest> digests = Digests(run);
  const uint64_t tokens = run.Status().folded_tokens;
  REQUIRE(Train(run, 4));
  REQUIRE(BackUp(&run.fs, kStateDir, "copy", IgnoreProgress)->version == 12);
  run.End();

  // The seventh version of theta had 2, 3 and 2 of its fragments.
  const auto rolled = RollBack(&run.fs, kStateDir, 7, kNextLineage);
  INFO(rolled.status());
  REQUIRE(rolled.ok());
  CHECK(rolled->fragments[1].version == 3);
  CHECK(rolled->fragments[2].version == 2);
  CHECK(rolled->folded_tokens == tokens);
  REQUIRE(run.Start().ok());
  CHECK(Digests(run) == digests);
  CHECK(run.Status().folded_tokens == tokens);
  run.sessions.clear();
  run.JoinAll(before);
  // At the offsets again.
  CHECK(run.View("a")->view.leases[1].lease.steps == 2);
  REQUIRE(DeliverFragment(run, 2));
  REQUIRE(run.AwaitVersion(3, 2).ok());
  run.End();
  CHECK(ProblemIn(run, kStateDir) == "");
  CHECK_FALSE(RollBack(&run.fs, kStateDir, 13, kNextLineage).ok());

  const auto restored = RestoreBackup(&run.fs, "copy", "again", kNextLineage,
                                      false, IgnoreProgress);
  INFO(restored.status());
  REQUIRE(restored.ok());
  CHECK(restored->fragments[0].version == 4);
  run.options.state_dir = "again";
  REQUIRE(run.Start().ok());
  CHECK(run.Status().folded_tokens == restored->folded_tokens);
  run.End();
  CHECK(ProblemIn(run, "again") == "");
}

}  // namespace
}  // namespace diloco
