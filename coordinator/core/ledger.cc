#include "coordinator/core/ledger.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"

namespace diloco {

const char* WindowFateName(WindowFate fate) {
  switch (fate) {
    case WindowFate::kPending:
      return "pending";
    case WindowFate::kFolded:
      return "folded";
    case WindowFate::kDiscarded:
      return "discarded";
    case WindowFate::kOverwritten:
      return "overwritten";
    case WindowFate::kLost:
      return "lost";
  }
  return "unknown";
}

struct Ledger::Apply {
  Ledger& ledger;

  template <typename Other>
  void operator()(const Other&) {}

  void operator()(const WorkerJoined& fact) {
    if (!fact.fresh) return;
    for (auto& [key, stream] : ledger.streams_) {
      if (key.second != fact.worker) continue;
      stream.gap = WindowFate::kLost;
      stream.reason.clear();
    }
  }

  void operator()(const UpdateCommitted& fact) {
    const Key key{fact.fragment, fact.worker};
    Stream& stream = ledger.streams_[key];
    LedgerWindow window;
    window.fragment = fact.fragment;
    window.round = fact.round;
    window.worker = fact.worker;
    window.tokens = fact.value.tokens;
    if (fact.value.data_end > 0) {
      window.end = fact.value.data_end;
      window.first = window.end - window.tokens;
      if (window.first > stream.reached) {
        LedgerWindow gap = window;
        gap.first = stream.reached;
        gap.end = window.first;
        gap.tokens = gap.end - gap.first;
        gap.fate = stream.gap;
        gap.reason = stream.reason;
        ledger.windows_.push_back(gap);
      } else {
        window.again = std::min(stream.reached, window.end) - window.first;
      }
      stream.reached = std::max(stream.reached, window.end);
    }
    stream.gap = WindowFate::kOverwritten;
    stream.reason.clear();
    ledger.received_[key] = ledger.windows_.size();
    ledger.windows_.push_back(std::move(window));
  }

  void operator()(const UpdateRefused& fact) {
    const Key key{fact.fragment, fact.worker};
    const auto received = ledger.received_.find(key);
    if (received != ledger.received_.end()) {
      Discard(received->second, fact.reason);
      ledger.received_.erase(received);
      return;
    }
    // What it holds is not recorded; the next one tells where it ends.
    ledger.streams_[key].gap = WindowFate::kDiscarded;
    ledger.streams_[key].reason = fact.reason;
  }

  void operator()(const RoundClosed& fact) {
    for (const RoundMember& member : fact.members) {
      const auto received =
          ledger.received_.find({fact.fragment, member.worker});
      if (received == ledger.received_.end()) continue;
      ledger.windows_[received->second].counted = member.tokens;
    }
    DropReceived(fact.fragment, /*members=*/false,
                 fact.members.empty() ? absl::StrCat("void: ", fact.reason)
                                      : "its worker was evicted");
  }

  void operator()(const VersionPublished& fact) {
    std::vector<size_t>& folded =
        ledger.versions_[{fact.fragment, fact.version}];
    folded.clear();
    for (auto it = ledger.received_.lower_bound({fact.fragment, ""});
         it != ledger.received_.end() && it->first.first == fact.fragment;) {
      ledger.windows_[it->second].fate = WindowFate::kFolded;
      folded.push_back(it->second);
      it = ledger.received_.erase(it);
    }
  }

  void operator()(const LineageStarted& fact) {
    for (uint32_t f = 0; f < fact.fragments.size(); ++f) {
      DropReceived(f, /*members=*/true, "undone");
      const auto first =
          ledger.versions_.upper_bound({f, fact.fragments[f].version});
      const auto last = ledger.versions_.upper_bound({f, UINT64_MAX});
      for (auto it = first; it != last; ++it) {
        for (const size_t index : it->second) Discard(index, "undone");
      }
      ledger.versions_.erase(first, last);
    }
  }

  void Discard(size_t index, const std::string& reason) {
    LedgerWindow& window = ledger.windows_[index];
    window.fate = WindowFate::kDiscarded;
    window.counted = 0;
    window.reason = reason;
  }

  // Those of a fragment that were received and are in no version.
  void DropReceived(uint32_t fragment, bool members,
                    const std::string& reason) {
    for (auto it = ledger.received_.lower_bound({fragment, ""});
         it != ledger.received_.end() && it->first.first == fragment;) {
      if (!members && ledger.windows_[it->second].counted > 0) {
        ++it;
        continue;
      }
      Discard(it->second, reason);
      it = ledger.received_.erase(it);
    }
  }
};

void Ledger::Add(const Fact& fact) { std::visit(Apply{*this}, fact); }

LedgerBalance Ledger::Balance(uint32_t fragment,
                              const FragmentState& state) const {
  LedgerBalance balance;
  for (const WindowFate fate : kWindowFates) balance.tokens[fate] = 0;
  uint64_t placed = 0;
  uint64_t counted = 0;
  for (const LedgerWindow& window : windows_) {
    if (window.fragment != fragment) continue;
    ++balance.windows;
    balance.tokens[window.fate] += window.tokens;
    balance.again += window.again;
    (window.end == 0 ? balance.unplaced : placed) += window.tokens;
    if (window.fate == WindowFate::kFolded) counted += window.counted;
  }
  for (const auto& [key, stream] : streams_) {
    if (key.first == fragment) balance.reached += stream.reached;
  }
  uint64_t awaited = 0;
  if (state.open.has_value()) {
    for (const auto& [worker, update] : state.open->committed) {
      awaited += update.value.tokens;
    }
  }
  if (state.folding.has_value()) {
    for (const RoundMember& member : state.folding->members) {
      awaited += state.last_committed.at(member.worker).value.tokens;
    }
  }
  balance.unexplained =
      static_cast<int64_t>(placed - balance.again) -
      static_cast<int64_t>(balance.reached) +
      static_cast<int64_t>(balance.tokens[WindowFate::kPending]) -
      static_cast<int64_t>(awaited);
  balance.uncounted =
      static_cast<int64_t>(counted) - static_cast<int64_t>(state.folded_tokens);
  return balance;
}

}  // namespace diloco
