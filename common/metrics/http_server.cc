// The HTTP half of metrics.h on civetweb, which prometheus-cpp brings along,
// in Debian without IPv6. Its own Exposer cannot serve /livez and /readyz, so
// the answers are ours.
#include <civetweb.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/listen_address.h"
#include "common/base/status_macros.h"
#include "common/metrics/metrics.h"

namespace diloco {
namespace {

// A connection has a thread to itself from the start to the end, and one that
// says nothing has it for the whole timeout: enough threads that a few dozen of
// them leave some for the probes. Idle ones cost a stack that is never touched.
constexpr char kThreads[] = "64";
// For the whole request; those who ask are programs.
constexpr char kRequestTimeoutMs[] = "1000";

class CivetServer final : public MetricsServer {
 public:
  CivetServer(const MetricsRegistry* registry,
              std::function<std::string()> not_ready)
      : registry_(registry), not_ready_(std::move(not_ready)) {}
  ~CivetServer() override {
    if (context_ != nullptr) mg_stop(context_);
  }

  absl::Status Listen(const std::string& address) {
    const char* options[] = {"listening_ports",
                             address.c_str(),
                             "num_threads",
                             kThreads,
                             "request_timeout_ms",
                             kRequestTimeoutMs,
                             "enable_keep_alive",
                             "no",
                             nullptr};
    mg_callbacks callbacks = {};
    // Not a handler: one can only be set once the server answers already.
    callbacks.begin_request = &CivetServer::Answer;
    // It would write to stderr.
    callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
    mg_init_data init = {};
    init.callbacks = &callbacks;
    init.user_data = this;
    init.configuration_options = options;
    char text[256] = "";
    mg_error_data error = {};
    error.text = text;
    error.text_buffer_size = sizeof(text);
    context_ = mg_start2(&init, &error);
    mg_server_port bound = {};
    if (context_ == nullptr || mg_get_server_ports(context_, 1, &bound) < 1) {
      return absl::UnavailableError(absl::StrCat(
          "cannot serve metrics on ", address, ": ", text,
          "; the address could be had a moment ago: try again, or change "
          "listen.metrics"));
    }
    port_ = bound.port;
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  static int Answer(mg_connection* connection) {
    const mg_request_info* request = mg_get_request_info(connection);
    const auto* const self =
        static_cast<const CivetServer*>(request->user_data);
    // Nor is a body waited for, which nobody here wants.
    mg_disable_connection_keep_alive(connection);
    const absl::string_view method = request->request_method;
    const absl::string_view path = request->local_uri;
    const bool head = method == "HEAD";
    if (!head && method != "GET") {
      return Send(connection, 405, "text/plain", "only GET and HEAD\n", head);
    }
    if (path == "/metrics") {
      return Send(connection, 200, "text/plain; version=0.0.4; charset=utf-8",
                  self->registry_->Text(), head);
    }
    // Alive means that this answers; it must not depend on peers or the disk.
    if (path == "/livez") {
      return Send(connection, 200, "text/plain", "ok\n", head);
    }
    if (path == "/readyz" || path == "/healthz") {
      const std::string reason = self->not_ready_ ? self->not_ready_() : "";
      if (reason.empty()) {
        return Send(connection, 200, "text/plain", "ok\n", head);
      }
      return Send(connection, 503, "text/plain",
                  absl::StrCat("not ready: ", reason, "\n"), head);
    }
    return Send(connection, 404, "text/plain",
                "not found; try /metrics /livez /readyz\n", head);
  }

  static int Send(mg_connection* connection, int code, const char* type,
                  const std::string& body, bool head) {
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
              "Connection: close\r\n\r\n",
              code, mg_get_response_code_text(connection, code), type,
              body.size());
    if (!head) mg_write(connection, body.data(), body.size());
    return code;
  }

  const MetricsRegistry* const registry_;
  const std::function<std::string()> not_ready_;
  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, const MetricsRegistry* registry,
    std::function<std::string()> not_ready) {
  // civetweb tells no busy port from a host that is none of this machine's.
  absl::StatusOr<std::string> usable = UsableListenAddress(address);
  if (usable.ok() && usable->front() == '[') {
    usable = absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address,
                     ": metrics are served over IPv4 only, e.g. on "
                     "127.0.0.1:7601"));
  }
  if (!usable.ok()) {
    return absl::Status(usable.status().code(),
                        absl::StrCat(usable.status().message(),
                                     "; change listen.metrics or stop what "
                                     "listens there"));
  }
  auto server = std::make_unique<CivetServer>(registry, std::move(not_ready));
  RETURN_IF_ERROR(server->Listen(*usable));
  return std::unique_ptr<MetricsServer>(std::move(server));
}

}  // namespace diloco
