// The example files load, and what they show commented out is the default.
#include <regex>
#include <string>

#include "absl/strings/str_split.h"
#include "common/io/file_system.h"
#include "coordinator/config.h"
#include "coordinator/config_fields.h"
#include "tests/support/catch.h"
#include "worker/config.h"

namespace diloco {
namespace {

const char kExamples[] = DILOCO_SOURCE_DIR "/deploy/examples/";

// Activates the lines "# key: value".
std::string Uncomment(const std::string& text) {
  static const std::regex* const kLine =
      new std::regex("^( *)# ?( *[a-z_]+:.*)$");
  std::string out;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    out += std::regex_replace(std::string(line), *kLine, "$1$2") + "\n";
  }
  return out;
}

TEST_CASE("the example run file loads and its comments show the defaults") {
  FileSystem* fs = FileSystem::Posix();
  const std::string path = std::string(kExamples) + "run.yaml";
  const auto loaded = LoadRunConfig(fs, path);
  CAPTURE(loaded.status().ToString());
  REQUIRE(loaded.ok());
  CHECK(loaded->warnings.empty());
  const auto all = ParseRunConfig(fs, path, Uncomment(*ReadFile(fs, path)));
  CAPTURE(all.status().ToString());
  REQUIRE(all.ok());
  CHECK(PrintRunConfig(all->config) == PrintRunConfig(loaded->config));
  CHECK(loaded->config.train.tokens == 1'800'000);
}

TEST_CASE("the example run file shows every key there is") {
  FileSystem* fs = FileSystem::Posix();
  RunConfig config;
  RunFileExtras extras;
  FieldTable table = RunFileTable(&config, &extras, ".");
  ConfigErrors errors("run.yaml");
  Node root;
  REQUIRE(ParseDocument(
      Uncomment(*ReadFile(fs, std::string(kExamples) + "run.yaml")), &errors,
      &root));
  table.Read(root, &errors);
  REQUIRE(errors.ToStatus().ok());
  for (const Field& field : table.fields()) {
    INFO(field.path);
    CHECK(table.IsSet(field.path));
  }
}

TEST_CASE("the example worker file loads and its comments show the defaults") {
  FileSystem* fs = FileSystem::Posix();
  const std::string path = std::string(kExamples) + "worker.yaml";
  const auto loaded = LoadWorkerConfig(fs, path);
  CAPTURE(loaded.status().ToString());
  REQUIRE(loaded.ok());
  CHECK(loaded->warnings.empty());
  const auto all = ParseWorkerConfig(path, Uncomment(*ReadFile(fs, path)));
  CAPTURE(all.status().ToString());
  REQUIRE(all.ok());
  CHECK(PrintWorkerConfig(all->config) == PrintWorkerConfig(loaded->config));
}

}  // namespace
}  // namespace diloco
