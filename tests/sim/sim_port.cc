#include "tests/sim/sim_port.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/backoff.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "tests/support/agent/port_values.h"

namespace diloco::sim {
namespace {

// As the gRPC port's.
constexpr absl::Duration kDeadline = absl::Seconds(10);
constexpr absl::Duration kPollSlack = absl::Seconds(15);
constexpr absl::Duration kBeatDeadline = absl::Seconds(4);
constexpr absl::Duration kBeatEvery = absl::Seconds(2);
// Small, so that an update is several.
constexpr uint64_t kChunkBytes = 700;

// As in common/rpc, which needs gRPC.
constexpr int kMaxRefusals = 5;
bool MayTryAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::IsCancelled(status) ||
         absl::IsInternal(status) || absl::IsUnknown(status);
}
bool IsFinal(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) ||
         absl::IsAlreadyExists(status);
}

struct Busy {
  explicit Busy(int* count) : count(count) { ++*count; }
  ~Busy() { --*count; }
  int* const count;
};

}  // namespace

SimPort::SimPort(FiberWorld* world, Network* network, FileSystem* fs,
                 Stream* stream, int worker, Hooks hooks)
    : world_(world),
      network_(network),
      fs_(fs),
      stream_(stream),
      hooks_(std::move(hooks)) {
  client_.worker = worker;
}

absl::Duration SimPort::MeanTransfer(uint64_t update_bytes) {
  const auto chunks =
      static_cast<int64_t>((update_bytes + kChunkBytes - 1) / kChunkBytes);
  return (4 + chunks) * Network::kMeanTrip;
}

template <typename T>
absl::StatusOr<T> SimPort::Control(Message message, absl::Duration deadline,
                                   Network::Handler<T> handle) {
  RETURN_IF_ERROR(guard_.verdict());
  return network_->Call<T>(client_, message, deadline, nullptr,
                           std::move(handle));
}

template <typename T>
absl::StatusOr<T> SimPort::Bulk(
    Message message, const CancelFlag& cancel,
    std::function<absl::StatusOr<T>(Server&, bool corrupt)> handle) {
  RETURN_IF_ERROR(guard_.verdict());
  return network_->Call<T>(
      client_, message, kDeadline, &cancel,
      [world = world_, handle = std::move(handle)](
          std::shared_ptr<Server> server, bool corrupt,
          std::function<void(absl::StatusOr<T>)> done) {
        world->Spawn(server->group, [=] { done(handle(*server, corrupt)); });
      });
}

absl::StatusOr<JoinReply> SimPort::Join(const JoinCall& call) {
  const Busy busy(&busy_);
  guard_.Remember(call.last_seen);
  const Fencing asked = guard_.current();
  JoinEvent event;
  event.worker = call.worker;
  event.attempt = call.attempt;
  event.previous_session = call.previous_session;
  event.fresh = call.fresh;
  event.take_over = call.take_over;
  event.peer = absl::StrCat("sim:", client_.worker);
  ASSIGN_OR_RETURN(
      const JoinReply reply,
      Control<JoinReply>(
          Message::kJoin, kDeadline,
          [event, call](const std::shared_ptr<Server>& server, bool,
                        std::function<void(absl::StatusOr<JoinReply>)> done) {
            server->coordinator->Join(
                event, call.last_seen, call.settings_digest,
                [done = std::move(done)](absl::StatusOr<JoinOutcome> outcome) {
                  if (!outcome.ok()) return done(outcome.status());
                  JoinReply joined;
                  joined.fencing = outcome->fencing;
                  joined.session = outcome->session;
                  joined.settings = outcome->settings->run;
                  joined.settings_revision = outcome->settings->revision;
                  joined.settings_digest = outcome->settings_digest;
                  joined.lease = outcome->settings->policy.lease;
                  joined.beat_every = kBeatEvery;
                  done(std::move(joined));
                });
          }));
  RETURN_IF_ERROR(guard_.ObserveJoin(asked, reply.fencing));
  session_ = reply.session;
  return reply;
}

absl::StatusOr<RunView> SimPort::Watch(uint64_t known_revision,
                                       absl::Duration max_wait) {
  const Fencing asked = guard_.current();
  using Seen = std::pair<ViewOutcome, std::optional<FileRef>>;
  ASSIGN_OR_RETURN(
      const Seen seen,
      Control<Seen>(
          Message::kWatch, max_wait + kPollSlack,
          [=, session = session_](const std::shared_ptr<Server>& server, bool,
                                  Done<Seen> done) {
            server->coordinator->Watch(
                session, asked, known_revision, max_wait,
                [shard = server->coordinator->eval_shard(),
                 done = std::move(done)](absl::StatusOr<ViewOutcome> view) {
                  if (!view.ok()) return done(view.status());
                  done(Seen(*std::move(view), shard));
                });
          }));
  RETURN_IF_ERROR(guard_.Observe(asked, seen.first.fencing));
  return ViewOf(seen.first, seen.second);
}

absl::StatusOr<uint64_t> SimPort::Report(const ProgressReport& report) {
  if (client_.alive) hooks_.reported(report);
  const Fencing asked = guard_.current();
  const WorkerProgress progress = ProgressOf(report);
  using Reply = std::pair<uint64_t, Fencing>;
  ASSIGN_OR_RETURN(
      const Reply reply,
      Control<Reply>(
          Message::kBeat, kBeatDeadline,
          [=, session = session_](const std::shared_ptr<Server>& server, bool,
                                  Done<Reply> done) {
            server->coordinator->Beat(
                session, asked, progress,
                [fencing = server->coordinator->fencing(),
                 done = std::move(done)](absl::StatusOr<uint64_t> revision) {
                  if (!revision.ok()) return done(revision.status());
                  done(Reply(*revision, fencing));
                });
          }));
  RETURN_IF_ERROR(guard_.Observe(asked, reply.second));
  return reply.first;
}

absl::StatusOr<std::vector<RemoteFile>> SimPort::Resolve(
    uint32_t fragment, std::optional<uint64_t> have_version) {
  const Busy busy(&busy_);
  const Fencing asked = guard_.current();
  ASSIGN_OR_RETURN(
      const ResolveOutcome outcome,
      Control<ResolveOutcome>(
          Message::kResolve, kDeadline,
          [=, session = session_](const std::shared_ptr<Server>& server, bool,
                                  Done<ResolveOutcome> done) {
            server->coordinator->Resolve(session, asked, fragment, have_version,
                                         std::move(done));
          }));
  RETURN_IF_ERROR(guard_.Observe(asked, outcome.fencing));
  return FilesOf(outcome);
}

absl::Status SimPort::ReportEval(uint64_t version, uint32_t slice,
                                 double loss_sum, uint64_t tokens) {
  const Fencing asked = guard_.current();
  EvalReportEvent event;
  event.version = version;
  event.slice = slice;
  event.loss_sum = loss_sum;
  event.tokens = tokens;
  return Control<bool>(
             Message::kEval, kDeadline,
             [=, session = session_](const std::shared_ptr<Server>& server,
                                     bool, Done<bool> done) {
               server->coordinator->ReportEval(
                   session, asked, event,
                   [done = std::move(done)](const absl::Status& status) {
                     if (!status.ok()) return done(status);
                     done(true);
                   });
             })
      .status();
}

absl::Status SimPort::Leave(const std::string& reason) {
  const Fencing asked = guard_.current();
  return Control<bool>(
             Message::kLeave, kDeadline,
             [=, session = session_](const std::shared_ptr<Server>& server,
                                     bool, Done<bool> done) {
               server->coordinator->Leave(
                   session, asked, reason,
                   [done = std::move(done)](const absl::Status& status) {
                     if (!status.ok()) return done(status);
                     done(true);
                   });
             })
      .status();
}

// Nothing: begin again at once.
absl::StatusOr<std::optional<UploadOutcome>> SimPort::TryUpload(
    const UpdateOffer& offer, const std::string& content,
    const CancelFlag& cancel, bool* permanent) {
  using Outcome = std::optional<UploadOutcome>;
  const Fencing asked = guard_.current();
  const std::string session = session_;
  const auto observe = [&](const Fencing& reply) {
    return guard_.Observe(asked, reply);
  };
  using Begun = std::pair<BeginOutcome, Fencing>;
  const absl::StatusOr<Begun> begun = Bulk<Begun>(
      Message::kBegin, cancel,
      [=](Server& server, bool) -> absl::StatusOr<Begun> {
        ASSIGN_OR_RETURN(
            const BeginOutcome outcome,
            server.coordinator->BeginUpload(session, asked, offer.fragment,
                                            offer.round, ValueOf(offer)));
        return Begun(outcome, server.coordinator->fencing());
      });
  // Its refusals are about key, value or session: they stay.
  *permanent = !begun.ok() && !MayTryAgain(begun.status());
  RETURN_IF_ERROR(begun.status());
  RETURN_IF_ERROR(observe(begun->second));
  const BeginOutcome& begin = begun->first;
  if (begin.queued) return absl::ResourceExhaustedError("queued");
  if (begin.kind != UploadVerdict::Kind::kSend) {
    return Outcome(OutcomeOf(begin.kind, begin.reason));
  }
  for (uint64_t at = begin.offset; at < offer.bytes; at += kChunkBytes) {
    std::string chunk = content.substr(at, kChunkBytes);
    const uint32_t crc = Crc32c(chunk);
    const absl::Status sent =
        Bulk<bool>(Message::kWrite, cancel,
                   [=](Server& server, bool corrupt) -> absl::StatusOr<bool> {
                     std::string came = chunk;
                     if (corrupt) came[came.size() / 2] ^= 0x10;
                     if (Crc32c(came) != crc) {
                       return absl::DataLossError(
                           "the chunk arrived with another CRC-32C");
                     }
                     ASSIGN_OR_RETURN(
                         const auto upload,
                         server.coordinator->OpenUpload(
                             session, asked, offer.fragment, offer.round));
                     RETURN_IF_ERROR(upload->Write(at, came));
                     return true;
                   })
            .status();
    // Content that can never be used has a verdict, which Finish tells.
    if (absl::IsInvalidArgument(sent)) break;
    RETURN_IF_ERROR(sent);
  }
  using Finished = std::pair<FinishOutcome, Fencing>;
  ASSIGN_OR_RETURN(
      const Finished finished,
      Bulk<Finished>(Message::kFinish, cancel,
                     [=](Server& server, bool) -> absl::StatusOr<Finished> {
                       ASSIGN_OR_RETURN(const FinishOutcome outcome,
                                        server.coordinator->FinishUpload(
                                            session, asked, offer.fragment,
                                            offer.round, offer.digest));
                       return Finished(outcome, server.coordinator->fencing());
                     }));
  RETURN_IF_ERROR(observe(finished.second));
  return Outcome(OutcomeOf(finished.first.kind, finished.first.reason));
}

absl::StatusOr<UploadOutcome> SimPort::Upload(const UpdateOffer& offer,
                                              const ReadableFile& file,
                                              const CancelFlag& cancel) {
  const Busy busy(&busy_);
  std::string content(offer.bytes, '\0');
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(&content[0], content.size())));
  hooks_.offered(offer, content);
  Backoff backoff;
  int refusals = 0;
  while (true) {
    if (cancel || !client_.alive || client_.shut_down) {
      return absl::CancelledError("not wanted any more");
    }
    bool permanent = false;
    const absl::StatusOr<std::optional<UploadOutcome>> outcome =
        TryUpload(offer, content, cancel, &permanent);
    if (outcome.ok() && outcome->has_value()) {
      if (client_.alive) hooks_.settled(offer, **outcome);
      return **outcome;
    }
    const absl::Status& status = outcome.status();
    if (permanent || IsFinal(status) ||
        (!MayTryAgain(status) && ++refusals > kMaxRefusals)) {
      return status;
    }
    world_->Sleep(backoff.Next(stream_->Uniform()));
  }
}

absl::Status SimPort::Download(const Digest& digest, uint64_t bytes,
                               const std::string& path,
                               const CancelFlag& cancel) {
  const Busy busy(&busy_);
  Backoff backoff;
  while (true) {
    const absl::StatusOr<std::string> content = Bulk<std::string>(
        Message::kRead, cancel,
        [=](Server& server, bool) -> absl::StatusOr<std::string> {
          ASSIGN_OR_RETURN(const ServedFile served,
                           server.coordinator->FindFile(digest));
          return ReadFile(server.fs, served.path);
        });
    if (content.ok()) {
      if (content->size() != bytes || BlockDigest(*content) != digest) {
        return absl::DataLossError("the file served is not the one named");
      }
      return WriteFileAtomic(fs_, path, *content);
    }
    const absl::Status& status = content.status();
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      return status;
    }
    world_->Sleep(backoff.Next(stream_->Uniform()));
  }
}

}  // namespace diloco::sim
