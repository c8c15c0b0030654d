#include "worker/transport/grpc_port.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/blob_download.h"
#include "common/rpc/blob_upload.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_codec.h"
#include "common/rpc/status_codec.h"
#include "diloco/v1/blob.grpc.pb.h"
#include "diloco/v1/control.grpc.pb.h"
#include "worker/transport/fencing_guard.h"
#include "worker/transport/port_codec.h"

namespace diloco {
namespace {

// A long poll is given this much longer than the wait it asks for.
constexpr absl::Duration kPollSlack = absl::Seconds(15);
// A beat that is not answered within two intervals means a dead connection.
constexpr int kBeatsToAnswer = 2;
// What a call waits at most for a line that has failed.
constexpr absl::Duration kTimeToConnect = absl::Seconds(1);

class GrpcPort final : public CoordinatorPort, public CallerIdentity {
 public:
  explicit GrpcPort(GrpcPortOptions options)
      : options_(std::move(options)),
        limiter_(options_.bulk_rate, options_.clock),
        up_(options_.clock, &limiter_),
        down_(options_.clock, &limiter_),
        blob_(options_.coordinator),
        beat_deadline_(options_.control_deadline),
        control_(NewControl()) {
    blob_options_.peer = options_.coordinator;
    blob_options_.control_deadline = options_.control_deadline;
    blob_options_.progress_limit = options_.progress_limit;
    blob_options_.backoff = {.initial = options_.retry_initial,
                             .max = options_.retry_max};
    blob_options_.clock = options_.clock;
    blob_options_.fs = options_.fs;
    blob_options_.up = &up_;
    blob_options_.down = &down_;
    blob_options_.traffic = &traffic_;
    blob_options_.shutdown = &shutdown_;
  }

  absl::StatusOr<JoinReply> Join(const JoinCall& call) override {
    guard_.Remember(call.last_seen);
    const Fencing asked = guard_.current();
    v1::JoinRequest request;
    EncodeJoin(call, &request);
    v1::JoinResponse response;
    RETURN_IF_ERROR(Call(&v1::Control::Stub::Join, request, &response,
                         options_.control_deadline));
    absl::StatusOr<JoinReply> reply = DecodeJoinReply(response);
    if (!reply.ok()) return Named(reply.status());
    RETURN_IF_ERROR(Named(guard_.ObserveJoin(asked, reply->fencing)));
    MutexLock lock(&mu_);
    session_ = reply->session;
    run_ = reply->settings.run;
    beat_deadline_ =
        std::min(options_.control_deadline, kBeatsToAnswer * reply->beat_every);
    return reply;
  }

  absl::StatusOr<RunView> Watch(uint64_t known_revision,
                                absl::Duration max_wait) override {
    max_wait = std::clamp(max_wait, absl::ZeroDuration(), kMaxLongPoll);
    v1::WatchRequest request;
    request.set_known_revision(known_revision);
    request.set_max_wait_ms(
        static_cast<uint64_t>(absl::ToInt64Milliseconds(max_wait)));
    v1::RunView response;
    RETURN_IF_ERROR(CallInSession(&v1::Control::Stub::Watch, &request,
                                  &response, max_wait + kPollSlack));
    absl::StatusOr<RunView> view = DecodeView(response);
    if (!view.ok()) return Named(view.status());
    return view;
  }

  absl::StatusOr<uint64_t> Report(const ProgressReport& report) override {
    v1::ProgressReport request;
    EncodeReport(report, traffic(), &request);
    v1::ProgressReply response;
    absl::Duration deadline;
    {
      MutexLock lock(&mu_);
      deadline = beat_deadline_;
    }
    const Instant start = options_.clock->Now();
    RETURN_IF_ERROR(CallInSession(&v1::Control::Stub::ReportProgress, &request,
                                  &response, deadline));
    NoteRoundTrip(start);
    return response.revision();
  }

  absl::StatusOr<std::vector<RemoteFile>> Resolve(
      uint32_t fragment, std::optional<uint64_t> have_version) override {
    v1::ResolveRequest request;
    request.set_fragment(fragment);
    if (have_version.has_value()) request.set_have_version(*have_version);
    v1::ResolveResponse response;
    const Instant start = options_.clock->Now();
    RETURN_IF_ERROR(CallInSession(&v1::Control::Stub::ResolveFragment, &request,
                                  &response, options_.control_deadline));
    NoteRoundTrip(start);
    absl::StatusOr<std::vector<RemoteFile>> files = DecodeFiles(response);
    if (!files.ok()) return Named(files.status());
    return files;
  }

  absl::Status ReportEval(uint64_t version, uint32_t slice, double loss_sum,
                          uint64_t tokens) override {
    v1::EvalReport request;
    request.set_version(version);
    request.set_slice(slice);
    request.set_loss_sum(loss_sum);
    request.set_tokens(tokens);
    v1::EvalReply response;
    return CallInSession(&v1::Control::Stub::ReportEval, &request, &response,
                         options_.control_deadline);
  }

  absl::Status Leave(const std::string& reason) override {
    v1::LeaveRequest request;
    request.set_reason(reason);
    v1::LeaveResponse response;
    return CallInSession(&v1::Control::Stub::Leave, &request, &response,
                         options_.control_deadline);
  }

  absl::StatusOr<UploadOutcome> Upload(const UpdateOffer& offer,
                                       const ReadableFile& file,
                                       const CancelFlag& cancel) override {
    v1::UpdateKey key;
    v1::UpdateValue value;
    std::string run;
    {
      MutexLock lock(&mu_);
      run = run_;
    }
    EncodeOffer(offer, run, &key, &value);
    const Instant start = options_.clock->Now();
    absl::StatusOr<UploadResult> result =
        UploadBlob(&blob_, blob_options_, this, key, value, file, cancel);
    if (!result.ok()) return Named(result.status());
    UploadOutcome outcome;
    outcome.reason = result->reason;
    if (result->verdict == v1::VERDICT_LATE) {
      outcome.kind = UploadOutcome::Kind::kLate;
    } else if (result->verdict == v1::VERDICT_REFUSED) {
      outcome.kind = UploadOutcome::Kind::kRefused;
    }
    Account("up", offer.bytes, start, up_);
    return outcome;
  }

  absl::Status Download(const Digest& digest, uint64_t bytes,
                        const std::string& path,
                        const CancelFlag& cancel) override {
    const Instant start = options_.clock->Now();
    RETURN_IF_ERROR(Named(DownloadBlob(&blob_, blob_options_, session(), digest,
                                       bytes, path, cancel)));
    Account("down", bytes, start, down_);
    return absl::OkStatus();
  }

  void Shutdown() override {
    shutdown_ = true;
    MutexLock lock(&mu_);
    for (grpc::ClientContext* context : calls_) context->TryCancel();
  }

  Traffic traffic() const override {
    return {.sent = traffic_.sent(), .received = traffic_.received()};
  }

  // CallerIdentity, for the transfers.
  std::string session() const override {
    MutexLock lock(&mu_);
    return session_;
  }
  Fencing fencing() const override { return guard_.current(); }
  absl::Status Observe(const Fencing& asked,
                       const v1::Fencing& reply) override {
    ASSIGN_OR_RETURN(const Fencing fencing, DecodeFencing(reply));
    return guard_.Observe(asked, fencing);
  }

 private:
  struct ControlLine {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::Control::Stub> stub;
  };
  std::shared_ptr<const ControlLine> NewControl() const {
    auto line = std::make_shared<ControlLine>();
    line->channel = MakeChannel(options_.coordinator, ChannelKind::kControl);
    line->stub = v1::Control::NewStub(line->channel);
    return line;
  }

  // A call on a line that has failed would fail at once, and gRPC, with nobody
  // waiting, looks only every 5 s what became of its own next try.
  static void GiveTimeToConnect(const ControlLine& line) {
    if (line.channel->GetState(/*try_to_connect=*/true) ==
        GRPC_CHANNEL_TRANSIENT_FAILURE) {
      line.channel->WaitForConnected(TimeSpan(kTimeToConnect));
    }
  }

  absl::Status Named(const absl::Status& status) const {
    return WithContext(status,
                       absl::StrCat("coordinator ", options_.coordinator));
  }

  template <typename Request, typename Response>
  using Method = grpc::Status (v1::Control::Stub::*)(grpc::ClientContext*,
                                                     const Request&, Response*);

  // A call that carries the session and whose reply is judged by its fencing.
  template <typename Request, typename Response>
  absl::Status CallInSession(Method<Request, Response> method, Request* request,
                             Response* response, absl::Duration deadline) {
    const Fencing asked = guard_.current();
    request->set_session(session());
    EncodeFencing(asked, request->mutable_fencing());
    RETURN_IF_ERROR(Call(method, *request, response, deadline));
    return Named(Observe(asked, response->fencing()));
  }

  template <typename Request, typename Response>
  absl::Status Call(Method<Request, Response> method, const Request& request,
                    Response* response, absl::Duration deadline) {
    RETURN_IF_ERROR(Named(guard_.verdict()));
    grpc::ClientContext context;
    std::shared_ptr<const ControlLine> control;
    {
      MutexLock lock(&mu_);
      if (shutdown_) return absl::CancelledError("shutting down");
      control = control_;
      calls_.insert(&context);
    }
    GiveTimeToConnect(*control);
    SetTimeout(&context, deadline);
    absl::Status status =
        FromGrpcStatus(((*control->stub).*method)(&context, request, response));
    {
      MutexLock lock(&mu_);
      calls_.erase(&context);
      if (status.code() == absl::StatusCode::kDeadlineExceeded) {
        Renew(control);
      }
      // Nobody cancels these calls but Renew and Shutdown.
      if (status.code() == absl::StatusCode::kCancelled && !shutdown_) {
        status = absl::UnavailableError("the connection was given up");
      }
    }
    traffic_.AddSent(WireBytes(request));
    if (status.ok()) traffic_.AddReceived(WireBytes(*response));
    return Named(status);
  }

  // Something on the way may swallow what is sent without closing: the next
  // call gets a new connection and those that wait on the old one end.
  void Renew(const std::shared_ptr<const ControlLine>& failed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (control_ != failed) return;
    DILOCO_LOG(WARNING) << "connection given up coordinator="
                        << options_.coordinator << " cause=\"no answer\"";
    control_ = NewControl();
    for (grpc::ClientContext* context : calls_) context->TryCancel();
  }

  // Of a small call that is answered at once.
  void NoteRoundTrip(Instant start) {
    const absl::Duration took = options_.clock->Now() - start;
    up_.NoteRoundTrip(took);
    down_.NoteRoundTrip(took);
  }

  // What a transfer reached, for the log and as metrics.
  void Account(const char* direction, uint64_t bytes, Instant start,
               const Line& line) const {
    const double seconds = absl::ToDoubleSeconds(options_.clock->Now() - start);
    const double rate =
        seconds > 0 ? static_cast<double>(bytes) / seconds : 0.0;
    DILOCO_LOG(INFO) << direction << "loaded bytes=" << bytes
                     << " seconds=" << seconds
                     << " mb_per_second=" << rate / 1e6
                     << " connections=" << line.used()
                     << " pace_mb_per_second=" << line.pace() / 1e6;
    if (options_.metrics == nullptr) return;
    const Labels labels = {{"direction", direction}};
    options_.metrics
        ->AddGauge("diloco_worker_transfer_bytes_per_second",
                   "Of the last transfer, from its start to its end.", labels)
        ->Set(rate);
    options_.metrics
        ->AddGauge("diloco_worker_transfer_connections",
                   "Connections that carried the last transfer.", labels)
        ->Set(static_cast<double>(line.used()));
  }

  const GrpcPortOptions options_;
  FencingGuard guard_;
  TrafficCounter traffic_;
  RateLimiter limiter_;
  Line up_;
  Line down_;
  std::atomic<bool> shutdown_{false};
  BlobClientOptions blob_options_;
  BlobConnections blob_;

  mutable Mutex mu_;
  std::string session_ ABSL_GUARDED_BY(mu_);
  std::string run_ ABSL_GUARDED_BY(mu_);
  absl::Duration beat_deadline_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const ControlLine> control_ ABSL_GUARDED_BY(mu_);
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorPort>> MakeGrpcPort(
    GrpcPortOptions options) {
  const std::string& address = options.coordinator;
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinator \"", address,
                     "\" must be host:port with a port from 1 to 65535, e.g. "
                     "10.0.0.5:7600"));
  }
  return std::unique_ptr<CoordinatorPort>(
      std::make_unique<GrpcPort>(std::move(options)));
}

}  // namespace diloco
