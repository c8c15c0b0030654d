// `dilococtl version`: this program, and the coordinator if one is reachable.
#include "common/base/version.h"

#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/message_json.h"
#include "google/protobuf/stubs/common.h"

namespace diloco {
namespace {

absl::Status RunVersion(const Invocation& invocation) {
  nlohmann::ordered_json json;
  json["dilococtl"] = BuildVersion();
  json["grpc"] = grpc::Version();
  json["protobuf"] =
      google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION);
  json["coordinator"] = nullptr;
  AdminClient client(invocation.coordinator);
  if (auto status = client.GetStatus(); status.ok()) {
    json["coordinator"] = status->build();
  }
  if (invocation.json) {
    std::printf("%s\n", JsonLine(json).c_str());
    return absl::OkStatus();
  }
  const std::string coordinator =
      json["coordinator"].is_null()
          ? absl::StrCat("none at ", invocation.coordinator)
          : json["coordinator"].get<std::string>();
  std::printf("dilococtl %s (gRPC %s, protobuf %s)\ncoordinator: %s\n",
              BuildVersion(), json["grpc"].get<std::string>().c_str(),
              json["protobuf"].get<std::string>().c_str(), coordinator.c_str());
  return absl::OkStatus();
}

}  // namespace

CommandSpec VersionCommand() {
  CommandSpec command;
  command.name = "version";
  command.summary = "show the version of dilococtl and of the coordinator";
  command.example = "  dilococtl version --json\n";
  command.run = RunVersion;
  return command;
}

}  // namespace diloco
