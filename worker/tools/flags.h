// Strict command-line flags for the worker's sub-commands: an unknown flag, a
// missing value or a value of the wrong type is an error that names the flag
// and the nearest known one. Used by every file pair of this directory.
//
//   Flags flags("tokenize", "Turns text into shards of token ids.");
//   flags.Text("in", &in, "text file, or JSON lines when it ends in .jsonl");
//   flags.Count("parts", &parts, "training shards");
//   if (auto code = flags.Parse(argc, argv)) return *code;
#ifndef WORKER_TOOLS_FLAGS_H_
#define WORKER_TOOLS_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace diloco {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitTemporary = 75;

// Of a tool that works on this machine alone: 2 for what the caller gave
// (flags, files, data), 75 for a full disk, 1 for the rest.
int ExitCodeOfTool(const absl::Status& status);

// The variables hold the defaults, which --help shows, until Parse.
class Flags {
 public:
  Flags(std::string command, std::string summary);

  void Text(const char* name, std::string* value, const char* help);
  void Count(const char* name, uint64_t* value, const char* help,
             uint64_t min = 0, uint64_t max = UINT64_MAX);
  void Real(const char* name, double* value, const char* help);
  // Alone it means true; or --name=false.
  void Switch(const char* name, bool* value, const char* help);
  // The text flag `name` must be given.
  void Require(const char* name);

  // `argv[0]` is the sub-command. "--name value" or "--name=value". nullopt: go
  // on; otherwise the exit code, after printing help or the error.
  std::optional<int> Parse(int argc, char** argv);
  bool WasSet(absl::string_view name) const;

 private:
  enum class Kind { kText, kCount, kReal, kSwitch };
  struct Flag {
    Kind kind;
    std::string name;
    void* value;
    std::string help;
    uint64_t min = 0;  // Of a count.
    uint64_t max = UINT64_MAX;
    bool required = false;
    bool set = false;
  };

  Flag* Find(absl::string_view name);
  // An error message, empty when all is well.
  std::string ParseAll(int argc, char** argv);
  std::string Store(Flag& flag, absl::string_view text);
  std::string NearestTo(absl::string_view name) const;
  void PrintHelp() const;

  const std::string command_;
  const std::string summary_;
  std::vector<Flag> flags_;
};

}  // namespace diloco

#endif  // WORKER_TOOLS_FLAGS_H_
