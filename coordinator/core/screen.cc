#include "coordinator/core/screen.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace diloco {
namespace {

// Of an even number the lower of the two in the middle: so that half of them
// are not enough to move it.
double LowerMedian(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What an update is compared with.
struct Yardstick {
  double median = 0;
  std::string of;  // In words.
};

std::optional<Yardstick> YardstickFor(const FragmentState& of,
                                      const std::string& worker,
                                      const std::vector<double>& round) {
  if (round.size() >= kFewestToCompare) {
    return Yardstick{LowerMedian(round),
                     absl::StrCat("the round's ", round.size())};
  }
  const auto own = of.norm_history.find(worker);
  if (own == of.norm_history.end() || own->second.size() < kRoundsOfHistory) {
    return std::nullopt;
  }
  return Yardstick{LowerMedian(own->second),
                   absl::StrCat("its last ", own->second.size())};
}

UpdateRefused Refuse(const UpdateCommitted& update, Screen screen) {
  UpdateRefused refused;
  refused.fragment = update.fragment;
  refused.round = update.round;
  refused.worker = update.worker;
  refused.digest = update.value.digest;
  refused.screen = screen;
  return refused;
}

}  // namespace

double NormPerLr(const Policy& policy, const Lease& lease,
                 const UpdateCommitted& update) {
  const double steps =
      static_cast<double>(lease.tokens) /
      static_cast<double>(std::max<uint64_t>(1, policy.batch_tokens));
  const double most = policy.inner_lr * std::max(1.0, steps);
  const double told = update.value.lr_sum;
  const double lr_sum = told > 0 ? std::min(told, most) : most;
  return lr_sum > 0 ? update.norm / lr_sum : 0;
}

std::optional<UpdateRefused> ScreenReplay(const Policy& policy,
                                          const FragmentState& of,
                                          const UpdateVerifiedEvent& event) {
  if (!policy.screen_replay || event.norm == 0) return std::nullopt;
  const auto refuse = [&](const std::string& worker, uint64_t round) {
    UpdateRefused refused;
    refused.fragment = event.fragment;
    refused.round = event.round;
    refused.worker = event.worker;
    refused.digest = event.value.digest;
    refused.screen = Screen::kReplay;
    refused.reason =
        absl::StrCat("it is the update ", event.value.digest.Short(), " that ",
                     worker == event.worker ? "the same worker" : worker,
                     " sent in round ", round, " (screen.replay)",
                     worker == event.worker
                         ? ""
                         : ": a copy, or two workers that train on the same "
                           "shard");
    return refused;
  };
  for (const auto& [name, other] : of.open->committed) {
    if (other.value.digest == event.value.digest) {
      return refuse(name, other.round);
    }
  }
  for (const SeenUpdate& seen : of.seen) {
    if (seen.digest == event.value.digest) {
      return refuse(seen.worker, seen.round);
    }
  }
  return std::nullopt;
}

std::vector<UpdateRefused> ScreenRound(const Policy& policy, const State& state,
                                       uint32_t fragment) {
  std::vector<UpdateRefused> refused;
  const FragmentState& of = state.fragments[fragment];
  if (policy.screen_norm <= 0 || !of.open.has_value()) return refused;
  std::map<std::string, double> figures;
  std::vector<double> round;  // A zero update is no measure of others.
  for (const auto& [name, update] : of.open->committed) {
    if (state.workers.at(name).membership == Membership::kEvicted) continue;
    const double figure = NormPerLr(policy, of.open->leases.at(name), update);
    figures[name] = figure;
    if (figure > 0) round.push_back(figure);
  }
  for (const auto& [name, figure] : figures) {
    const std::optional<Yardstick> yardstick = YardstickFor(of, name, round);
    if (!yardstick.has_value()) continue;
    const double limit = policy.screen_norm * yardstick->median;
    if (figure <= limit) continue;
    const UpdateCommitted& update = of.open->committed.at(name);
    UpdateRefused& out = refused.emplace_back(Refuse(update, Screen::kNorm));
    out.figure = figure;
    out.limit = limit;
    out.reason = absl::StrFormat(
        "its norm %.4g over its summed learning rate is %.4g, %.3g times the "
        "median %.4g of %s; screen.norm allows %g times",
        update.norm, figure, figure / yardstick->median, yardstick->median,
        yardstick->of, policy.screen_norm);
  }
  return refused;
}

}  // namespace diloco
