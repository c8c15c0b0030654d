// A run that has come some way, for the tests of offline tools.
#ifndef TESTS_COMPONENT_COORDINATOR_OFFLINE_RUN_H_
#define TESTS_COMPONENT_COORDINATOR_OFFLINE_RUN_H_

#include <memory>
#include <string>
#include <vector>

#include "coordinator/offline/run_archive.h"
#include "coordinator/offline/verify.h"
#include "tests/component/coordinator/test_run.h"
#include "tests/support/catch.h"

namespace diloco {

inline void IgnoreProgress(uint64_t) {}

// Two workers, an image every other version, five versions.
struct OfflineRun {
  explicit OfflineRun(uint64_t segment_bytes = Journal::kSegmentBytes)
      : run(2) {
    run.options.image_every = 2;
    run.options.settings_text = "outer.lr = 0.7\n";
    run.options.settings_digest = Sha256(run.options.settings_text);
    run.options.journal_segment_bytes = segment_bytes;
    REQUIRE(run.Start().ok());
    run.JoinAll();
    for (uint64_t version = 1; version <= 5; ++version) {
      run.DeliverAll();
      REQUIRE(run.AwaitVersion(version).ok());
      digests.push_back(run.digest());
    }
  }
  std::unique_ptr<RunArchive> Archive(const std::string& dir = kStateDir) {
    auto archive = RunArchive::Read(&run.fs, dir);
    INFO(archive.status());
    REQUIRE(archive.ok());
    return *std::move(archive);
  }
  // The first problem; empty: all is good.
  std::string Problem(const std::string& dir = kStateDir) {
    std::string problem;
    const bool good = VerifyRun(*Archive(dir), [&](const Finding& finding) {
      if (finding.kind == Finding::Kind::kProblem && problem.empty()) {
        problem = finding.text;
      }
    });
    CHECK(good == problem.empty());
    return problem;
  }

  TestRun run;
  std::vector<Digest> digests;  // Of versions 1, 2, ...
};

}  // namespace diloco

#endif  // TESTS_COMPONENT_COORDINATOR_OFFLINE_RUN_H_
