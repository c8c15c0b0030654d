// The operator's plane of a coordinator, scripted, on a port of its own. Used
// by the tests of dilococtl.
#ifndef TESTS_COMPONENT_CLI_SCRIPTED_ADMIN_H_
#define TESTS_COMPONENT_CLI_SCRIPTED_ADMIN_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/io/crc32c.h"
#include "common/io/digest.h"
#include "diloco/v1/admin.grpc.pb.h"
#include "diloco/v1/blob.grpc.pb.h"

namespace diloco {

// Fill the members before the first call; they are not guarded.
class ScriptedAdmin final : public v1::Admin::Service,
                            public v1::Blob::Service {
 public:
  ScriptedAdmin() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("localhost:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(static_cast<v1::Admin::Service*>(this));
    builder.RegisterService(static_cast<v1::Blob::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~ScriptedAdmin() override { server_->Shutdown(); }

  std::string address() const { return "localhost:" + std::to_string(port_); }
  // Serves the bytes under their digest.
  v1::FileRef AddFile(v1::FileKind kind, const std::string& bytes) {
    v1::FileRef ref;
    ref.set_kind(kind);
    ref.set_bytes(bytes.size());
    ref.set_digest(BlockDigest(bytes).ToBytes());
    files[ref.digest()] = bytes;
    return ref;
  }

  v1::StatusResponse status;
  std::vector<v1::AdminEvent> events;
  v1::ExportDescription description;
  std::map<std::string, std::string> files;
  grpc::Status refusal;  // What SetPaused and the others answer when not OK.
  std::vector<std::string> calls;

 private:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::StatusRequest*,
                         v1::StatusResponse* response) override {
    *response = status;
    return grpc::Status::OK;
  }
  // Two events at a time, as a busy coordinator gives them.
  grpc::Status GetEvents(grpc::ServerContext*, const v1::EventsRequest* request,
                         v1::EventsResponse* response) override {
    *response->mutable_fencing() = status.fencing();
    response->set_oldest_sequence(1);
    for (const v1::AdminEvent& event : events) {
      if (event.sequence() <= request->after_sequence()) continue;
      *response->add_events() = event;
      if (response->events_size() == 2) break;
    }
    return grpc::Status::OK;
  }
  grpc::Status Answer(const std::string& call, v1::AdminReply* reply) {
    calls.push_back(call);
    reply->set_message("understood");
    return refusal;
  }
  grpc::Status SetPaused(grpc::ServerContext*,
                         const v1::SetPausedRequest* request,
                         v1::AdminReply* reply) override {
    return Answer(
        (request->paused() ? "pause " : "resume ") + request->reason(), reply);
  }
  grpc::Status StopRun(grpc::ServerContext*, const v1::StopRunRequest* request,
                       v1::AdminReply* reply) override {
    return Answer(request->has_after_round()
                      ? "stop " + std::to_string(request->after_round())
                      : "stop",
                  reply);
  }
  grpc::Status DrainWorker(grpc::ServerContext*,
                           const v1::WorkerRequest* request,
                           v1::AdminReply* reply) override {
    return Answer("drain " + request->worker(), reply);
  }
  grpc::Status EvictWorker(grpc::ServerContext*,
                           const v1::WorkerRequest* request,
                           v1::AdminReply* reply) override {
    return Answer("evict " + request->worker(), reply);
  }
  grpc::Status ChangeSettings(grpc::ServerContext*,
                              const v1::ChangeSettingsRequest* request,
                              v1::AdminReply* reply) override {
    if (request->decay_tokens() > 0) {
      return Answer("decay " + std::to_string(request->decay_tokens()), reply);
    }
    std::string call = "set";
    for (const v1::SettingValue& value : request->values()) {
      call += " " + value.key() + "=" + value.value();
    }
    return Answer(call, reply);
  }
  grpc::Status DescribeExport(grpc::ServerContext*, const v1::ExportRequest*,
                              v1::ExportDescription* response) override {
    *response = description;
    return grpc::Status::OK;
  }
  grpc::Status Read(grpc::ServerContext*, const v1::ReadRequest* request,
                    grpc::ServerWriter<v1::ReadChunk>* writer) override {
    const auto it = files.find(request->digest());
    if (it == files.end()) {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such file");
    }
    constexpr uint64_t kChunk = 1000;
    uint64_t offset = request->offset();
    do {
      v1::ReadChunk chunk;
      chunk.set_offset(offset);
      chunk.set_data(it->second.substr(offset, kChunk));
      chunk.set_crc32c(Crc32c(chunk.data()));
      chunk.set_total_bytes(it->second.size());
      offset += chunk.data().size();
      writer->Write(chunk);
    } while (offset < it->second.size());
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace diloco

#endif  // TESTS_COMPONENT_CLI_SCRIPTED_ADMIN_H_
