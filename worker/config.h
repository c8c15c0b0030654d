// A worker's local file (worker.yaml): what depends on this machine. Everything
// that belongs to the run comes from the coordinator at join; such a key here
// is an error that says so.
//
//   ASSIGN_OR_RETURN(LoadedWorker loaded, LoadWorkerConfig(fs, "worker.yaml"));
#ifndef WORKER_CONFIG_H_
#define WORKER_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/io/file_system.h"

namespace diloco {

// Width of the ids in a headerless shard. Never guessed.
enum class TokenDtype { kUint16 };

// Paths are absolute or relative to the process's directory (those in the file
// are relative to the file).
struct WorkerConfig {
  std::string coordinator;  // HOST:PORT.
  std::string name;
  std::string run;      // Joins only this run; empty: whatever is served there.
  std::string lineage;  // Likewise, 16 bytes; empty: not pinned.
  std::string device = "cpu";
  uint32_t threads = 0;  // 0 (`auto`): one per core this process may use.
  std::string data_dir = ".";
  std::string shard;  // Full path: data_dir joined with the file's `shard`.
  TokenDtype dtype = TokenDtype::kUint16;
  std::string scratch = "scratch";  // Session, checkpoints, outgoing updates.
  uint32_t micro_batch = 0;         // Windows at a time; 0: the whole batch.
  // How long the first join may find nobody before the worker gives up.
  absl::Duration connect_timeout = absl::Minutes(2);
  absl::Duration checkpoint_every = absl::Minutes(5);
  // How long handing in what is done may take once the worker is to stop.
  absl::Duration drain_timeout = absl::Seconds(30);
  uint64_t bulk_max_rate = 0;  // Bytes per second each way; 0 (`none`): no cap.
  std::string metrics;         // HOST:PORT to serve /metrics on; empty: not.
};

struct LoadedWorker {
  WorkerConfig config;
  std::vector<std::string> warnings;  // "file:line:col: key: message".
};

// INVALID_ARGUMENT with all errors, one a line as "file:line:col: path.to.key:
// message". Does not look at the data: the shard is opened at start.
absl::StatusOr<LoadedWorker> LoadWorkerConfig(FileSystem* fs,
                                              const std::string& path);
absl::StatusOr<LoadedWorker> ParseWorkerConfig(const std::string& path,
                                               absl::string_view text);

// Canonical YAML with every key; reads back to the same configuration.
std::string PrintWorkerConfig(const WorkerConfig& config);

}  // namespace diloco

#endif  // WORKER_CONFIG_H_
