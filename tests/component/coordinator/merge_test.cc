// Merge rules and screens through the whole coordinator: what becomes of
// theta, of the files, and of a process that is killed in between.
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/aggregate/fold.h"
#include "coordinator/offline/replay.h"
#include "coordinator/runtime/fold_engine.h"
#include "tests/component/coordinator/test_run.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

void DeliverScaled(TestRun& run, const std::string& worker, float scale) {
  REQUIRE(run.Deliver(worker, run.NextUpdate(worker, scale))->kind ==
          UploadVerdict::Kind::kAccepted);
}

std::vector<UpdateRefused> RefusedIn(TestRun& run) {
  std::vector<UpdateRefused> refused;
  for (const EventReport& event : run.Events()) {
    const auto* fact = std::get_if<UpdateRefused>(&event.fact);
    if (fact != nullptr) refused.push_back(*fact);
  }
  return refused;
}

TEST_CASE("C6.7 of five workers one sends x1000: theta is that of the others") {
  TestRun run(5);
  run.options.policy.screen_norm = 20;
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const std::vector<std::string> honest = {"a", "b", "d", "e"};
  DeliverScaled(run, "c", 1000);
  for (const std::string& worker : honest) DeliverScaled(run, worker, 1);
  REQUIRE(run.AwaitVersion(1).ok());
  const Digest digest = run.digest();
  const std::vector<UpdateRefused> refused = RefusedIn(run);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].worker == "c");
  CHECK(refused[0].screen == Screen::kNorm);
  CHECK(refused[0].figure > refused[0].limit);
  CHECK(absl::StrContains(run.metrics->Text(),
                          "updates_screened_total{screen=\"norm\"} 1"));
  CHECK(absl::StrContains(run.metrics->Text(),
                          "update_norm_per_lr{worker=\"c\"}"));
  CHECK(absl::StrContains(run.View("c")->view.notice, refused[0].reason));
  CHECK(run.FilesWith(".refused").size() == 1);
  // It is in the next round.
  for (const std::string& worker : run.workers) DeliverScaled(run, worker, 1);
  REQUIRE(run.AwaitVersion(2).ok());
  CHECK(RefusedIn(run).size() == 1);
  run.End();
  // A process that ended before it was put aside leaves that to the next one.
  const std::string kept = run.FilesWith(".refused")[0];
  const std::string complete =
      absl::StrCat(kept.substr(0, kept.rfind('.')), ".upd");
  REQUIRE(run.fs.Rename(kept, complete).ok());
  REQUIRE(run.Start().ok());
  CHECK(run.FilesWith(".refused") == std::vector<std::string>{kept});
  CHECK(run.Status().fragments[0].version == 2);

  TestRun others(5);
  REQUIRE(others.Start().ok());
  others.JoinAll();
  for (const std::string& worker : honest) DeliverScaled(others, worker, 1);
  others.clock.Advance(absl::Minutes(11));
  REQUIRE(others.AwaitVersion(1).ok());
  CHECK(others.digest() == digest);
}

TEST_CASE("C6.7 an update that comes again is refused in its receipt") {
  TestRun run(2);
  run.options.policy.screen_replay = true;
  REQUIRE(run.Start().ok());
  run.JoinAll();
  const LeaseView first = run.View("a")->view.leases[0];
  const std::vector<float> values = run.Values("a", first.round, 1);
  REQUIRE(run.Deliver("a", run.UpdateOf(first, values))->kind ==
          UploadVerdict::Kind::kAccepted);
  DeliverScaled(run, "b", 1);
  REQUIRE(run.AwaitVersion(1).ok());
  const LeaseView second = run.View("a")->view.leases[0];
  const auto outcome = run.Deliver("a", run.UpdateOf(second, values));
  REQUIRE(outcome.ok());
  CHECK(outcome->kind == UploadVerdict::Kind::kRefused);
  CHECK(absl::StrContains(outcome->reason,
                          "that the same worker sent in round 1"));
  CHECK(absl::StrContains(run.metrics->Text(),
                          "updates_screened_total{screen=\"replay\"} 1"));
  DeliverScaled(run, "b", 1);
  REQUIRE(run.AwaitVersion(2).ok());
  CHECK(run.FilesWith(".refused").size() == 1);
  // The journal remembers what was sent.
  run.End();
  REQUIRE(run.Start().ok());
  const LeaseView third = run.View("b")->view.leases[0];
  const auto copy = run.Deliver("b", run.UpdateOf(third, values));
  REQUIRE(copy.ok());
  CHECK(copy->kind == UploadVerdict::Kind::kRefused);
  CHECK(absl::StrContains(copy->reason, "that a sent in round 1"));
}

TEST_CASE("a killed coordinator folds by the merge rule to the same theta") {
  for (MergeRule rule :
       {MergeRule::kNormClipped, MergeRule::kRadialDirectional}) {
    INFO(MergeRuleName(rule));
    const auto round = [](TestRun& run, uint64_t version) {
      DeliverScaled(run, "c", 1);
      DeliverScaled(run, "a", 7);
      DeliverScaled(run, "b", 2);
      REQUIRE(run.AwaitVersion(version).ok());
    };
    TestRun clean(3);
    clean.options.policy.merge = rule;
    REQUIRE(clean.Start().ok());
    clean.JoinAll();
    std::vector<Digest> digests;
    for (uint64_t version = 1; version <= 5; ++version) {
      round(clean, version);
      digests.push_back(clean.digest());
    }

    TestRun killed(3);
    killed.options.policy.merge = rule;
    REQUIRE(killed.Start().ok());
    killed.JoinAll();
    round(killed, 1);
    round(killed, 2);
    round(killed, 3);
    killed.End();
    // Version 3 has no image: it is folded again from its spools.
    REQUIRE(killed.Start().ok());
    CHECK(killed.digest() == digests[2]);
    round(killed, 4);
    round(killed, 5);
    CHECK(killed.digest() == digests[4]);
    killed.End();

    // And once more without a coordinator, from what the journal says.
    auto archive = RunArchive::Read(&killed.fs, kStateDir);
    REQUIRE(archive.ok());
    const auto values = ValuesAt(**archive, 0, 5);
    CAPTURE(values.status().ToString());
    REQUIRE(values.ok());
    CHECK(DigestOfValues(values->theta) == digests[4]);

    TestRun mean(3);
    REQUIRE(mean.Start().ok());
    mean.JoinAll();
    round(mean, 1);
    CHECK(mean.digest() != digests[0]);
  }
}

// Two fragments in one engine; fragment 1 misses a round of fragment 0.
TEST_CASE("momentum of a fragment that missed a round stays as it is") {
  FaultFileSystem fs;
  const Layout layout =
      BuildLayout({{"first", {16, 16}, TensorClass::kMatrix, true, 0},
                   {"second", {16, 16}, TensorClass::kMatrix, true, 1}},
                  2)
          .value();
  VersionStore versions(&fs, "state");
  SpoolStore spools(&fs, "state/spool");
  REQUIRE(fs.CreateDirs("state").ok());
  FoldEngine::Options options;
  options.fs = &fs;
  options.versions = &versions;
  options.spools = &spools;
  options.layout = &layout;
  options.image_every = 1;
  FoldEngine engine(options);
  const auto created =
      engine.CreateRun([](absl::Span<float>) { return absl::OkStatus(); });
  REQUIRE(created.ok());
  engine.Learn(*created);
  const auto fold = [&](uint32_t fragment, uint64_t round, float value) {
    PartHeader header = {Codec::kFp32, fragment, 0, 256};
    {
      auto file = fs.OpenForWrite("update");
      REQUIRE(file.ok());
      REQUIRE((*file)->Truncate(0).ok());
      PartWriter writer(file->get(), header);
      REQUIRE(writer.Append(std::vector<float>(256, value)).ok());
      REQUIRE(writer.Finish().ok());
    }
    const std::string bytes = ReadFile(&fs, "update").value();
    UpdateValue update;
    update.bytes = bytes.size();
    update.digest = BlockDigest(bytes);
    update.codec = Codec::kFp32;
    auto upload = spools.Open(fragment, round, "a", update,
                              {Codec::kFp32, fragment, 256});
    REQUIRE(upload.ok());
    REQUIRE((*upload)->Write(0, bytes).ok());
    REQUIRE((*upload)->Finish().ok());
    FoldOrder order;
    order.closed.fragment = fragment;
    order.closed.round = round;
    order.closed.members = {{"a", 1, update.digest, 1}};
    order.closed.outer_lr = 1;
    order.closed.outer_momentum = 0.5;
    order.closed.nesterov = false;
    order.base_version = round - 1;
    engine.Learn(order.closed);
    const auto published = engine.Run(fragment, order);
    CAPTURE(published.status().ToString());
    REQUIRE(published.ok());
    engine.Learn(*published);
    versions.Learn(*published);
  };
  const auto momentum = [&](uint32_t fragment, uint64_t version) {
    std::vector<float> theta(256), values(256);
    REQUIRE(versions
                .LoadNewestImage(fragment, version, absl::MakeSpan(theta),
                                 absl::MakeSpan(values))
                .ok());
    return values[17];
  };
  versions.Learn(*created);
  fold(0, 1, 8);
  fold(1, 1, 4);
  CHECK(momentum(1, 1) == 4);
  fold(0, 2, 8);
  fold(0, 3, 8);
  CHECK(momentum(0, 3) == 0.5f * (0.5f * 8 + 8) + 8);
  CHECK(momentum(1, 1) == 4);
  // Neither zero nor decayed by the rounds that it was not in.
  fold(1, 2, 1);
  CHECK(momentum(1, 2) == 0.5f * 4 + 1);
}

}  // namespace
}  // namespace diloco
