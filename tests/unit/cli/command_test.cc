#include "coordinator/cli/command.h"

#include "coordinator/cli/commands.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

absl::StatusOr<Invocation> Parse(const CommandSpec& command,
                                 const std::vector<std::string>& args) {
  bool help = false;
  return ParseInvocation(command, Invocation{}, args, &help);
}

CommandSpec Stop() { return StopCommand(); }

TEST_CASE("flags take their value after a blank or an equals sign") {
  auto blank = Parse(Stop(), {"--after-round", "12", "--json"});
  REQUIRE(blank.ok());
  CHECK(blank->Get("after-round") == "12");
  CHECK(blank->json);
  auto equals = Parse(Stop(), {"--after-round=12", "--coordinator=10.0.0.5:1"});
  REQUIRE(equals.ok());
  CHECK(equals->Get("after-round") == "12");
  CHECK(equals->coordinator == "10.0.0.5:1");
}

TEST_CASE("an unknown flag names the nearest one") {
  const auto wrong = Parse(Stop(), {"--after-rund", "12"});
  REQUIRE(wrong.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(wrong.status().message()),
             Catch::Contains("did you mean --after-round?"));
  const auto far = Parse(Stop(), {"--xyzzy"});
  REQUIRE_FALSE(far.ok());
  CHECK_THAT(std::string(far.status().message()),
             !Catch::Contains("did you mean"));
}

TEST_CASE("a flag without its value and a value too many are refused") {
  CHECK_FALSE(Parse(Stop(), {"--after-round"}).ok());
  CHECK_FALSE(Parse(Stop(), {"--json=yes"}).ok());
  CHECK_FALSE(Parse(Stop(), {"now"}).ok());
  CHECK_FALSE(Parse(DrainCommand(), {}).ok());
  CHECK(Parse(DrainCommand(), {"w1"}).ok());
  CHECK_FALSE(Parse(DrainCommand(), {"w1", "w2"}).ok());
}

TEST_CASE("an address that can be no coordinator's is wrong usage") {
  for (const char* bad : {"x", "host:99999", "host:0", ":7600", "[:1", "a b:1",
                          "host:", "host:-1"}) {
    INFO(bad);
    CHECK(RunDilococtl({"--coordinator", bad, "status"}) == kExitUsage);
    CHECK(RunDilococtl({"status", "--coordinator", bad}) == kExitUsage);
  }
  CHECK(Parse(Stop(), {"--coordinator", "[::1]:7600"}).ok());
}

TEST_CASE("a reason is plain text") {
  CHECK(Parse(Stop(), {"--reason", "caf\xC3\xA9, for the disk"}).ok());
  for (const char* bad : {"\xFF\xFE", "a\x1b[2J", "two\nlines"}) {
    CHECK(Parse(Stop(), {"--reason", bad}).status().code() ==
          absl::StatusCode::kInvalidArgument);
    CHECK_FALSE(Parse(DrainCommand(), {bad}).ok());
  }
  // A path may have any byte.
  CHECK(Parse(ExportCommand(), {"--out", "model\xFF"}).ok());
}

TEST_CASE("no round has the number 0") {
  CHECK(RunDilococtl({"stop", "--after-round", "0"}) == kExitUsage);
}

TEST_CASE("config has only the flags that do something for it") {
  const std::string help = CommandHelp(ConfigCommand());
  CHECK_THAT(help, Catch::Contains("--help") && !Catch::Contains("--json") &&
                       !Catch::Contains("--coordinator"));
  CHECK_FALSE(Parse(ConfigCommand(), {"check", "f", "--json"}).ok());
}

TEST_CASE("counts are whole decimal numbers") {
  CHECK(*ParseCount("after-round", "40") == 40);
  for (const char* text : {"", "-1", "+1", "1.5", "1e3", "0x10", " 1",
                           "99999999999999999999999"}) {
    CHECK_FALSE(ParseCount("after-round", text).ok());
  }
}

TEST_CASE("wrong usage and an unreachable coordinator have their exit codes") {
  CHECK(RunDilococtl({}) == kExitUsage);
  CHECK(RunDilococtl({"statsu"}) == kExitUsage);
  CHECK(RunDilococtl({"status", "--jsn"}) == kExitUsage);
  CHECK(RunDilococtl({"stop", "--after-round", "x"}) == kExitUsage);
  // Port 1 needs a privilege to listen on; nobody does here.
  CHECK(RunDilococtl({"--coordinator", "127.0.0.1:1", "status"}) ==
        kExitTemporary);
}

TEST_CASE("every command has help with an example") {
  CHECK(RunDilococtl({"--help"}) == kExitOk);
  for (const CommandSpec& command : AllCommands()) {
    INFO(command.name);
    CHECK_FALSE(command.summary.empty());
    CHECK_THAT(command.example, Catch::StartsWith("  dilococtl "));
    CHECK(RunDilococtl({command.name, "--help"}) == kExitOk);
  }
}

TEST_CASE("errors map to the documented exit codes") {
  CHECK(ExitCodeOf(absl::OkStatus()) == 0);
  CHECK(ExitCodeOf(absl::NotFoundError("")) == 1);
  CHECK(ExitCodeOf(absl::DataLossError("")) == 1);
  CHECK(ExitCodeOf(absl::InvalidArgumentError("")) == 2);
  CHECK(ExitCodeOf(absl::PermissionDeniedError("")) == 3);
  CHECK(ExitCodeOf(absl::UnauthenticatedError("")) == 3);
  CHECK(ExitCodeOf(absl::UnimplementedError("")) == 4);
  CHECK(ExitCodeOf(absl::UnavailableError("")) == 75);
  CHECK(ExitCodeOf(absl::DeadlineExceededError("")) == 75);
}

}  // namespace
}  // namespace diloco
