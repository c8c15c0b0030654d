// The run's settings as they change: which of them count now, what an edited
// run file means, and whether a change is possible. Used by CoordinatorImpl on
// the sequencer's thread, and by recovery.
#ifndef COORDINATOR_RUNTIME_SETTINGS_H_
#define COORDINATOR_RUNTIME_SETTINGS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/run_settings.h"
#include "coordinator/core/machine.h"

namespace diloco {

// Keys of the run file and their values, canonical or as an operator wrote.
using SettingValues = std::map<std::string, std::string>;

// All settings at one time. `revision` differs where anything does.
struct SettingsView {
  uint64_t revision = 0;
  Policy policy;
  RunSettings run;
  std::string text;  // Lines "key = value", canonical.
};

// What the runtime needs to know of the run file, which it does not read.
struct SettingsSource {
  // The run file's settings with other values for some keys; errors say what is
  // wrong with them. Null: nothing may change.
  std::function<absl::StatusOr<SettingsView>(const SettingValues&)> with;
  // Keys that may change; true: also within a round.
  std::map<std::string, bool> changeable;
  // What keys are where no run file names them. A run that was created by an
  // earlier program does not know the newer ones, and was as these say.
  SettingValues defaults;
};

// A line "key = value" each.
SettingValues ParseSettings(absl::string_view text);

class Settings {
 public:
  // `file`: those of the run file.
  Settings(SettingsView file, SettingsSource source);

  // `created`: what the run was created with. FAILED_PRECONDITION when a fixed
  // key differs from it, or is new and not at its default.
  absl::Status SetCreated(const std::string& created);
  // `seen`: the run file's settings at the last start. Values that differ from
  // those accepted are edits, unless the file said so before. Edits need
  // `accept`, else FAILED_PRECONDITION with the difference; taken, they are
  // what Recover returns, to be planned as a change.
  absl::StatusOr<SettingValues> Recover(const State& state,
                                        const std::string& seen, bool accept);

  // Brings in_force() up to the state.
  void Follow(const State& state);
  const std::shared_ptr<const SettingsView>& in_force() const {
    return in_force_;
  }
  // What will be in force once the open round has closed.
  absl::StatusOr<SettingsView> Accepted(const State& state) const;

  // The event that gives `values` to their keys. ALREADY_EXISTS: they have
  // these values.
  absl::StatusOr<SettingsEvent> Plan(const State& state,
                                     const SettingValues& values,
                                     const std::string& by,
                                     const std::string& reason) const;
  // The values that let the decay begin now and the run end `tokens` later.
  absl::StatusOr<SettingValues> PlanDecay(const State& state,
                                          uint64_t tokens) const;

  // Of a state that is being replayed, before Recover.
  uint64_t TrainTokensAt(const State& state) const;

 private:
  // The run file's settings with what the run has instead.
  absl::StatusOr<SettingsView> With(const SettingValues& changed) const;

  const SettingsView file_;
  const SettingsSource source_;
  SettingValues file_values_;
  SettingValues created_;
  // Of keys that may change: what the run was created with, where the run file
  // differs.
  SettingValues base_;
  std::shared_ptr<const SettingsView> in_force_;
};

}  // namespace diloco

#endif  // COORDINATOR_RUNTIME_SETTINGS_H_
