#include "coordinator/runtime/settings.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

constexpr char kNotSet[] = "not set";
// Its value is what the file holds, and only the run file says where it lies.
constexpr char kFileKey[] = "eval.shard";

std::string ValueOf(const SettingValues& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? kNotSet : found->second;
}

void Say(std::string& text, const std::string& key, const std::string& file,
         const std::string& run) {
  absl::StrAppend(&text, text.empty() ? "" : "; ", key, " is ", file,
                  " in the run file, ", run, " in the state directory");
}

// Tokens that will be folded once the open round has closed.
uint64_t TokensAtBoundary(const State& state) {
  uint64_t tokens = 0;
  for (const FragmentState& fragment : state.fragments) {
    tokens += fragment.folded_tokens;
    if (fragment.open.has_value()) {
      for (const auto& [name, lease] : fragment.open->leases) {
        tokens += lease.tokens;
      }
    }
    if (!fragment.folding.has_value()) continue;
    for (const RoundMember& member : fragment.folding->members) {
      tokens += member.tokens;
    }
  }
  return tokens / std::max<uint64_t>(1, state.fragments.size());
}

}  // namespace

SettingValues ParseSettings(absl::string_view text) {
  SettingValues values;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(line, absl::MaxSplits(" = ", 1));
    values.insert(pair);
  }
  return values;
}

Settings::Settings(SettingsView file, SettingsSource source)
    : file_(std::move(file)),
      source_(std::move(source)),
      file_values_(ParseSettings(file_.text)),
      in_force_(std::make_shared<SettingsView>(file_)) {}

absl::Status Settings::SetCreated(const std::string& created) {
  created_ = ParseSettings(created);
  base_.clear();
  std::set<std::string> keys;
  for (const auto& [key, value] : file_values_) keys.insert(key);
  for (const auto& [key, value] : created_) keys.insert(key);
  std::string fixed;
  for (const std::string& key : keys) {
    const std::string file = ValueOf(file_values_, key);
    const std::string run = ValueOf(created_, key);
    if (file == run) continue;
    if (source_.changeable.count(key) == 0) {
      const bool is_new = created_.count(key) == 0;
      if (is_new && file == ValueOf(source_.defaults, key)) continue;
      Say(fixed, key, file, run);
    } else if (created_.count(key) != 0) {
      base_[key] = run;
    }
  }
  if (fixed.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(fixed);
}

absl::StatusOr<SettingValues> Settings::Recover(const State& state,
                                                const std::string& seen,
                                                bool accept) {
  const SettingValues seen_values = ParseSettings(seen);
  SettingValues edits;
  std::string difference;
  for (const auto& [key, at_once] : source_.changeable) {
    const std::string file = ValueOf(file_values_, key);
    const std::string run = state.settings.accepted.count(key) != 0
                                ? state.settings.accepted.at(key)
                                : ValueOf(created_, key);
    // A key that is new in this build begins with what the run file says.
    if (file == run || run == kNotSet) continue;
    if (ValueOf(seen_values, key) == file) {
      DILOCO_LOG(INFO)
          << "a setting was changed since the run file was written "
             "run="
          << state.run << " key=" << key << " in_force=\"" << run
          << "\" run_file=\"" << file << "\"";
      continue;
    }
    edits[key] = file;
    Say(difference, key, file, run);
  }
  if (!edits.empty() && !accept) {
    return absl::FailedPreconditionError(difference);
  }
  Follow(state);
  return edits;
}

absl::StatusOr<SettingsView> Settings::With(
    const SettingValues& changed) const {
  SettingValues values = changed;
  values.insert(base_.begin(), base_.end());
  // What the run file says itself needs no change; files are only there.
  std::erase_if(values, [this](const auto& entry) {
    return entry.first == kFileKey ||
           ValueOf(file_values_, entry.first) == entry.second;
  });
  if (values.empty()) return file_;
  if (source_.with == nullptr) {
    return absl::FailedPreconditionError("the settings of this run are fixed");
  }
  return source_.with(values);
}

void Settings::Follow(const State& state) {
  absl::StatusOr<SettingsView> view = With(state.settings.in_force);
  DILOCO_CHECK(view.ok()) << "settings in force: " << view.status().message();
  view->revision = state.settings.applied;
  in_force_ = std::make_shared<SettingsView>(*std::move(view));
}

absl::StatusOr<SettingsView> Settings::Accepted(const State& state) const {
  return With(state.settings.accepted);
}

absl::StatusOr<SettingsEvent> Settings::Plan(const State& state,
                                             const SettingValues& values,
                                             const std::string& by,
                                             const std::string& reason) const {
  ASSIGN_OR_RETURN(const SettingsView accepted, Accepted(state));
  SettingValues changed = state.settings.accepted;
  for (const auto& [key, value] : values) changed[key] = value;
  ASSIGN_OR_RETURN(const SettingsView wanted, With(changed));
  const SettingValues before = ParseSettings(accepted.text);
  SettingsEvent event;
  event.base_revision = state.settings.revision;
  event.train_tokens = wanted.policy.train_tokens;
  event.settings_digest = Sha256(wanted.text);
  event.by = by;
  event.reason = reason;
  for (const auto& [key, value] : ParseSettings(wanted.text)) {
    const auto known = state.settings.accepted.find(key);
    const std::string old = known != state.settings.accepted.end()
                                ? known->second
                            : base_.count(key) != 0 ? base_.at(key)
                                                    : ValueOf(before, key);
    if (old == value) continue;
    const auto changeable = source_.changeable.find(key);
    event.changes.push_back(
        {key, old, value,
         changeable != source_.changeable.end() && changeable->second});
  }
  if (!event.changes.empty()) return event;
  std::string same;
  for (const auto& [key, value] : values) {
    absl::StrAppend(&same, same.empty() ? "" : ", ", key, " is ",
                    ValueOf(before, key), " already");
  }
  return absl::AlreadyExistsError(same);
}

absl::StatusOr<SettingValues> Settings::PlanDecay(const State& state,
                                                  uint64_t tokens) const {
  ASSIGN_OR_RETURN(const SettingsView accepted, Accepted(state));
  const TrainSettings& train = accepted.run.train;
  if (train.schedule != ScheduleShape::kWsd) {
    return absl::FailedPreconditionError(
        "train.schedule.shape is not wsd: there is no decay to begin; "
        "dilococtl "
        "set train.tokens moves the end of the run");
  }
  const uint64_t begin = TokensAtBoundary(state);
  double reached = state.settings.progress_floor;
  for (const FragmentState& fragment : state.fragments) {
    for (const auto& [name, window] : fragment.windows) {
      reached = std::max(reached, window.progress_reached);
    }
  }
  const double now =
      std::max(reached, static_cast<double>(begin) /
                            static_cast<double>(std::max<uint64_t>(
                                1, accepted.policy.train_tokens)));
  if (now > 1 - train.decay_share) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the decay has begun already, at %.1f%% of the run, "
                        "which is at %.1f%%; "
                        "dilococtl set train.tokens moves its end",
                        100 * (1 - train.decay_share), 100 * now));
  }
  if (tokens == 0 || tokens > ~uint64_t{0} - begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("the decay cannot last ", tokens, " tokens"));
  }
  const uint64_t end = begin + tokens;
  const double share = 1 - std::max(reached, static_cast<double>(begin) /
                                                 static_cast<double>(end));
  return SettingValues{
      {"train.tokens", absl::StrCat(end)},
      // A millionth of the run more makes it a figure that can be read.
      {"train.schedule.decay_share",
       absl::StrFormat("%.6g", std::min(1.0, std::ceil(share * 1e6) / 1e6))}};
}

uint64_t Settings::TrainTokensAt(const State& state) const {
  const SettingValues& changed = state.settings.in_force;
  const std::string text = changed.count("train.tokens") != 0
                               ? changed.at("train.tokens")
                               : ValueOf(created_, "train.tokens");
  uint64_t tokens = 0;
  return absl::SimpleAtoi(text, &tokens) ? tokens : file_.policy.train_tokens;
}

}  // namespace diloco
