// dilococtl against a scripted coordinator over real gRPC.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/io/file_system.h"
#include "common/model/hf_directory.h"
#include "common/tensor/part_file.h"
#include "coordinator/cli/commands.h"
#include "nlohmann/json.hpp"
#include "tests/component/cli/scripted_admin.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace diloco {
namespace {

struct Outcome {
  int code = 0;
  std::string out;
};

// Runs with stdout in a file.
Outcome Run(const ScriptedAdmin& coordinator, std::vector<std::string> args) {
  args.insert(args.begin(), {"--coordinator", coordinator.address()});
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stdout);
  const int saved = dup(STDOUT_FILENO);
  dup2(fileno(file), STDOUT_FILENO);
  Outcome outcome;
  outcome.code = RunDilococtl(args);
  std::fflush(stdout);
  dup2(saved, STDOUT_FILENO);
  close(saved);
  std::rewind(file);
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, file)) {
    outcome.out.append(buffer, got);
  }
  std::fclose(file);
  return outcome;
}

// A finished run of two rounds.
void Script(ScriptedAdmin* coordinator) {
  coordinator->status.set_run("kjv");
  coordinator->status.set_phase(v1::PHASE_FINISHED);
  coordinator->status.mutable_fencing()->set_lineage("0123456789abcdef");
  coordinator->status.set_last_sequence(5);
  const auto add = [&]() {
    v1::AdminEvent& event = coordinator->events.emplace_back();
    event.set_sequence(coordinator->events.size());
    event.set_unix_ms(1000 * static_cast<int64_t>(event.sequence()));
    return &event;
  };
  for (uint64_t round = 1; round <= 2; ++round) {
    auto* closed = add()->mutable_record()->mutable_round_closed();
    closed->set_round(round);
    closed->add_members()->set_worker("w");
    auto* published = add()->mutable_record()->mutable_version_published();
    published->set_round(round);
    published->set_version(round);
  }
  coordinator->events.back().mutable_status()->mutable_eval()->set_version(2);
  add()->mutable_record()->mutable_run_finished()->set_reason("all tokens");
}

TEST_CASE("watch prints a line per event and ends with the run") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  const Outcome outcome = Run(coordinator, {"watch", "--from-start"});
  CHECK(outcome.code == kExitOk);
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') == 5);
  CHECK_THAT(outcome.out, Catch::EndsWith("#5 run finished: all tokens\n"));
}

TEST_CASE("watch --rounds prints a line per round under a header") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  const Outcome outcome =
      Run(coordinator, {"watch", "--rounds", "--from-start"});
  CHECK(outcome.code == kExitOk);
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') == 3);
}

TEST_CASE("watch --json prints one object per line") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  const Outcome outcome = Run(coordinator, {"watch", "--json", "--from-start"});
  const auto first =
      nlohmann::json::parse(outcome.out.substr(0, outcome.out.find('\n')));
  CHECK(first["sequence"] == 1);
  CHECK(first["record"]["round_closed"]["members"][0]["worker"] == "w");
}

TEST_CASE("status has everything as text and as JSON") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  coordinator.status.add_workers()->set_name("site-a");
  const Outcome text = Run(coordinator, {"status"});
  CHECK(text.code == kExitOk);
  CHECK_THAT(text.out, Catch::StartsWith("run kjv: finished") &&
                           Catch::Contains("site-a"));
  const Outcome json = Run(coordinator, {"status", "--json"});
  CHECK(nlohmann::json::parse(json.out)["workers"][0]["name"] == "site-a");
}

TEST_CASE("status prints what others wrote without control characters") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  coordinator.status.set_phase_reason("paused: \x1b]0;x\x07\nrun b: fine");
  coordinator.events[0].mutable_record()->mutable_round_closed()->set_reason(
      "\x1b[2J\nforged line");
  const std::string status = Run(coordinator, {"status"}).out;
  CHECK_THAT(status, Catch::Contains("(paused: \\x1b]0;x\\x07\\x0arun b"));
  const std::string events = Run(coordinator, {"watch", "--from-start"}).out;
  CHECK_THAT(events, Catch::Contains(": \\x1b[2J\\x0aforged line\n"));
}

TEST_CASE("status shows no loss and no rate before the first step") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  coordinator.status.add_workers()->set_name("fresh");
  std::istringstream lines(Run(coordinator, {"status"}).out);
  std::string line, word;
  while (std::getline(lines, line) && line.find("fresh") == line.npos) {
  }
  std::vector<std::string> words;
  for (std::istringstream in(line); in >> word;) words.push_back(word);
  REQUIRE(words.size() >= 6);
  // Name, rounds, tokens, loss, rate, heard.
  CHECK(words[3] == "-");
  CHECK(words[4] == "-");
}

TEST_CASE("output that cannot be written is a failure") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  for (const char* command : {"status", "watch", "report", "pause"}) {
    INFO(command);
    std::fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    const int full = open("/dev/full", O_WRONLY);
    REQUIRE(full >= 0);
    dup2(full, STDOUT_FILENO);
    std::vector<std::string> args = {"--coordinator", coordinator.address(),
                                     command};
    if (std::string(command) == "watch") args.push_back("--from-start");
    const int code = RunDilococtl(args);
    std::clearerr(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(full);
    CHECK(code == kExitOther);
  }
}

TEST_CASE("the controls reach the coordinator with their arguments") {
  ScriptedAdmin coordinator;
  CHECK(Run(coordinator, {"pause", "--reason", "disk"}).out == "understood\n");
  CHECK(Run(coordinator, {"resume"}).code == kExitOk);
  CHECK(Run(coordinator, {"stop"}).code == kExitOk);
  CHECK(Run(coordinator, {"stop", "--after-round", "7"}).code == kExitOk);
  CHECK(Run(coordinator, {"drain", "a"}).code == kExitOk);
  CHECK(Run(coordinator, {"evict", "b"}).code == kExitOk);
  CHECK(coordinator.calls == std::vector<std::string>{"pause disk", "resume ",
                                                      "stop", "stop 7",
                                                      "drain a", "evict b"});
}

TEST_CASE("a refusal by the coordinator has its exit code") {
  ScriptedAdmin coordinator;
  coordinator.refusal = {grpc::StatusCode::PERMISSION_DENIED, "no"};
  CHECK(Run(coordinator, {"evict", "a"}).code == kExitRefused);
  coordinator.refusal = {grpc::StatusCode::NOT_FOUND, "no worker a"};
  CHECK(Run(coordinator, {"evict", "a"}).code == kExitOther);
}

constexpr char kConfig[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
  "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 16,
  "max_position_embeddings": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "hidden_act": "silu", "tie_word_embeddings": true,
  "attention_bias": false, "mlp_bias": false})";

// An image of version 1 in which every value is 0.5.
void ServeModel(ScriptedAdmin* coordinator, const TempDir& dir) {
  FileSystem* const fs = FileSystem::Posix();
  const Layout layout =
      *BuildLayout(ModelTensors(*ParseHfConfig("config.json", kConfig)), 1);
  const std::vector<float> values(layout.elements, 0.5f);
  {
    auto file = *fs->OpenForWrite(dir.File("image"));
    PartHeader header;
    header.elements = layout.elements;
    PartWriter writer(file.get(), header);
    REQUIRE(writer.Append(values).ok());
    REQUIRE(writer.Finish().ok());
  }
  v1::ExportDescription& description = coordinator->description;
  description.set_run("kjv");
  description.set_version(1);
  description.set_model_json(kConfig);
  description.set_layout_digest(layout.ComputeDigest().ToBytes());
  v1::FileRef* ref = description.add_fragments()->add_files();
  *ref = coordinator->AddFile(v1::FILE_KIND_IMAGE,
                              *ReadFile(fs, dir.File("image")));
  ref->set_version(1);
  ref->set_result_digest(DigestOfValues(values).ToBytes());
}

TEST_CASE("export writes a directory that reads back, and nothing else") {
  ScriptedAdmin coordinator;
  const TempDir dir;
  ServeModel(&coordinator, dir);
  FileSystem* const fs = FileSystem::Posix();
  // Somebody else's.
  for (const char* name : {"model.files", "model.tmp"}) {
    REQUIRE(fs->CreateDirs(dir.File(name)).ok());
    REQUIRE(WriteFileAtomic(fs, JoinPath(dir.File(name), "mine"), "kept").ok());
  }
  const Outcome outcome =
      Run(coordinator, {"export", "--out", dir.File("model")});
  REQUIRE(outcome.code == kExitOk);
  const ModelConfig config = *ReadHfConfig(fs, dir.File("model"));
  const Layout layout = *BuildLayout(ModelTensors(config), 1);
  std::vector<float> theta(layout.elements);
  REQUIRE(ReadHfWeights(fs, dir.File("model"), config, layout,
                        absl::MakeSpan(theta))
              .ok());
  CHECK(theta[0] == 0.5f);
  for (const char* name : {"model.files", "model.tmp"}) {
    CHECK(*ReadFile(fs, JoinPath(dir.File(name), "mine")) == "kept");
  }
  CHECK(fs->List(dir.File(""))->size() == 4);  // And the image served.
  CHECK(Run(coordinator, {"export", "--out", dir.File("model")}).code ==
        kExitOther);
}

TEST_CASE("an export that fails leaves nothing behind") {
  ScriptedAdmin coordinator;
  const TempDir dir;
  ServeModel(&coordinator, dir);
  SECTION("a file that the coordinator no longer has") {
    coordinator.files.clear();
  }
  SECTION("a file with other content than its digest says") {
    coordinator.files.begin()->second[100] ^= 1;
  }
  SECTION("a tokenizer file that would land elsewhere") {
    v1::NamedFile* file = coordinator.description.add_tokenizer();
    file->set_name("../evil");
    *file->mutable_file() =
        coordinator.AddFile(v1::FILE_KIND_TOKENIZER, "text");
  }
  CHECK(Run(coordinator, {"export", "--out", dir.File("model")}).code != 0);
  FileSystem* const fs = FileSystem::Posix();
  CHECK(fs->List(dir.File("")).value() == std::vector<std::string>{"image"});
}

TEST_CASE("every command prints JSON under --json, a line each") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  const TempDir dir;
  ServeModel(&coordinator, dir);
  coordinator.status.set_build("1.2.3");
  coordinator.status.mutable_eval()->set_loss(std::nan(""));
  const std::map<std::string, std::vector<std::string>> arguments = {
      {"drain", {"w"}},
      {"evict", {"w"}},
      {"set", {"outer.lr", "0.5"}},
      {"decay", {"--tokens", "300k"}},
      {"watch", {"--from-start"}},
      {"export", {"--out", dir.File("model\xff")}},
  };
  for (const CommandSpec& command : AllCommands()) {
    std::vector<std::string> args = {command.name, "--json"};
    const auto more = arguments.find(command.name);
    if (more != arguments.end()) {
      args.insert(args.end(), more->second.begin(), more->second.end());
    }
    INFO(command.name);
    // What takes a state directory: tests/e2e/state_directory_test.py.
    if (!command.positional.empty() && command.positional[0] != "WORKER" &&
        command.name != "config") {
      CHECK(Run(coordinator, {command.name, dir.File("missing")}).code !=
            kExitOk);
      continue;
    }
    if (command.name == "refold") continue;
    if (command.name == "config") {
      CHECK(Run(coordinator, {"config", "--json", "check", "run.yaml"}).code ==
            kExitUsage);
      continue;
    }
    const Outcome outcome = Run(coordinator, args);
    REQUIRE(outcome.code == kExitOk);
    REQUIRE_FALSE(outcome.out.empty());
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(nlohmann::json::accept(line));
    }
  }
  const auto rounds =
      Run(coordinator, {"watch", "--rounds", "--json", "--from-start"});
  CHECK(nlohmann::json::parse(
            rounds.out.substr(0, rounds.out.find('\n')))["version"] == 1);
}

TEST_CASE("version names itself and the coordinator, or says there is none") {
  ScriptedAdmin coordinator;
  coordinator.status.set_build("1.2.3");
  CHECK_THAT(Run(coordinator, {"version"}).out,
             Catch::StartsWith("dilococtl ") &&
                 Catch::EndsWith("coordinator: 1.2.3\n"));
  const auto json =
      nlohmann::json::parse(Run(coordinator, {"version", "--json"}).out);
  CHECK(json["coordinator"] == "1.2.3");
}

TEST_CASE("report sums the run up") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  coordinator.status.set_parameters(1000);
  for (const char* name : {"a", "b"}) {
    v1::WorkerStatus* worker = coordinator.status.add_workers();
    worker->set_name(name);
    worker->set_rounds_folded(2);
    worker->mutable_progress()->set_inner_steps(50);
    worker->mutable_progress()->set_bytes_sent(4000);
    worker->mutable_progress()->set_bytes_received(8000);
    worker->mutable_progress()->set_train_seconds(3);
    worker->mutable_progress()->set_wait_seconds(1);
  }
  const Outcome text = Run(coordinator, {"report"});
  CHECK(text.code == kExitOk);
  CHECK_THAT(text.out,
             Catch::Contains("from 2 workers, 100 inner steps in all") &&
                 Catch::Contains("utilisation      75.0%"));
  const auto json =
      nlohmann::json::parse(Run(coordinator, {"report", "--json"}).out);
  CHECK(json["utilisation"] == 0.75);
}

TEST_CASE("an event from before the coordinator's start has no time") {
  ScriptedAdmin coordinator;
  Script(&coordinator);
  coordinator.events[0].set_unix_ms(0);
  CHECK_THAT(Run(coordinator, {"watch", "--from-start"}).out,
             Catch::StartsWith("- #1 round 1 closed"));
}

TEST_CASE("export needs a place to write to") {
  ScriptedAdmin coordinator;
  CHECK(Run(coordinator, {"export"}).code == kExitUsage);
}

}  // namespace
}  // namespace diloco
