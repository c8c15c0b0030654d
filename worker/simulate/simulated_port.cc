#include "worker/simulate/simulated_port.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/backoff.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "worker/simulate/port_values.h"

namespace diloco::sim {
namespace {

// As the gRPC port's.
constexpr absl::Duration kDeadline = absl::Seconds(10);
constexpr absl::Duration kPollSlack = absl::Seconds(15);
constexpr absl::Duration kBeatDeadline = absl::Seconds(4);
constexpr absl::Duration kBeatEvery = absl::Seconds(2);

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

SimulatedPort::SimulatedPort(Options options) : options_(std::move(options)) {
  client_.worker = options_.worker;
}

template <typename T>
absl::StatusOr<T> SimulatedPort::Control(Message message,
                                         absl::Duration deadline,
                                         Handler<T> handle) {
  RETURN_IF_ERROR(guard_.verdict());
  Wire::Call call;
  call.message = message;
  call.deadline = deadline;
  ASSIGN_OR_RETURN(
      const std::any value,
      options_.wire->Send(
          client_, call,
          [handle = std::move(handle)](const std::shared_ptr<Server>& server,
                                       bool, Wire::Reply reply) {
            handle(server, [reply = std::move(reply)](absl::StatusOr<T> what) {
              if (!what.ok()) return reply(what.status());
              reply(std::any(*std::move(what)));
            });
          }));
  return std::any_cast<T>(value);
}

template <typename T>
absl::StatusOr<T> SimulatedPort::Bulk(
    const Wire::Call& call,
    std::function<absl::StatusOr<T>(Server&, bool damaged)> handle) {
  RETURN_IF_ERROR(guard_.verdict());
  ASSIGN_OR_RETURN(
      const std::any value,
      options_.wire->Send(client_, call,
                          [world = options_.world, handle = std::move(handle)](
                              const std::shared_ptr<Server>& server,
                              bool damaged, Wire::Reply reply) {
                            world->Spawn(server->group, [=] {
                              absl::StatusOr<T> what = handle(*server, damaged);
                              if (!what.ok()) return reply(what.status());
                              reply(std::any(*std::move(what)));
                            });
                          }));
  return std::any_cast<T>(value);
}

absl::StatusOr<JoinReply> SimulatedPort::Join(const JoinCall& call) {
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
          [event, call](const std::shared_ptr<Server>& server,
                        Done<JoinReply> done) {
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
                  joined.data_end = outcome->data_end;
                  done(std::move(joined));
                });
          }));
  RETURN_IF_ERROR(guard_.ObserveJoin(asked, reply.fencing));
  session_ = reply.session;
  return reply;
}

absl::StatusOr<RunView> SimulatedPort::Watch(uint64_t known_revision,
                                             absl::Duration max_wait) {
  const Fencing asked = guard_.current();
  using Seen = std::pair<ViewOutcome, std::optional<FileRef>>;
  ASSIGN_OR_RETURN(
      const Seen seen,
      Control<Seen>(
          Message::kWatch, max_wait + kPollSlack,
          [=, session = session_](const std::shared_ptr<Server>& server,
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

absl::StatusOr<uint64_t> SimulatedPort::Report(const ProgressReport& report) {
  if (client_.alive && options_.reported) options_.reported(report);
  const Fencing asked = guard_.current();
  const WorkerProgress progress = ProgressOf(report, traffic_);
  using Reply = std::pair<uint64_t, Fencing>;
  ASSIGN_OR_RETURN(
      const Reply reply,
      Control<Reply>(
          Message::kBeat, kBeatDeadline,
          [=, session = session_](const std::shared_ptr<Server>& server,
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

absl::StatusOr<std::vector<RemoteFile>> SimulatedPort::Resolve(
    uint32_t fragment, std::optional<uint64_t> have_version) {
  const Busy busy(&busy_);
  const Fencing asked = guard_.current();
  ASSIGN_OR_RETURN(
      const ResolveOutcome outcome,
      Control<ResolveOutcome>(
          Message::kResolve, kDeadline,
          [=, session = session_](const std::shared_ptr<Server>& server,
                                  Done<ResolveOutcome> done) {
            server->coordinator->Resolve(session, asked, fragment, have_version,
                                         std::move(done));
          }));
  RETURN_IF_ERROR(guard_.Observe(asked, outcome.fencing));
  return FilesOf(outcome);
}

absl::Status SimulatedPort::ReportEval(uint64_t version, uint32_t slice,
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
                                     Done<bool> done) {
               server->coordinator->ReportEval(
                   session, asked, event,
                   [done = std::move(done)](const absl::Status& status) {
                     if (!status.ok()) return done(status);
                     done(true);
                   });
             })
      .status();
}

absl::Status SimulatedPort::Leave(const std::string& reason) {
  const Fencing asked = guard_.current();
  return Control<bool>(
             Message::kLeave, kDeadline,
             [=, session = session_](const std::shared_ptr<Server>& server,
                                     Done<bool> done) {
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
absl::StatusOr<std::optional<UploadOutcome>> SimulatedPort::TryUpload(
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
      {Message::kBegin, kDeadline, &cancel},
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
  for (uint64_t at = begin.offset; at < offer.bytes;
       at += options_.chunk_bytes) {
    std::string chunk = content.substr(at, options_.chunk_bytes);
    traffic_.sent += chunk.size();
    const uint32_t crc = Crc32c(chunk);
    const absl::Status sent =
        Bulk<bool>({Message::kWrite, kDeadline, &cancel, chunk.size()},
                   [=](Server& server, bool damaged) -> absl::StatusOr<bool> {
                     std::string came = chunk;
                     if (damaged) came[came.size() / 2] ^= 0x10;
                     if (Crc32c(came) != crc) {
                       return absl::DataLossError(
                           "the chunk arrived with another CRC-32C");
                     }
                     ASSIGN_OR_RETURN(
                         const auto upload,
                         server.coordinator->OpenUpload(
                             session, asked, offer.fragment, offer.round));
                     RETURN_IF_ERROR(upload->Write(at, came));
                     server.coordinator->CountBulkBytes(came.size(), 0);
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
      Bulk<Finished>({Message::kFinish, kDeadline, &cancel},
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

absl::StatusOr<UploadOutcome> SimulatedPort::Upload(const UpdateOffer& offer,
                                                    const ReadableFile& file,
                                                    const CancelFlag& cancel) {
  const Busy busy(&busy_);
  std::string content(offer.bytes, '\0');
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(&content[0], content.size())));
  if (options_.offered) options_.offered(offer, content);
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
      if (client_.alive && options_.settled) {
        options_.settled(offer, **outcome);
      }
      return **outcome;
    }
    const absl::Status& status = outcome.status();
    if (permanent || IsFinal(status) ||
        (!MayTryAgain(status) && ++refusals > kMaxRefusals)) {
      return status;
    }
    options_.world->Sleep(backoff.Next(options_.uniform()));
  }
}

absl::Status SimulatedPort::Download(const Digest& digest, uint64_t bytes,
                                     const std::string& path,
                                     const CancelFlag& cancel) {
  const Busy busy(&busy_);
  Backoff backoff;
  while (true) {
    const absl::StatusOr<std::string> content = Bulk<std::string>(
        {Message::kRead, kDeadline, &cancel, 0, bytes},
        [=](Server& server, bool) -> absl::StatusOr<std::string> {
          ASSIGN_OR_RETURN(const ServedFile served,
                           server.coordinator->FindFile(digest));
          server.coordinator->CountBulkBytes(0, served.bytes);
          return ReadFile(server.fs, served.path);
        });
    if (content.ok()) {
      traffic_.received += bytes;
      if (content->size() != bytes || BlockDigest(*content) != digest) {
        return absl::DataLossError("the file served is not the one named");
      }
      return WriteFileAtomic(options_.fs, path, *content);
    }
    const absl::Status& status = content.status();
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      return status;
    }
    options_.world->Sleep(backoff.Next(options_.uniform()));
  }
}

}  // namespace diloco::sim
