// `dilococtl watch`: follows a run event by event, or round by round, until it
// has finished; survives a restart of the coordinator.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/event_text.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/cli/round_table.h"

namespace diloco {
namespace {

constexpr absl::Duration kPoll = absl::Seconds(20);
// How long an unreachable coordinator is tried again.
constexpr absl::Duration kPatience = absl::Minutes(1);
// How long the last version's evaluation is waited for once the run is over.
constexpr absl::Duration kLastEvaluation = absl::Seconds(20);

void PrintOut(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

class Watcher {
 public:
  explicit Watcher(const Invocation& invocation)
      : client_(invocation.coordinator),
        json_(invocation.json),
        rounds_(invocation.Has("rounds")) {}

  absl::Status Run(bool from_start) {
    ASSIGN_OR_RETURN(const v1::StatusResponse status, client_.GetStatus());
    lineage_ = status.fencing().lineage();
    if (!from_start) {
      after_ = status.last_sequence();
      table_.BeginAt(status);
      if (status.phase() == v1::PHASE_FINISHED) {
        PrintNote("the run has finished; see its events with --from-start");
        return absl::OkStatus();
      }
    }
    if (rounds_ && !json_) PrintOut(RoundHeader());
    while (!Over()) {
      ASSIGN_OR_RETURN(const v1::EventsResponse response, NextEvents());
      if (response.fencing().lineage() != lineage_) {
        return absl::FailedPreconditionError(absl::StrCat(
            "coordinator ", client_.coordinator(),
            " serves another run now (its lineage changed); watch it anew"));
      }
      // From the start, after_ is 0: what is kept is what was asked for.
      if (after_ > 0 && response.oldest_sequence() > after_ + 1 && !rounds_) {
        PrintNote(absl::StrCat("events ", after_ + 1, " to ",
                               response.oldest_sequence() - 1,
                               " are no longer kept by the coordinator"));
      }
      for (const v1::AdminEvent& event : response.events()) {
        if (event.sequence() <= after_) continue;
        after_ = event.sequence();
        PrintEvent(event);
        RETURN_IF_ERROR(FlushOutput());
        if (event.record().has_run_finished()) {
          finished_ = true;
          finished_at_ = Clock::Real()->Now();
        }
      }
    }
    PrintRows(table_.Flush());
    return absl::OkStatus();
  }

 private:
  bool Over() const {
    if (!finished_) return false;
    return !rounds_ || !table_.waiting() ||
           Clock::Real()->Now() - finished_at_ > kLastEvaluation;
  }

  // Tries again while the coordinator is away for a short time.
  absl::StatusOr<v1::EventsResponse> NextEvents() {
    Backoff backoff;
    const Instant give_up = Clock::Real()->Now() + kPatience;
    bool told = false;
    while (true) {
      auto response =
          client_.GetEvents(after_, finished_ ? absl::Seconds(1) : kPoll);
      if (response.ok() || ExitCodeOf(response.status()) != kExitTemporary ||
          Clock::Real()->Now() > give_up) {
        return response;
      }
      if (!told) PrintNote("coordinator away, trying again");
      told = true;
      std::this_thread::sleep_for(absl::ToChronoMilliseconds(backoff.Next(1)));
    }
  }

  void PrintEvent(const v1::AdminEvent& event) {
    if (rounds_) {
      PrintRows(table_.Feed(event));
      return;
    }
    if (json_) {
      PrintOut(JsonLine(MessageToJson(event)) + "\n");
      return;
    }
    PrintOut(absl::StrCat(FormatWallTime(event.unix_ms()), " #",
                          event.sequence(), " ", EventText(event.record()),
                          "\n"));
  }

  void PrintRows(const std::vector<RoundRow>& rows) {
    for (const RoundRow& row : rows) {
      PrintOut(json_ ? JsonLine(RoundJson(row)) + "\n" : RoundLine(row));
    }
  }

  static void PrintNote(const std::string& note) {
    std::fprintf(stderr, "dilococtl: %s\n", note.c_str());
  }

  AdminClient client_;
  const bool json_;
  const bool rounds_;
  RoundTable table_;
  std::string lineage_;
  uint64_t after_ = 0;
  bool finished_ = false;
  Instant finished_at_;
};

absl::Status RunWatch(const Invocation& invocation) {
  Watcher watcher(invocation);
  return watcher.Run(invocation.Has("from-start"));
}

}  // namespace

CommandSpec WatchCommand() {
  CommandSpec command;
  command.name = "watch";
  command.summary = "follow the run, a line per event, until it has finished";
  command.flags = {
      {"rounds", "", "a line per round instead: losses, rate, traffic, time"},
      {"from-start", "", "begin with the oldest event that is still kept"},
  };
  command.details =
      "Columns of --rounds: losses in nats per token, eval of the published\n"
      "version; up and down are bytes on the bulk plane; train/transfer/wait "
      "is\n"
      "where the workers' time went since the line before. Both are unknown "
      "of\n"
      "rounds before the coordinator's last start.\n";
  command.example =
      "  dilococtl watch\n"
      "  dilococtl watch --rounds --from-start\n"
      "  dilococtl watch --json | jq .record\n";
  command.run = RunWatch;
  return command;
}

}  // namespace diloco
