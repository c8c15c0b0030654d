// What must hold in every simulated run, checked with each fact that becomes
// durable, each step and each answer. Sees everything: the facts of all lives
// of the coordinator, every update's content and the steps in it.
//
//   one version per fragment round, each one more than the one before
//   a version is the fold of its members, recomputed here from their content
//     with weights from the run's rule, bit for bit, across all restarts
//   what was durable once is still there after every restart
//   a step is folded into each fragment at most once, by the worker that made
//     it, with its tokens
//   an accepted update is in the fold of its round, or that is void
//   the ledger closes for each fragment: a step is folded, discarded, lost or
//     outstanding, and the journal's own ledger agrees
//   a round with enough updates closes at its deadline
//   who says that it holds a version holds its bits
#ifndef TESTS_SIM_ORACLE_H_
#define TESTS_SIM_ORACLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/io/digest.h"
#include "common/tensor/layout.h"
#include "coordinator/core/ledger.h"
#include "coordinator/core/machine.h"
#include "coordinator/core/soft.h"
#include "tests/sim/sim_trainer.h"
#include "worker/transport/coordinator_port.h"

namespace diloco::sim {

class Oracle {
 public:
  Oracle(const Policy& policy, const Layout& layout,
         std::vector<float> initial_theta);

  // A new step of a worker: its number.
  uint64_t MakeStep(int worker, uint64_t tokens, absl::Duration took);
  // An update is about to be sent. `steps` are those it is made of.
  void Offered(int worker, const UpdateOffer& offer, const std::string& content,
               const StepIds& steps);
  void Settled(int worker, const UpdateOffer& offer,
               const UploadOutcome& outcome);
  void Holds(int worker, uint32_t fragment, uint64_t version,
             const Digest& digest);
  // In order; those seen before must be the same.
  void Durable(uint64_t sequence, const Fact& fact, Instant now);
  // Those of a new life that are known to be all of the one before.
  void Recovered(uint64_t last_sequence);
  void Restarted(Instant now);
  // The coordinator could not write for so long: deadlines wait meanwhile.
  void StoodStill(absl::Duration stall) { StandStill(soft_, stall); }
  void CheckDeadline(Instant now);
  // A crash or the loss of a disk took these from a worker, unless they were
  // sent before.
  void Lost(const StepIds& steps);
  // A checkpoint had these.
  void Found(const StepIds& steps);
  // At the end of a run: the ledger. `outstanding` are in windows.
  void Close(const StepIds& outstanding);
  // Of the ledger, once it is closed: the time in which steps were made.
  struct Ledger {
    absl::Duration folded;
    absl::Duration discarded;  // By a verdict, a void round, the run's end.
    absl::Duration rejected;   // Likewise, in a run with `late: reject`.
    absl::Duration lost;
    absl::Duration outstanding;
    uint64_t updates = 0;       // That were folded, and
    uint64_t update_bytes = 0;  // the size of each.
  };
  const Ledger& ledger() const { return ledger_; }

  // The first thing that did not hold, in words with figures; empty: none.
  const std::string& broken() const { return broken_; }
  void Break(const std::string& what) {
    if (broken_.empty()) broken_ = what;
  }

  const State& state() const { return state_; }
  uint64_t facts() const { return facts_.size(); }
  // Of the newest version, of all fragments together.
  Digest digest() const;
  // Tokens: made in all steps, and of those in a fold.
  uint64_t tokens_made() const { return tokens_made_; }
  uint64_t tokens_folded() const { return tokens_folded_; }

 private:
  struct StepRecord {
    int worker = 0;
    uint64_t tokens = 0;
    absl::Duration took;
    std::map<uint32_t, uint64_t> folded_in;  // Fragment, round.
    bool lost = false;
    bool outstanding = false;
  };
  struct Offer {
    UpdateOffer offer;
    std::vector<float> values;
    StepIds steps;
  };
  // Fragment, round, worker.
  using Key = std::tuple<uint32_t, uint64_t, std::string>;
  struct Fragment {
    int64_t first = 0;
    int64_t elements = 0;
    std::vector<Digest> digests;  // By version.
    std::map<uint64_t, RoundClosed> closed;
    // Of the round that was closed last: what it was leased and had received.
    std::map<std::string, Lease> leases;
    std::map<std::string, StoredUpdate> committed;
  };

  void OnClosed(const RoundClosed& closed);
  void OnPublished(const VersionPublished& published);
  uint64_t WeightOf(const RoundClosed& closed, const RoundMember& member);
  void FoldSteps(const RoundClosed& closed, const RoundMember& member);
  void CheckAccounts();

  const Policy policy_;
  std::vector<float> theta_;
  std::vector<float> momentum_;
  State state_;
  Soft soft_;                // The instants that deadlines run from.
  std::vector<Fact> facts_;  // By sequence number, from 1.
  diloco::Ledger accounts_;  // Of the same facts.
  std::vector<Fragment> fragments_;
  std::map<uint64_t, StepRecord> steps_;
  std::map<std::pair<Key, Digest>, Offer> offers_;
  std::map<Key, Digest> accepted_;  // What workers were told.
  uint64_t next_step_ = 0;
  uint64_t tokens_made_ = 0;
  uint64_t tokens_folded_ = 0;
  Ledger ledger_;
  std::string broken_;
};

}  // namespace diloco::sim

#endif  // TESTS_SIM_ORACLE_H_
