// The HTTP half of metrics.h on civetweb, which prometheus-cpp brings along.
// Its own Exposer cannot serve /livez and /readyz, so the handlers are ours.
#include <civetweb.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/metrics/metrics.h"

namespace diloco {
namespace {

// Scrapes and probes are short; a second thread keeps a slow scraper from
// delaying the liveness probe.
constexpr char kThreads[] = "2";

// `host:port` in the form civetweb takes: numeric hosts only.
absl::StatusOr<std::string> ListenSpec(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics address \"", address,
                     "\" must be host:port with a port from 0 to 65535, e.g. "
                     "127.0.0.1:7601"));
  }
  std::string host = address.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  return absl::StrCat(host, ":", port);
}

class CivetServer final : public MetricsServer {
 public:
  CivetServer(const MetricsRegistry* registry,
              std::function<std::string()> not_ready)
      : registry_(registry), not_ready_(std::move(not_ready)) {}
  ~CivetServer() override {
    if (context_ != nullptr) mg_stop(context_);
  }

  absl::Status Listen(const std::string& address) {
    ASSIGN_OR_RETURN(const std::string spec, ListenSpec(address));
    const char* options[] = {"listening_ports",
                             spec.c_str(),
                             "num_threads",
                             kThreads,
                             "request_timeout_ms",
                             "5000",
                             "enable_keep_alive",
                             "no",
                             nullptr};
    mg_callbacks callbacks = {};
    callbacks.log_message = [](const mg_connection* connection,
                               const char* message) {
      static_cast<CivetServer*>(mg_get_user_data(mg_get_context(connection)))
          ->NoteError(message);
      return 1;  // Not to civetweb's own log as well.
    };
    context_ = mg_start(&callbacks, this, options);
    mg_server_port bound = {};
    if (context_ == nullptr || mg_get_server_ports(context_, 1, &bound) < 1) {
      return absl::UnavailableError(absl::StrCat(
          "cannot serve metrics on ", address, ": ", LastError(),
          "; is another process listening there? Change listen.metrics or "
          "stop it"));
    }
    port_ = bound.port;
    mg_set_request_handler(context_, "**", &CivetServer::Handle, this);
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  static int Handle(mg_connection* connection, void* self) {
    return static_cast<CivetServer*>(self)->Answer(connection);
  }

  int Answer(mg_connection* connection) {
    const mg_request_info* request = mg_get_request_info(connection);
    const absl::string_view method = request->request_method;
    const absl::string_view path = request->local_uri;
    const bool head = method == "HEAD";
    if (!head && method != "GET") {
      return Send(connection, 405, "text/plain", "only GET and HEAD\n", head);
    }
    if (path == "/metrics") {
      return Send(connection, 200, "text/plain; version=0.0.4; charset=utf-8",
                  registry_->Text(), head);
    }
    // Alive means that this answers; it must not depend on peers or the disk.
    if (path == "/livez")
      return Send(connection, 200, "text/plain", "ok\n", head);
    if (path == "/readyz" || path == "/healthz") {
      const std::string reason = not_ready_ ? not_ready_() : "";
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

  void NoteError(const char* message) {
    MutexLock lock(&mu_);
    if (error_.empty()) error_ = message;
  }
  std::string LastError() {
    MutexLock lock(&mu_);
    return error_.empty() ? "the address cannot be used" : error_;
  }

  const MetricsRegistry* const registry_;
  const std::function<std::string()> not_ready_;
  mg_context* context_ = nullptr;
  int port_ = 0;
  Mutex mu_;
  std::string error_ ABSL_GUARDED_BY(mu_);  // First complaint of civetweb.
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& address, const MetricsRegistry* registry,
    std::function<std::string()> not_ready) {
  auto server = std::make_unique<CivetServer>(registry, std::move(not_ready));
  RETURN_IF_ERROR(server->Listen(address));
  return std::unique_ptr<MetricsServer>(std::move(server));
}

}  // namespace diloco
