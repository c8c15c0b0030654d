// One fact of each kind with every field set, for the tests of the codec and
// of the journal's golden file. The order and the values are on disk there.
#ifndef TESTS_UNIT_STORE_SAMPLE_FACTS_H_
#define TESTS_UNIT_STORE_SAMPLE_FACTS_H_

#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/facts.h"

namespace diloco {

inline Digest SampleDigest(int n) { return Sha256(absl::StrCat("digest", n)); }
inline FileRef SampleFile(int n) {
  return FileRef{SampleDigest(n), 1000ull + n};
}

inline std::vector<Fact> SampleFacts() {
  const Lease lease = {"a", 25, 30'000, 4400, 0.25, 0.001};
  const Lease other = {"b", 25, 25'600, 0, 0.125, 0.005};
  const Lease rest = {"d", 7, 36'100, 30'000, 0.5, 0.002, 25};
  UpdateValue value;
  value.base_version = 7;
  value.base_digest = SampleDigest(1);
  value.bytes = 1ull << 40;
  value.digest = SampleDigest(2);
  value.codec = Codec::kBf16;
  value.tokens = 25'600;
  value.steps = 25;
  value.loss = 3.75;
  RunCreated created;
  created.run = "kjv";
  created.lineage = "0123456789abcdef";
  created.settings_digest = SampleDigest(3);
  created.layout_digest = SampleDigest(4);
  created.fragments = {{SampleDigest(5), SampleFile(6), SampleFile(7)},
                       {SampleDigest(8), SampleFile(9), SampleFile(10)}};
  UpdateValue told = value;
  told.lr_sum = 0.0625;
  told.data_end = 76'800;
  RunCreated with_tensors = created;
  with_tensors.fragments[0].tensors = {{512, true}, {int64_t{1} << 40, false}};
  with_tensors.fragments[1].tensors = {{256, false}};
  return {
      created,
      EpochStarted{3, "12345678"},
      WorkerJoined{"a", "session-session-", "attempt-attempt-", true,
                   "ipv4:10.0.0.1:5000", "previous-session"},
      WorkerReturned{"a"},
      WorkerDeparted{"a", Departure::kLost, "not heard of for 30 s"},
      DrainRequested{"b"},
      RoundOpened{1,
                  12,
                  7,
                  {lease, other},
                  {{"c", "lost"}},
                  absl::Milliseconds(48'250),
                  "2 workers"},
      RoundExtended{1, 12, {other}, "deadline"},
      UpdateCommitted{1, 12, "a", value, 0.5f, 2.25},
      UpdateRefused{1, 12, "b", SampleDigest(11), "element 7 is nan"},
      RoundClosed{1,
                  12,
                  {{"a", 25'600, SampleDigest(2), 25'600}},
                  {"b"},
                  3.75,
                  absl::Milliseconds(31'007),
                  0.7,
                  0.9,
                  true,
                  "deadline"},
      VersionPublished{1, 12, 8, SampleDigest(12), SampleFile(13),
                       SampleFile(14), SampleFile(15), 1'000'000},
      EvalOpened{8, {}, {{"a", 0, 4}, {"b", 4, 3}}},
      EvalReassigned{8, 1, "a", "b is lost"},
      EvalReported{8, 1, "a", 123.5, 4096},
      EvalAbandoned{8, "version 9 is published"},
      PauseChanged{true, "maintenance \xce\xb8", true},
      StopRequested{20, "enough"},
      RunFinished{"train.tokens reached"},
      LineageStarted{"fedcba9876543210",
                     {{8, SampleDigest(12), SampleFile(14), SampleFile(15)},
                      {7, SampleDigest(16), SampleFile(17), SampleFile(18)}},
                     1'000'000,
                     "rolled back"},
      SettingsChanged{2,
                      {{"train.tokens", "1800000", "3000000", false},
                       {"sync.min_updates", "2", "1", true}},
                      13,
                      true,
                      SampleDigest(16),
                      "ann@desk",
                      "more data"},
      LeaseAdded{1, 12, rest, "goes on in its window"},
      with_tensors,
      UpdateCommitted{1, 12, "a", told, 0.5f, 2.25},
      UpdateRefused{1, 12, "b", SampleDigest(11), "its norm is 50000",
                    Screen::kNorm, 50000.5, 1000.25},
      RoundClosed{1,
                  12,
                  {{"a", 25'600, SampleDigest(2), 25'600, 36.5}},
                  {"b"},
                  3.75,
                  absl::Milliseconds(31'007),
                  0.7,
                  0.9,
                  true,
                  "deadline",
                  MergeRule::kRadialDirectional}};
}

}  // namespace diloco

#endif  // TESTS_UNIT_STORE_SAMPLE_FACTS_H_
