// A decision in the making: facts are applied to a copy of the state as they
// are added, so that later parts of the decision see them. Used by the parts
// of Decide (decide.h).
#ifndef COORDINATOR_CORE_DRAFT_H_
#define COORDINATOR_CORE_DRAFT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/core/machine.h"

namespace diloco {

class Draft {
 public:
  Draft(const Policy& policy, const State& state, const Soft& soft, Instant now)
      : policy_(policy),
        settings_applied_(state.settings.applied),
        now_(now),
        state_(state),
        soft_(soft) {}

  const Policy& policy() const { return policy_; }
  // The settings in force are no longer those of policy().
  bool policy_is_old() const {
    return state_.settings.applied != settings_applied_;
  }
  Instant now() const { return now_; }
  const State& state() const { return state_; }
  const Soft& soft() const { return soft_; }

  // The event itself, as far as it is soft: whoever sent it was heard of.
  void Hear(const Event& event);
  void Add(Fact fact);
  // Adds a sentence to the decision's reason.
  void Say(absl::string_view reason);
  Decision Take() { return std::move(decision_); }

 private:
  const Policy& policy_;
  const uint64_t settings_applied_;
  const Instant now_;
  State state_;
  Soft soft_;
  Decision decision_;
};

}  // namespace diloco

#endif  // COORDINATOR_CORE_DRAFT_H_
