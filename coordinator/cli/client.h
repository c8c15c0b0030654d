// The connection of one dilococtl call: stubs over one channel, and gRPC's
// errors as absl::Status that name the peer and what to do.
#ifndef COORDINATOR_CLI_CLIENT_H_
#define COORDINATOR_CLI_CLIENT_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "diloco/v1/admin.grpc.pb.h"

namespace diloco {

// One thread at a time.
class AdminClient {
 public:
  explicit AdminClient(const std::string& coordinator);

  absl::StatusOr<v1::StatusResponse> GetStatus();
  // Waits up to `max_wait` for an event after the sequence number.
  absl::StatusOr<v1::EventsResponse> GetEvents(uint64_t after_sequence,
                                               absl::Duration max_wait);
  absl::StatusOr<v1::AdminReply> SetPaused(bool paused,
                                           const std::string& reason);
  absl::StatusOr<v1::AdminReply> StopRun(const v1::StopRunRequest& request);
  absl::StatusOr<v1::AdminReply> DrainWorker(const std::string& worker,
                                             const std::string& reason);
  absl::StatusOr<v1::AdminReply> EvictWorker(const std::string& worker,
                                             const std::string& reason);
  absl::StatusOr<v1::AdminReply> ChangeSettings(
      const v1::ChangeSettingsRequest& request);
  absl::StatusOr<v1::SettingsResponse> GetSettings();
  absl::StatusOr<v1::ExportDescription> DescribeExport();

  const std::string& coordinator() const { return coordinator_; }

 private:
  const std::string coordinator_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Admin::Stub> stub_;
};

}  // namespace diloco

#endif  // COORDINATOR_CLI_CLIENT_H_
