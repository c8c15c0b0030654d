// `dilococtl plan`: what a run file means in bytes and times, and what is known
// to do well, without a coordinator.
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/config/numbers.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/message_json.h"
#include "coordinator/cli/run_file.h"
#include "coordinator/cli/run_plan.h"
#include "coordinator/presets.h"

namespace diloco {
namespace {

absl::StatusOr<PlanInput> InputOf(const Invocation& invocation,
                                  const RunConfig& config) {
  PlanInput input;
  input.workers = config.join.wait_for > 1 ? config.join.wait_for : 2;
  if (invocation.Has("workers")) {
    ASSIGN_OR_RETURN(const uint64_t workers,
                     ParseCount("workers", invocation.Get("workers")));
    if (workers < 1 || workers > 100000) {
      return absl::InvalidArgumentError(
          absl::StrCat("--workers ", workers, ": expected 1 to 100000"));
    }
    input.workers = static_cast<uint32_t>(workers);
  }
  if (invocation.Has("step")) {
    const std::string problem =
        ParseDurationWithUnit(invocation.Get("step"), &input.step);
    if (!problem.empty() || input.step <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--step ", invocation.Get("step"),
                       ": expected the time of an inner step, as 250ms or 2s",
                       problem.empty() ? "" : "; ", problem));
    }
  }
  if (invocation.Has("port")) {
    double megabits = 0;
    if (!absl::SimpleAtod(invocation.Get("port"), &megabits) ||
        !(megabits > 0 && megabits < 1e9)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--port ", invocation.Get("port"),
                       ": expected Mbit/s of the coordinator's port, as 1000"));
    }
    input.port_rate = megabits * 1e6 / 8;
  }
  return input;
}

std::string Rate(double bytes) { return FormatBytes(bytes) + "/s"; }

std::string PlanText(const RunConfig& config, const RunPlan& plan,
                     const PlanInput& input,
                     const std::vector<Advice>& advice) {
  const RunConfig::Sync& sync = config.sync;
  std::string text = absl::StrFormat(
      "run %s: %s parameters, %s; H %d, overlap %d %s, mix %g, up %s, down "
      "%s\n",
      config.run, FormatCount(static_cast<uint64_t>(plan.parameters)),
      plan.fragments.size() == 1
          ? std::string("one fragment")
          : absl::StrCat(plan.fragments.size(), " fragments, ",
                         FragmentPatternName(sync.fragments.pattern)),
      sync.interval, sync.overlap,
      sync.merge == MergeMode::kExact ? "exact" : "slip", sync.mix,
      CodecName(sync.up), CodecName(sync.down));
  absl::StrAppendFormat(&text, "%8s %8s %10s %7s %7s %10s %10s\n", "FRAGMENT",
                        "TENSORS", "PARAMETERS", "SHARE", "OFFSET", "UP",
                        "DOWN");
  for (size_t f = 0; f < plan.fragments.size(); ++f) {
    const FragmentPlan& fragment = plan.fragments[f];
    absl::StrAppendFormat(
        &text, "%8d %8d %10s %6.1f%% %7d %10s %10s\n", f, fragment.tensors,
        FormatCount(static_cast<uint64_t>(fragment.parameters)),
        100.0 * static_cast<double>(fragment.parameters) /
            static_cast<double>(plan.parameters),
        fragment.offset, FormatBytes(static_cast<double>(fragment.bytes_up)),
        FormatBytes(static_cast<double>(fragment.bytes_down)));
  }
  const double k = input.workers;
  absl::StrAppendFormat(
      &text,
      "%d workers at %s a step: %d inner steps each, %d rounds%s\n"
      "  a worker     up %s mean, %s peak; down %s mean, %s peak\n"
      "  coordinator  in %s mean, out %s mean; over the run in %s, out %.3g "
      "GB\n"
      "  the largest exchange has %.1f%% of the model; peaks fit it into %d "
      "step%s\n"
      "  synchronous training would send %.0f times as much, %.0f times both "
      "ways\n"
      "  memory       coordinator %s, worker %s and activations\n",
      input.workers, absl::FormatDuration(input.step), plan.inner_steps,
      plan.rounds, plan.fragments.size() == 1 ? "" : " of each fragment",
      Rate(plan.mean_up), Rate(plan.peak_up), Rate(plan.mean_down),
      Rate(plan.peak_down), Rate(k * plan.mean_up), Rate(k * plan.mean_down),
      FormatBytes(plan.ingress), plan.egress / 1e9, 100 * plan.largest_share,
      std::max(1u, sync.overlap), sync.overlap > 1 ? "s" : "", plan.ratio_up,
      plan.ratio_total,
      FormatBytes(static_cast<double>(plan.coordinator_bytes)),
      FormatBytes(static_cast<double>(plan.worker_bytes)));
  if (plan.cost_per_billion > 0) {
    absl::StrAppendFormat(
        &text,
        "  cost         %.2f for workers, %.2f for egress; %.2f per billion "
        "tokens\n",
        plan.gpu_cost, plan.egress_cost, plan.cost_per_billion);
  }
  absl::StrAppendFormat(&text, "%s\n", PresetText(config));
  absl::StrAppendFormat(&text, "%-18s %-10s %-10s %s\n", "KEY", "FILE",
                        "KNOWN GOOD", "WHY");
  for (const Advice& line : advice) {
    absl::StrAppendFormat(&text, "%-18s %-10s %-10s %s\n", line.key, line.value,
                          line.advised, line.reason);
  }
  return text;
}

nlohmann::ordered_json PlanJson(const RunConfig& config, const RunPlan& plan,
                                const std::vector<Advice>& advice) {
  nlohmann::ordered_json json;
  const PresetRow& preset = RowOf(config.sync.preset);
  json["preset"] = {{"name", preset.name},
                    {"source", preset.source},
                    {"published", preset.published}};
  for (const PresetKey& key : PresetKeys(config)) {
    json["preset"]["keys"][key.key] = {{"preset", key.preset},
                                       {"file", key.file}};
  }
  json["parameters"] = plan.parameters;
  json["inner_steps"] = plan.inner_steps;
  json["rounds"] = plan.rounds;
  json["fragments"] = nlohmann::ordered_json::array();
  for (const FragmentPlan& fragment : plan.fragments) {
    json["fragments"].push_back({{"tensors", fragment.tensors},
                                 {"parameters", fragment.parameters},
                                 {"offset", fragment.offset},
                                 {"first_due", fragment.first_due},
                                 {"bytes_up", fragment.bytes_up},
                                 {"bytes_down", fragment.bytes_down}});
  }
  json["largest_share"] = plan.largest_share;
  json["mean_up"] = plan.mean_up;
  json["mean_down"] = plan.mean_down;
  json["peak_up"] = plan.peak_up;
  json["peak_down"] = plan.peak_down;
  json["ingress"] = plan.ingress;
  json["egress"] = plan.egress;
  json["gpu_cost"] = plan.gpu_cost;
  json["egress_cost"] = plan.egress_cost;
  json["cost_per_billion"] = plan.cost_per_billion;
  json["ratio_up"] = plan.ratio_up;
  json["ratio_total"] = plan.ratio_total;
  json["sync_seconds"] = plan.sync_seconds;
  json["coordinator_bytes"] = plan.coordinator_bytes;
  json["worker_bytes"] = plan.worker_bytes;
  json["advice"] = nlohmann::ordered_json::array();
  for (const Advice& line : advice) {
    json["advice"].push_back({{"key", line.key},
                              {"file", line.value},
                              {"known_good", line.advised},
                              {"reason", line.reason}});
  }
  return json;
}

absl::Status RunPlanCommand(const Invocation& invocation) {
  ASSIGN_OR_RETURN(const LoadedRun loaded,
                   LoadRunFile(invocation.positional[0]));
  ASSIGN_OR_RETURN(const PlanInput input, InputOf(invocation, loaded.config));
  ASSIGN_OR_RETURN(const RunPlan plan, PlanOf(loaded.config, input));
  const std::vector<Advice> advice = AdviceFor(loaded.config, plan, input);
  const std::string text =
      invocation.json ? JsonLine(PlanJson(loaded.config, plan, advice)) + "\n"
                      : PlanText(loaded.config, plan, input, advice);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

CommandSpec PlanCommand() {
  CommandSpec command;
  command.name = "plan";
  command.summary = "what a run file means in bytes, bandwidth and memory";
  command.positional = {"FILE"};
  command.flags = {
      {"workers", "K", "how many; default: join.wait_for, at least 2"},
      {"step", "TIME", "of an inner step, as 250ms; default: 1s"},
      {"port", "MBIT/S", "of the coordinator; default: 1000"}};
  command.details =
      "Nothing runs: sizes and offsets of the fragments, mean bandwidth over\n"
      "an interval, peak bandwidth that moves the largest fragment up and "
      "down\n"
      "within the overlap, traffic of the whole run, memory, and beside the\n"
      "file's settings those that are known to do well, with the reason.\n";
  command.example =
      "  dilococtl plan run.yaml --workers 8 --step 400ms --port 10000\n";
  command.run = RunPlanCommand;
  return command;
}

}  // namespace diloco
