#include "tests/sim/oracle.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/tensor/part_file.h"
#include "coordinator/core/round_policy.h"
#include "tests/sim/plan.h"

namespace diloco::sim {
namespace {

// A round closes within a tick of its deadline.
constexpr absl::Duration kDeadlineSlack = absl::Seconds(3);

class TextFile final : public ReadableFile {
 public:
  explicit TextFile(std::string text) : text_(std::move(text)) {}
  absl::Status ReadAt(uint64_t offset, absl::Span<char> out) const override {
    if (offset + out.size() > text_.size()) {
      return absl::OutOfRangeError("past the end");
    }
    std::copy_n(text_.data() + offset, out.size(), out.data());
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> Size() const override { return text_.size(); }
  absl::StatusOr<absl::Span<const char>> Map() override {
    return absl::MakeConstSpan(text_.data(), text_.size());
  }

 private:
  const std::string text_;
};

absl::StatusOr<std::vector<float>> Decoded(const std::string& content) {
  absl::StatusOr<PartReader> reader = PartReader::Open(
      std::make_unique<TextFile>(content), "an offered update");
  if (!reader.ok()) return reader.status();
  std::vector<float> values(static_cast<size_t>(reader->header().elements));
  for (int64_t i = 0; i < reader->frames(); ++i) {
    const absl::Status read = reader->ReadFrame(
        i, absl::MakeSpan(values).subspan(
               static_cast<size_t>(i * kFrameElements),
               static_cast<size_t>(reader->FrameElements(i))));
    if (!read.ok()) return read;
  }
  return values;
}

}  // namespace

Oracle::Oracle(const Policy& policy, const Layout& layout,
               std::vector<float> initial_theta)
    : policy_(policy),
      theta_(std::move(initial_theta)),
      momentum_(static_cast<size_t>(layout.elements)) {
  for (const FragmentSpec& spec : layout.fragments) {
    Fragment& of = fragments_.emplace_back();
    of.first = spec.first;
    of.elements = spec.elements;
    of.digests.push_back(DigestOfValues(absl::MakeConstSpan(theta_).subspan(
        static_cast<size_t>(of.first), static_cast<size_t>(of.elements))));
  }
}

Digest Oracle::digest() const { return DigestOfValues(theta_); }

uint64_t Oracle::MakeStep(int worker, uint64_t tokens, absl::Duration took) {
  const uint64_t id = ++next_step_;
  StepRecord& step = steps_[id];
  step.worker = worker;
  step.tokens = tokens;
  step.took = took;
  tokens_made_ += tokens;
  return id;
}

void Oracle::Offered(int worker, const UpdateOffer& offer,
                     const std::string& content, const StepIds& steps) {
  const Key key{offer.fragment, offer.round, WorkerName(worker)};
  const auto id = std::make_pair(key, offer.digest);
  if (offers_.count(id) != 0) return;
  absl::StatusOr<std::vector<float>> values = Decoded(content);
  if (!values.ok() || BlockDigest(content) != offer.digest) {
    return Break(absl::StrCat(
        WorkerName(worker), " offers for round ", offer.round,
        " what is not the update it names: ", values.status().ToString()));
  }
  uint64_t tokens = 0;
  for (const uint64_t step : steps) tokens += steps_[step].tokens;
  if (tokens != offer.tokens) {
    return Break(absl::StrCat(WorkerName(worker), " offers ", offer.tokens,
                              " tokens for round ", offer.round,
                              ", but its update is made of ", steps.size(),
                              " steps with ", tokens, " tokens"));
  }
  offers_[id] = {offer, *std::move(values), steps};
}

void Oracle::Settled(int worker, const UpdateOffer& offer,
                     const UploadOutcome& outcome) {
  const std::string name = WorkerName(worker);
  const Key key{offer.fragment, offer.round, name};
  if (outcome.kind != UploadOutcome::Kind::kAccepted) {
    if (accepted_.count(key) != 0 && accepted_[key] == offer.digest) {
      Break(absl::StrCat(
          name, " was told that its update for round ", offer.round,
          " is accepted, and then that it is not: ", outcome.reason));
    }
    return;
  }
  accepted_[key] = offer.digest;
  const std::map<uint64_t, RoundClosed>& rounds =
      fragments_[offer.fragment].closed;
  const auto closed = rounds.find(offer.round);
  if (closed == rounds.end() || closed->second.members.empty()) return;
  for (const RoundMember& member : closed->second.members) {
    if (member.worker == name && member.digest == offer.digest) return;
  }
  Break(absl::StrCat("the update of ", name, " for round ", offer.round,
                     " was acknowledged, but the round was folded without it"));
}

void Oracle::Holds(int worker, uint32_t fragment, uint64_t version,
                   const Digest& digest) {
  const std::vector<Digest>& digests = fragments_.at(fragment).digests;
  if (version < digests.size() && digests[version] != digest) {
    Break(absl::StrCat(WorkerName(worker), " holds version ", version,
                       " of fragment ", fragment, " with digest ",
                       digest.Short(), ", published was ",
                       digests[version].Short()));
  }
}

void Oracle::Durable(uint64_t sequence, const Fact& fact, Instant now) {
  if (sequence <= facts_.size()) {
    if (!(facts_[sequence - 1] == fact)) {
      Break(absl::StrCat("fact ", sequence,
                         " of the journal is another one than before"));
    }
    return;
  }
  if (sequence != facts_.size() + 1) {
    return Break(
        absl::StrCat("fact ", sequence, " follows fact ", facts_.size()));
  }
  std::vector<uint64_t> versions_before;
  for (size_t f = 0; f < state_.fragments.size(); ++f) {
    versions_before.push_back(state_.fragments[f].version);
    if (!state_.fragments[f].open.has_value()) continue;
    fragments_[f].leases = state_.fragments[f].open->leases;
    fragments_[f].committed = state_.fragments[f].open->committed;
  }
  const absl::Status evolved = Evolve(state_, fact);
  if (!evolved.ok()) {
    return Break(absl::StrCat("fact ", sequence,
                              " cannot be: ", std::string(evolved.message())));
  }
  facts_.push_back(fact);
  accounts_.Add(fact);
  NoteFact(soft_, fact, now);
  if (const auto* closed = std::get_if<RoundClosed>(&fact)) {
    OnClosed(*closed);
  } else if (const auto* published = std::get_if<VersionPublished>(&fact)) {
    const uint64_t before = versions_before[published->fragment];
    if (published->version != before + 1) {
      Break(absl::StrCat("version ", published->version, " follows version ",
                         before, " of fragment ", published->fragment));
    }
    OnPublished(*published);
  }
}

uint64_t Oracle::WeightOf(const RoundClosed& closed,
                          const RoundMember& member) {
  if (policy_.weighting == Weighting::kUniform) return 1;
  const auto offer = offers_.find(
      {Key{closed.fragment, closed.round, member.worker}, member.digest});
  if (offer == offers_.end()) return 0;
  return std::min(offer->second.offer.tokens,
                  fragments_[closed.fragment].leases[member.worker].tokens);
}

void Oracle::OnClosed(const RoundClosed& closed) {
  Fragment& of = fragments_[closed.fragment];
  if (!of.closed.emplace(closed.round, closed).second) {
    return Break(absl::StrCat("round ", closed.round, " closed twice"));
  }
  std::set<std::string> members;
  for (const RoundMember& member : closed.members) {
    members.insert(member.worker);
    const uint64_t weight = WeightOf(closed, member);
    if (member.weight != weight) {
      Break(absl::StrCat("round ", closed.round, " weighs the update of ",
                         member.worker, " with ", member.weight, ", its ",
                         member.tokens, " tokens stand for ", weight));
    }
  }
  if (closed.members.empty()) return;
  for (const auto& [worker, update] : of.committed) {
    if (members.count(worker) == 0 &&
        state_.workers[worker].membership != Membership::kEvicted) {
      Break(absl::StrCat("the update of ", worker, " for round ", closed.round,
                         " is in the journal, but not in the fold"));
    }
  }
  for (auto told =
           accepted_.lower_bound(Key{closed.fragment, closed.round, ""});
       told != accepted_.end(); ++told) {
    const auto& [fragment, round, worker] = told->first;
    if (fragment != closed.fragment || round != closed.round) break;
    if (members.count(worker) == 0) {
      Break(absl::StrCat("the update of ", worker, " for round ", closed.round,
                         " was acknowledged, but is not in the fold"));
    }
  }
}

void Oracle::FoldSteps(const RoundClosed& closed, const RoundMember& member) {
  const Offer& offer = offers_.at(
      {Key{closed.fragment, closed.round, member.worker}, member.digest});
  ++ledger_.updates;
  ledger_.update_bytes = offer.offer.bytes;
  for (const uint64_t id : offer.steps) {
    StepRecord& step = steps_.at(id);
    if (WorkerName(step.worker) != member.worker) {
      Break(absl::StrCat("round ", closed.round, " folds a step of ",
                         WorkerName(step.worker), " as one of ",
                         member.worker));
    }
    const auto [folded, first] =
        step.folded_in.emplace(closed.fragment, closed.round);
    if (!first) {
      Break(absl::StrCat("step ", id, " of ", member.worker,
                         " is folded in round ", folded->second,
                         " and once more in round ", closed.round,
                         " of fragment ", closed.fragment));
    }
    tokens_folded_ += step.tokens;
  }
}

// The fold, as the aggregate's README has it, in plain loops.
void Oracle::OnPublished(const VersionPublished& published) {
  Fragment& of = fragments_[published.fragment];
  const RoundClosed& closed = of.closed.at(published.round);
  uint64_t divisor = 0;
  std::vector<std::pair<uint64_t, const std::vector<float>*>> inputs;
  for (const RoundMember& member : closed.members) {
    const auto offer = offers_.find(
        {Key{closed.fragment, closed.round, member.worker}, member.digest});
    if (offer == offers_.end()) {
      return Break(absl::StrCat("round ", closed.round,
                                " folds an update that ", member.worker,
                                " never offered"));
    }
    const uint64_t weight = WeightOf(closed, member);
    divisor += weight;
    inputs.push_back({weight, &offer->second.values});
    FoldSteps(closed, member);
  }
  const auto lr = static_cast<float>(policy_.outer_lr);
  const auto mu = static_cast<float>(policy_.outer_momentum);
  const double share = 1.0 / static_cast<double>(divisor);
  const absl::Span<float> theta = absl::MakeSpan(theta_).subspan(
      static_cast<size_t>(of.first), static_cast<size_t>(of.elements));
  const absl::Span<float> momentum = absl::MakeSpan(momentum_).subspan(
      static_cast<size_t>(of.first), theta.size());
  for (size_t i = 0; i < theta.size(); ++i) {
    double sum = 0;
    for (const auto& [weight, values] : inputs) {
      sum += static_cast<double>(weight) * (*values)[i];
    }
    const auto mean = static_cast<float>(sum * share);
    momentum[i] = mu * momentum[i] + mean;
    const float step = policy_.nesterov ? mean + mu * momentum[i] : momentum[i];
    theta[i] += -(lr * step);
  }
  const Digest digest = DigestOfValues(theta);
  of.digests.push_back(digest);
  if (digest != published.digest) {
    Break(absl::StrCat("version ", published.version, " (round ", closed.round,
                       ", ", closed.members.size(), " members, divisor ",
                       divisor, ") was published with digest ",
                       published.digest.Short(), ", a clean replay gives ",
                       digest.Short()));
  }
  // Of rounds long past nothing is asked any more.
  const uint64_t kept = published.round < 8 ? 0 : published.round - 8;
  const Key first{published.fragment, 0, ""};
  const Key past{published.fragment, kept, ""};
  offers_.erase(offers_.lower_bound({first, Digest()}),
                offers_.lower_bound({past, Digest()}));
  accepted_.erase(accepted_.lower_bound(first), accepted_.lower_bound(past));
}

void Oracle::Recovered(uint64_t last_sequence) {
  if (last_sequence < facts_.size()) {
    Break(absl::StrCat("the journal ends at fact ", last_sequence, ", but ",
                       facts_.size(), " were durable before"));
  }
}

void Oracle::Restarted(Instant now) { soft_ = StartSoft(state_, now); }

void Oracle::CheckDeadline(Instant now) {
  const size_t needed = std::max<uint32_t>(1, policy_.min_updates);
  for (uint32_t f = 0; f < state_.fragments.size(); ++f) {
    if (!state_.fragments[f].open.has_value()) continue;
    const OpenRound& open = *state_.fragments[f].open;
    const absl::Duration late =
        -DeadlineLeft(policy_, state_, soft_, f, now) - kDeadlineSlack;
    if (open.committed.size() < needed || late <= absl::ZeroDuration()) {
      continue;
    }
    Break(absl::StrCat(
        "round ", open.round, " has ", open.committed.size(),
        " updates of the ", needed, " that it needs and is open ",
        absl::FormatDuration(late + kDeadlineSlack), " after its deadline"));
  }
}

void Oracle::Lost(const StepIds& steps) {
  for (const uint64_t id : steps) steps_.at(id).lost = true;
}

void Oracle::Found(const StepIds& steps) {
  for (const uint64_t id : steps) steps_.at(id).lost = false;
}

void Oracle::CheckAccounts() {
  for (uint32_t f = 0; f < fragments_.size(); ++f) {
    uint64_t folded = 0;
    for (const auto& [id, step] : steps_) {
      if (step.folded_in.count(f) != 0) folded += step.tokens;
    }
    const LedgerBalance balance = accounts_.Balance(f, state_.fragments[f]);
    if (balance.closes() && balance.unplaced == 0 &&
        balance.tokens.at(WindowFate::kFolded) == folded) {
      continue;
    }
    Break(absl::StrCat("the journal's ledger of fragment ", f,
                       " does not close: ", balance.unexplained,
                       " tokens unexplained, ", balance.uncounted,
                       " uncounted, ", balance.unplaced, " without a place, ",
                       balance.tokens.at(WindowFate::kFolded),
                       " folded, of steps with ", folded));
  }
}

void Oracle::Close(const StepIds& outstanding) {
  CheckAccounts();
  for (const uint64_t id : outstanding) steps_.at(id).outstanding = true;
  uint64_t folded = 0;
  uint64_t tokens = 0;
  for (auto& [id, step] : steps_) {
    tokens += step.tokens;
    folded += step.folded_in.size() * step.tokens;
    // Of its time each fragment has an equal share.
    const auto into = static_cast<int64_t>(step.folded_in.size());
    const auto all = static_cast<int64_t>(fragments_.size());
    ledger_.folded += step.took * into / all;
    step.took = step.took * (all - into) / all;
    if (step.outstanding) {
      ledger_.outstanding += step.took;
    } else if (step.lost) {
      ledger_.lost += step.took;
    } else if (policy_.late == LatePolicy::kReject) {
      ledger_.rejected += step.took;
    } else {
      ledger_.discarded += step.took;
    }
  }
  // What the journal says of folded tokens counts none beyond the leases.
  if (folded != tokens_folded_ || tokens != tokens_made_ ||
      state_.folded_tokens * fragments_.size() > folded) {
    Break(absl::StrCat("the ledger does not close: ", tokens_folded_,
                       " tokens were folded, of steps with ", folded,
                       "; the journal says ", state_.folded_tokens));
  }
}

}  // namespace diloco::sim
