// `dilococtl decay`: the learning rate's decay begins now.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/numbers.h"
#include "coordinator/cli/change_settings.h"
#include "coordinator/cli/commands.h"

namespace diloco {
namespace {

absl::Status RunDecay(const Invocation& invocation) {
  const std::string text = invocation.Get("tokens");
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "decay needs --tokens N, a count such as 300k: the run ends so many "
        "tokens after the open round");
  }
  uint64_t tokens = 0;
  const std::string problem = ParseCount(text, &tokens);
  if (!problem.empty() || tokens == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokens ", text, ": ",
                     problem.empty() ? "a decay takes some" : problem,
                     "; expected a count, such as 300k"));
  }
  v1::ChangeSettingsRequest request;
  request.set_decay_tokens(tokens);
  return ChangeSettings(invocation, std::move(request));
}

}  // namespace

CommandSpec DecayCommand() {
  CommandSpec command;
  command.name = "decay";
  command.summary = "begin the learning rate's decay now; the run ends with it";
  command.flags = {
      {"tokens", "N",
       "folded tokens from the open round's end to the run's "
       "(required)"},
      {"reason", "TEXT", "kept in the journal and shown to everyone"}};
  command.details =
      "For train.schedule.shape wsd, before its decay has begun: sets "
      "train.tokens\n"
      "and train.schedule.decay_share so that the decay begins with the next "
      "round\n"
      "and the run ends N tokens later. Where that makes the run longer, the "
      "rate\n"
      "stays until the schedule, which never goes back, has caught up.\n";
  command.example = "  dilococtl decay --tokens 300k\n";
  command.run = RunDecay;
  return command;
}

}  // namespace diloco
