// Channels and the server over a real connection, with the health service that
// every server of ours has.
#include "common/rpc/channel.h"

#include <stdlib.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/rpc/server.h"
#include "common/rpc/status_codec.h"
#include "common/rpc/unary_call.h"
#include "diloco/v1/admin.grpc.pb.h"
#include "tests/support/catch.h"
#include "tests/support/delaying_proxy.h"

namespace diloco {
namespace {

// Answers GetStatus at once with the run's name.
class StatusService final : public v1::Admin::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::StatusRequest*,
                                      v1::StatusResponse* response) override {
    response->set_run("kjv");
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

absl::Status GetStatus(const std::shared_ptr<grpc::Channel>& channel) {
  auto stub = v1::Admin::NewStub(channel);
  grpc::ClientContext context;
  SetTimeout(&context, absl::Seconds(20));
  v1::StatusResponse response;
  return FromGrpcStatus(
      stub->GetStatus(&context, v1::StatusRequest(), &response));
}

struct Served {
  Served() : server(*RpcServer::Start("127.0.0.1:0", {&service})) {}
  std::string address() const {
    return absl::StrCat("127.0.0.1:", server->port());
  }
  StatusService service;
  std::unique_ptr<RpcServer> server;
};

// Sets variables of the environment for its life.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) {
      ::setenv(name.c_str(), value.c_str(), 1);
      names_.push_back(name);
    }
  }
  ~Environment() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

TEST_CASE("C5.2 proxy variables of the environment are not followed") {
  Served served;
  const std::string dead = "http://127.0.0.1:9";
  const std::vector<std::map<std::string, std::string>> environments = {
      {{"http_proxy", dead}},
      {{"https_proxy", dead}},
      {{"grpc_proxy", dead}},
      {{"http_proxy", dead}, {"https_proxy", dead}, {"grpc_proxy", dead}},
      {{"http_proxy", dead}, {"no_proxy", "127.0.0.0/8"}},
  };
  for (const auto& variables : environments) {
    for (const auto& [name, value] : variables) UNSCOPED_INFO(name);
    const Environment environment(variables);
    for (const ChannelKind kind : {ChannelKind::kControl, ChannelKind::kBulk}) {
      REQUIRE(GetStatus(MakeChannel(served.address(), kind)).ok());
    }
  }
}

TEST_CASE("channels to the same target have connections of their own") {
  Served served;
  DelayingProxy proxy(served.server->port());
  const std::string target = absl::StrCat("127.0.0.1:", proxy.port());
  const auto first = MakeChannel(target, ChannelKind::kControl);
  const auto second = MakeChannel(target, ChannelKind::kControl);
  REQUIRE(GetStatus(first).ok());
  REQUIRE(GetStatus(second).ok());
  REQUIRE(GetStatus(first).ok());
  REQUIRE(proxy.connections() == 2);
}

TEST_CASE("a second server on the same port is refused") {
  Served served;
  StatusService other;
  const absl::Status status =
      RpcServer::Start(served.address(), {&other}).status();
  REQUIRE(status.code() == absl::StatusCode::kUnavailable);
  REQUIRE(status.message().find(served.address()) != absl::string_view::npos);
  REQUIRE(status.message().find("listen.control") != absl::string_view::npos);
}

TEST_CASE("a malformed listen address is refused") {
  StatusService service;
  for (const char* bad :
       {"", "7600", ":7600", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536"}) {
    INFO(bad);
    REQUIRE(RpcServer::Start(bad, {&service}).status().code() ==
            absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a port is free again after the shutdown") {
  std::string address;
  {
    Served served;
    address = served.address();
    REQUIRE(GetStatus(MakeChannel(address, ChannelKind::kControl)).ok());
    served.server->Shutdown(absl::Seconds(1));
  }
  StatusService service;
  REQUIRE(RpcServer::Start(address, {&service}).ok());
}

// The seconds-long form of C5.3; the limits of both sides are compared by a
// static_assert in keepalive.h. Run by the test
// component_rpc_long: real pings come every 30 s.
TEST_CASE("C5.3 an idle connection lives through its pings", "[.long]") {
  Served served;
  DelayingProxy proxy(served.server->port());
  const auto channel = MakeChannel(absl::StrCat("127.0.0.1:", proxy.port()),
                                   ChannelKind::kControl);
  REQUIRE(GetStatus(channel).ok());
  const uint64_t before = proxy.bytes_up();
  // Three pings of 17 bytes.
  REQUIRE(proxy.WaitForBytesUp(before + 3 * 17, absl::Seconds(120)));
  REQUIRE(GetStatus(channel).ok());
  REQUIRE(proxy.connections() == 1);
}

}  // namespace
}  // namespace diloco
