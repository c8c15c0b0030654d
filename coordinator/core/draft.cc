#include "coordinator/core/draft.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "coordinator/core/soft.h"

namespace diloco {

void Draft::Hear(const Event& event) { HearEvent(soft_, event, now_); }

void Draft::Add(Fact fact) {
  const absl::Status status = Evolve(state_, fact);
  DILOCO_CHECK(status.ok())
      << "decided an impossible fact: " << status.ToString();
  NoteFact(soft_, fact, now_);
  decision_.facts.push_back(std::move(fact));
}

void Draft::Say(absl::string_view reason) {
  if (!decision_.reason.empty()) decision_.reason += "; ";
  absl::StrAppend(&decision_.reason, reason);
}

}  // namespace diloco
