// Typed reading through a table: keys, types, bounds, all errors at once.
#include "common/config/field_table.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

// A small file of every type.
struct Sample {
  std::string name = "unset";
  std::string address = "h:1";
  double lr = 0.1;
  double beta1 = 0.9, beta2 = 0.95;
  double limit = 1;
  uint32_t workers = 1;
  uint64_t tokens = 0;
  bool flag = false;
  int mode = 0;
  absl::Duration every = absl::Minutes(1);
  std::optional<absl::Duration> deadline;
  uint64_t rate = 0;
  uint32_t rounds = 1;
  std::string path = "p";
  std::vector<std::string> paths;
  FieldTable table;
  ConfigErrors errors{"f.yaml"};

  Sample() {
    table.Add({.path = "name", .value = Name(&name), .required = true});
    table.Add({.path = "address", .value = HostPort(&address)});
    table.Add({.path = "opt.lr", .value = Real(&lr, {0, 10, true})});
    table.Add(
        {.path = "opt.betas", .value = RealList({&beta1, &beta2}, {0, 1})});
    table.Add({.path = "opt.limit", .value = Real(&limit, {0, 100})});
    table.Add({.path = "workers", .value = Count(&workers, 1u, 64u)});
    table.Add({.path = "tokens",
               .value = Count(&tokens, 0, 1'000'000'000),
               .required = true});
    table.Add({.path = "flag", .value = Bool(&flag), .no_effect = true});
    table.Add({.path = "mode",
               .value = NotYet(Choice<int>(&mode, {{"one", 1}, {"two", 2}}),
                               {"three"})});
    table.Add({.path = "every",
               .value = Duration(&every, absl::Seconds(1), absl::Hours(1))});
    table.Add(
        {.path = "deadline",
         .value = DurationOrAuto(&deadline, absl::Seconds(1), absl::Hours(1))});
    table.Add({.path = "rate", .value = ByteRate(&rate, 1)});
    table.Add({.path = "rounds", .value = Rounds(&rounds, 100)});
    table.Add({.path = "path", .value = Path(&path, "base")});
    table.Add(
        {.path = "paths", .value = OrNone(PathList(&paths, "base"), &paths)});
    table.Refuse("later", "not available yet");
  }

  std::vector<std::string> Read(const std::string& text) {
    Node root;
    if (ParseDocument(text, &errors, &root)) table.Read(root, &errors);
    return errors.Lines();
  }
};

const char kBase[] = "name: a\ntokens: 1k\n";

TEST_CASE("good values of every type are read") {
  Sample s;
  REQUIRE(s.Read("name: w-1\naddress: \"[::1]:80\"\n"
                 "opt: {lr: 1e-4, betas: [.9, 0.99]}\nworkers: 64\n"
                 "tokens: 1.8M\nflag: true\nmode: two\nevery: 30s\n"
                 "deadline: 2m\nrate: 10MiB/s\nrounds: 3 rounds\npath: x/y\n"
                 "paths: [a, /b]\n") == std::vector<std::string>{});
  CHECK(s.name == "w-1");
  CHECK(s.address == "[::1]:80");
  CHECK(s.lr == 1e-4);
  CHECK(s.beta2 == 0.99);
  CHECK(s.workers == 64);
  CHECK(s.tokens == 1'800'000);
  CHECK(s.flag);
  CHECK(s.mode == 2);
  CHECK(s.every == absl::Seconds(30));
  CHECK(s.deadline == absl::Minutes(2));
  CHECK(s.rate == 10u << 20);
  CHECK(s.rounds == 3);
  CHECK(s.path == "base/x/y");
  CHECK(s.paths == std::vector<std::string>{"base/a", "/b"});
  CHECK(s.table.IsSet("opt.lr"));
  CHECK_FALSE(s.table.IsSet("opt.limit"));
  REQUIRE(s.table.warnings().size() == 1);
  CHECK(s.table.warnings()[0] ==
        "f.yaml:6:1: flag: set, but it has no effect in this build");
}

TEST_CASE(
    "C4.1 C4.4 each bad value is an error with key, value and what is "
    "allowed") {
  struct Case {
    const char* line;
    const char* where;
    const char* words;
  };
  const Case cases[] = {
      {"opt: {lr: 1e}", "f.yaml:3:11: opt.lr: got 1e: ", "a number above 0"},
      {"opt: {lr: 1e400}", "f.yaml:3:11: opt.lr: ", "too large or too small"},
      {"opt: {lr: 1e-400}", "f.yaml:3:11: opt.lr: ", "too large or too small"},
      {"opt: {lr: \"1e-4\"}", "f.yaml:3:11: opt.lr: got \"1e-4\": ", "quote"},
      {"opt: {lr: 0x10}", "f.yaml:3:11: opt.lr: ", "decimal"},
      {"opt: {lr: 1_000}", "f.yaml:3:11: opt.lr: ", "separators"},
      {"opt: {lr: 0}", "f.yaml:3:11: opt.lr: got 0: ", "out of bounds"},
      {"opt: {lr: .nan}", "f.yaml:3:11: opt.lr: got .nan: ", "finite"},
      {"opt: {limit: .inf}", "f.yaml:3:14: opt.limit: got .inf: ", "0 to 100"},
      {"opt: {lr: }", "f.yaml:3:7: opt.lr: got no value", "a number above 0"},
      {"opt: {lr: [1]}", "f.yaml:3:11: opt.lr: got a list", ""},
      {"opt: {betas: [0.9]}", "f.yaml:3:14: opt.betas: ", "it has 1"},
      {"opt: {betas: [0.9, x]}", "f.yaml:3:14: opt.betas: ", "item 2 is x"},
      {"opt: {betas: 0.9}", "f.yaml:3:14: opt.betas: ", "no list"},
      {"opt:", "f.yaml:3:1: opt: got nothing", "keys below it"},
      {"opt: lr", "f.yaml:3:6: opt: got lr", "keys below it"},
      {"opt:\n  lr:1", "f.yaml:4:3: opt: got lr:1", "space after ':'"},
      {"workers: -1", "f.yaml:3:10: workers: got -1: ", "from 1 to 64"},
      {"workers: 65", "f.yaml:3:10: workers: got 65: ", "from 1 to 64"},
      {"workers: 1e3", "f.yaml:3:10: workers: ", "whole number"},
      {"workers: 1,000", "f.yaml:3:10: workers: ", "separators"},
      {"workers: 010", "f.yaml:3:10: workers: ", "leading zeros"},
      {"workers: 1.5", "f.yaml:3:10: workers: ", "whole number"},
      {"address: \"[:1\"", "f.yaml:3:10: address: ", "brackets"},
      {"address: \"[]:1\"", "f.yaml:3:10: address: ", "no IPv6 address"},
      {"address: \"[host]:1\"", "f.yaml:3:10: address: ", "no IPv6 address"},
      {"address: \"a[b]:1\"", "f.yaml:3:10: address: ", "brackets"},
      {"address: h:010", "f.yaml:3:10: address: ", "leading zeros"},
      {"address: h", "f.yaml:3:10: address: ", "port is missing"},
      {"address: h:65536", "f.yaml:3:10: address: ", "out of bounds"},
      {"address: ::1:80", "f.yaml:3:10: address: ", "brackets"},
      {"address: 010", "f.yaml:3:10: address: ", "HOST:PORT"},
      {"flag: y", "f.yaml:3:7: flag: got y: ", "true or false"},
      {"flag: yes", "f.yaml:3:7: flag: ", "true or false"},
      {"flag: on", "f.yaml:3:7: flag: ", "true or false"},
      {"flag: True", "f.yaml:3:7: flag: ", "true or false"},
      {"flag: 1", "f.yaml:3:7: flag: ", "true or false"},
      {"flag: \"true\"", "f.yaml:3:7: flag: ", "quotes"},
      {"mode: three", "f.yaml:3:7: mode: got three: ", "not available yet"},
      {"mode: four", "f.yaml:3:7: mode: got four: ", "one of one, two"},
      {"every: 30", "f.yaml:3:8: every: got 30: ", "needs a unit"},
      {"every: 2h", "f.yaml:3:8: every: got 2h: ", "from 1s to 1h"},
      {"deadline: none", "f.yaml:3:11: deadline: ", "or auto"},
      {"rate: 10MiB", "f.yaml:3:7: rate: ", "per second"},
      {"rounds: 5", "f.yaml:3:9: rounds: got 5: ", "unit"},
      {"rounds: 5 days", "f.yaml:3:9: rounds: got 5 days: ", "rounds"},
      {"path: ~", "f.yaml:3:1: path: got no value", "a path"},
      {"path: \"a\\0b\"", "f.yaml:3:7: path: ", "control character"},
      {"path: \"\"", "f.yaml:3:7: path: got \"\": ", "blank"},
      {"paths: [a, {b: 1}]", "f.yaml:3:8: paths: ", "item 2"},
      {"later: 1", "f.yaml:3:1: later: not available yet", ""},
      {"later: {x: 1}", "f.yaml:3:1: later: not available yet", ""},
      {"word", "f.yaml:3:1: word: unknown key", "key: value"},
      {"workers:100", "f.yaml:3:1: workers:100: ", "space after ':'"},
  };
  for (const Case& c : cases) {
    INFO(c.line);
    Sample s;
    const std::vector<std::string> errors =
        s.Read(std::string(kBase) + c.line + "\n");
    REQUIRE(errors.size() == 1);
    CAPTURE(errors[0]);
    CHECK(absl::StartsWith(errors[0], c.where));
    CHECK(absl::StrContains(errors[0], c.words));
  }
}

TEST_CASE("C4.4 a worker is never called null") {
  for (const char* line : {"name:", "name: null", "name: ~", "name: Null",
                           "name: \"null\"", "name: \"\"", "name: \" \""}) {
    INFO(line);
    Sample s;
    const std::vector<std::string> errors =
        s.Read(std::string(line) + "\ntokens: 1\n");
    REQUIRE(errors.size() == 1);
    CAPTURE(errors[0]);
    CHECK(absl::StartsWith(errors[0], "f.yaml:1:"));
    CHECK(absl::StrContains(errors[0], ": name: got "));
    CHECK(absl::StrContains(errors[0], "a name: 1 to 63"));
    CHECK(s.name == "unset");
  }
}

TEST_CASE("C4.2 an unknown key names the nearest known one") {
  Sample s;
  const std::vector<std::string> errors = s.Read(
      "name: a\ntokens: 1\nwokers: 3\nlr: 1\nopt:\n  limits: 1\n  rounds: 1\n");
  REQUIRE(errors.size() == 4);
  CHECK(errors[0] ==
        "f.yaml:3:1: wokers: unknown key; the nearest known one is workers");
  CHECK(errors[1] == "f.yaml:4:1: lr: unknown key; did you mean opt.lr?");
  CHECK(errors[2] ==
        "f.yaml:6:3: opt.limits: unknown key; the nearest known one is "
        "opt.limit");
  CHECK(errors[3] ==
        "f.yaml:7:3: opt.rounds: unknown key; did you mean rounds?");
}

TEST_CASE("C4.3 an empty file names the first required key") {
  for (const char* text :
       {"", "# only\n# comments\n", "---\n", "{}\n", "\n\n"}) {
    INFO(text);
    Sample s;
    const std::vector<std::string> errors = s.Read(text);
    REQUIRE(errors.size() == 3);
    CHECK(errors[0] ==
          "f.yaml:1:1: the file has no keys; the first required one is name");
    CHECK(absl::StartsWith(errors[2],
                           "f.yaml:1:1: tokens: required key is missing"));
  }
}

TEST_CASE("all errors of a file come at once, structural ones included") {
  Sample s;
  const std::vector<std::string> errors =
      s.Read("workers: -1\nflag: y\nflag: n\nnope: 1\nopt: {lr: x}\n");
  REQUIRE(errors.size() == 7);  // Two required keys are missing.
}

TEST_CASE("printing gives a text that reads back to the same values") {
  Sample s;
  REQUIRE(s.Read("name: w\ntokens: 50k\nopt: {lr: 1e-4}\npaths: [\"/a b\", "
                 "'/\"c\"\\']\ndeadline: 1500ms\nrate: 1MB/s\nmode: one\n"
                 "path: /p\n") == std::vector<std::string>{});
  const std::string printed = s.table.Print();
  CHECK(absl::StrContains(printed,
                          "opt:\n  lr: 1.0e-04\n  betas: [0.9, 0.95]\n"));
  CHECK(absl::StrContains(printed, "tokens: 50000\n"));
  Sample again;
  REQUIRE(again.Read(printed) == std::vector<std::string>{});
  CHECK(again.table.Print() == printed);
  CHECK(again.lr == s.lr);
  CHECK(again.paths == s.paths);
  CHECK(again.deadline == s.deadline);
  const std::string part =
      s.table.Print([](const Field& f) { return f.path == "opt.lr"; });
  CHECK(part == "opt:\n  lr: 1.0e-04\n");
}

}  // namespace
}  // namespace diloco
