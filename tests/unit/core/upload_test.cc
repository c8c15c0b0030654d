#include <cmath>

#include "tests/support/catch.h"
#include "tests/unit/core/core_run.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;
using Kind = UploadVerdict::Kind;

CoreRun TwoWorkers() {
  CoreRun run;
  run.Join("a");
  run.Join("b");
  return run;
}

bool Says(const absl::Status& status, const std::string& text) {
  INFO(status.ToString());
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST_CASE("C6.1 an equal repeat is accepted with the first receipt") {
  CoreRun run = TwoWorkers();
  const UpdateValue value = run.Value("a");
  REQUIRE(run.Judge("a", 1, value)->kind == Kind::kSend);
  run.Deliver("a");
  for (int i = 0; i < 3; ++i) {
    const auto verdict = run.Judge("a", 1, value);
    REQUIRE(verdict->kind == Kind::kAccepted);
    REQUIRE(verdict->committed->value == value);
    // The sequence number of its own fact, not of what was decided with it.
    REQUIRE(std::holds_alternative<UpdateCommitted>(
        run.facts.at(verdict->committed->sequence - 1)));
    const Decision repeat = run.Do(run.Verified("a", value));
    REQUIRE(repeat.status.ok());
    REQUIRE(repeat.facts.empty());
  }
  run.Deliver("b");
  // Also while the fold runs and after it.
  REQUIRE(run.Judge("a", 1, value)->kind == Kind::kAccepted);
  run.Fold();
  REQUIRE(run.Judge("a", 1, value)->kind == Kind::kAccepted);
  REQUIRE((*DecidedUpload(run.state, "a", 0, 1, value.digest))
              ->committed->sequence ==
          run.Judge("a", 1, value)->committed->sequence);
  REQUIRE(run.Count<UpdateCommitted>() == 2);
}

TEST_CASE("C6.1 other values under the same key are a conflict") {
  CoreRun run = TwoWorkers();
  const UpdateValue first = run.Value("a");
  run.Deliver("a");
  UpdateValue other = first;
  SECTION("digest") { other.digest = Sha256("other"); }
  SECTION("tokens") { other.tokens = 1; }
  SECTION("base") { other.base_version = 9; }
  REQUIRE(run.Judge("a", 1, other).status().code() == Code::kAlreadyExists);
  REQUIRE(run.Do(run.Verified("a", other)).status.code() ==
          Code::kAlreadyExists);
  run.Deliver("b");
  run.Fold();
  REQUIRE(run.Judge("a", 1, other).status().code() == Code::kAlreadyExists);
  REQUIRE(run.closed().members[0].digest == first.digest);
}

TEST_CASE("what is decided about a key is known without its values") {
  CoreRun run = TwoWorkers();
  const Digest digest = run.Value("a").digest;
  const auto decided = [&](const Digest& of) {
    return DecidedUpload(run.state, "a", 0, 1, of);
  };
  REQUIRE_FALSE(decided(digest)->has_value());
  SECTION("accepted") {
    run.Deliver("a");
    REQUIRE((*decided(digest))->kind == Kind::kAccepted);
    REQUIRE(decided(Sha256("other")).status().code() == Code::kAlreadyExists);
  }
  SECTION("refused") {
    run.Refuse("a");
    REQUIRE((*decided(digest))->kind == Kind::kRefused);
  }
  REQUIRE_FALSE(DecidedUpload(run.state, "a", 0, 2, digest)->has_value());
  REQUIRE_FALSE(DecidedUpload(run.state, "a", 7, 1, digest)->has_value());
}

TEST_CASE("C6.5 a late update is in no fold, and the worker is told why") {
  CoreRun run;
  run.policy.deadline = absl::Seconds(20);
  run.policy.late = GENERATE(LatePolicy::kCarry, LatePolicy::kReject);
  run.Join("a");
  run.Join("b");
  const UpdateValue held_back = run.Value("b", 700);
  const int rounds = GENERATE(1, 3);
  for (int i = 0; i < rounds; ++i) {
    run.Deliver("a");
    run.Pass(absl::Seconds(20), {"a", "b"});
    run.Fold();
  }
  const auto verdict = run.Judge("b", 1, held_back);
  REQUIRE(verdict->kind == Kind::kLate);
  INFO(verdict->reason);
  if (run.policy.late == LatePolicy::kReject) {
    REQUIRE(verdict->reason.find("these 700 tokens are lost") !=
            std::string::npos);
  } else {
    REQUIRE(verdict->reason.find("train on") != std::string::npos);
  }
  UpdateVerifiedEvent late = run.Verified("b", held_back);
  late.round = 1;
  const Decision decision = run.Do(late);
  REQUIRE(decision.status.code() == Code::kFailedPrecondition);
  REQUIRE(decision.facts.empty());
  // The worker is back in the round that is open.
  REQUIRE(run.Deliver("b").status.ok());
  REQUIRE(run.open_round().committed.count("b") == 1);
}

TEST_CASE("C6.5 a future round is refused and both rounds are named") {
  CoreRun run = TwoWorkers();
  const absl::Status status = run.Judge("a", 10, run.Value("a")).status();
  REQUIRE(status.code() == Code::kInvalidArgument);
  REQUIRE(Says(status, "round 10"));
  REQUIRE(Says(status, "the run is at round 1"));
  REQUIRE(run.Judge("a", 0, run.Value("a")).status().code() ==
          Code::kInvalidArgument);
}

TEST_CASE("C6.5 a wrong base is refused and both bases are named") {
  CoreRun run = TwoWorkers();
  UpdateValue value = run.Value("a");
  SECTION("version") {
    value.base_version = 3;
    const absl::Status status = run.Judge("a", 1, value).status();
    REQUIRE(status.code() == Code::kInvalidArgument);
    REQUIRE(Says(status, "version 3"));
    REQUIRE(Says(status, "base is version 0"));
  }
  SECTION("digest") {
    value.base_digest = Sha256("damaged");
    const absl::Status status = run.Judge("a", 1, value).status();
    REQUIRE(status.code() == Code::kInvalidArgument);
    REQUIRE(Says(status, value.base_digest.Short()));
    REQUIRE(Says(status, CoreRun::VersionDigest(0).Short()));
  }
  REQUIRE(run.Do(run.Verified("a", value)).status.code() ==
          Code::kInvalidArgument);
}

TEST_CASE("codec, size, tokens and loss of an update are checked") {
  CoreRun run = TwoWorkers();
  UpdateValue value = run.Value("a");
  SECTION("codec") { value.codec = Codec::kFp32; }
  SECTION("size") { value.bytes = 999; }
  SECTION("no tokens") { value.tokens = 0; }
  SECTION("no steps") { value.steps = 0; }
  SECTION("loss") { value.loss = std::nan(""); }
  REQUIRE(run.Judge("a", 1, value).status().code() == Code::kInvalidArgument);
}

TEST_CASE("who has no lease, is unknown or names no fragment is refused") {
  CoreRun run = TwoWorkers();
  run.Join("c");
  REQUIRE(run.Judge("c", 1, run.Value("c")).status().code() ==
          Code::kFailedPrecondition);
  REQUIRE(run.Judge("x", 1, run.Value("x")).status().code() == Code::kNotFound);
  REQUIRE(JudgeUpload(run.policy, run.state, "a", 1, 1, run.Value("a"), 1000)
              .status()
              .code() == Code::kInvalidArgument);
}

TEST_CASE("a refused update uses up its key and the round goes on without") {
  CoreRun run = TwoWorkers();
  REQUIRE(Has<UpdateRefused>(run.Refuse("a")));
  REQUIRE(run.Refuse("a").facts.empty());
  const auto verdict = run.Judge("a", 1, run.Value("a"));
  REQUIRE(verdict->kind == Kind::kRefused);
  REQUIRE(verdict->reason == "element 7 is nan");
  REQUIRE_FALSE(run.Deliver("a").status.ok());
  REQUIRE(run.View("a").leases.empty());
  REQUIRE(run.View("a").notice.find("element 7 is nan") != std::string::npos);
  run.Deliver("b");
  REQUIRE(MemberNames(run.closed()) == Names{"b"});
  REQUIRE(run.closed().missing == Names{"a"});
  run.Fold();
  REQUIRE(run.Judge("a", 1, run.Value("a"))->kind == Kind::kRefused);
  REQUIRE(run.Judge("a", 2, run.Value("a"))->kind == Kind::kSend);
}

TEST_CASE("a committed update cannot be refused afterwards") {
  CoreRun run = TwoWorkers();
  run.Deliver("a");
  REQUIRE(run.Refuse("a").status.code() == Code::kAlreadyExists);
  run.Deliver("b");
  REQUIRE(run.Refuse("a").facts.empty());
  REQUIRE(MemberNames(run.closed()) == Names{"a", "b"});
}

}  // namespace
}  // namespace diloco
