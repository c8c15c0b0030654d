// `dilococtl repair`: cuts the torn tail of a journal.
#include "coordinator/offline/repair.h"

#include <cstdio>
#include <string>

#include "common/base/status_macros.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/message_json.h"

namespace diloco {
namespace {

absl::Status RunRepair(const Invocation& invocation) {
  if (!invocation.Has("truncate-tail")) {
    return absl::InvalidArgumentError(
        "repair needs to be told what to do: --truncate-tail drops what stands "
        "behind the journal's last whole record");
  }
  ASSIGN_OR_RETURN(const TruncatedTail tail,
                   TruncateTail(FileSystem::Posix(), invocation.positional[0]));
  if (invocation.json) {
    nlohmann::ordered_json json;
    json["file"] = tail.file;
    json["offset"] = tail.offset;
    json["bytes"] = tail.bytes;
    json["copy"] = tail.copy;
    std::printf("%s\n", JsonLine(json).c_str());
  } else if (tail.bytes == 0) {
    std::printf("the journal is whole, nothing was changed\n");
  } else {
    std::printf("cut %lu bytes of %s at offset %lu, kept in %s\n",
                static_cast<unsigned long>(tail.bytes), tail.file.c_str(),
                static_cast<unsigned long>(tail.offset), tail.copy.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec RepairCommand() {
  CommandSpec command;
  command.name = "repair";
  command.summary = "cut the torn tail of a journal, keeping a copy";
  command.positional = {"DIR"};
  command.flags = {
      {"truncate-tail", "", "drop what stands behind the last whole record"}};
  command.details =
      "Drops only what a start of the coordinator would drop itself. Damage\n"
      "with good records behind it is not touched: restore a backup, or roll\n"
      "back.\n";
  command.example = "  dilococtl repair state --truncate-tail\n";
  command.run = RunRepair;
  return command;
}

}  // namespace diloco
