#include "worker/update/identity.h"

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace diloco {
namespace {

using nlohmann::json;

std::string PathIn(const std::string& scratch) {
  return JoinPath(scratch, "identity.json");
}

absl::StatusOr<WorkerIdentity> Parse(const std::string& text) {
  try {
    const json in = json::parse(text);
    WorkerIdentity identity;
    identity.worker = in.at("worker").get<std::string>();
    identity.run = in.at("run").get<std::string>();
    ASSIGN_OR_RETURN(identity.session,
                     FromHex(in.at("session").get<std::string>()));
    ASSIGN_OR_RETURN(identity.fencing.lineage,
                     FromHex(in.at("lineage").get<std::string>()));
    identity.fencing.epoch = in.at("epoch").get<uint64_t>();
    ASSIGN_OR_RETURN(identity.fencing.boot_nonce,
                     FromHex(in.at("boot_nonce").get<std::string>()));
    ASSIGN_OR_RETURN(
        identity.settings_digest,
        Digest::FromHex(in.at("settings_digest").get<std::string>()));
    return identity;
  } catch (const json::exception& error) {
    return absl::DataLossError(error.what());
  }
}

}  // namespace

absl::StatusOr<std::optional<WorkerIdentity>> LoadIdentity(
    FileSystem* fs, const std::string& scratch) {
  const std::string path = PathIn(scratch);
  if (!fs->Exists(path)) return std::optional<WorkerIdentity>();
  ASSIGN_OR_RETURN(const std::string text, ReadFile(fs, path, 1 << 16));
  absl::StatusOr<WorkerIdentity> identity = Parse(text);
  if (!identity.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", identity.status().message(),
                     ": remove the scratch directory to join afresh"));
  }
  return std::optional<WorkerIdentity>(*std::move(identity));
}

absl::Status SaveIdentity(FileSystem* fs, const std::string& scratch,
                          const WorkerIdentity& identity) {
  const json out = {{"worker", identity.worker},
                    {"run", identity.run},
                    {"session", ToHex(identity.session)},
                    {"lineage", ToHex(identity.fencing.lineage)},
                    {"epoch", identity.fencing.epoch},
                    {"boot_nonce", ToHex(identity.fencing.boot_nonce)},
                    {"settings_digest", identity.settings_digest.ToHex()}};
  return WriteFileAtomic(fs, PathIn(scratch), out.dump(2) + "\n");
}

}  // namespace diloco
