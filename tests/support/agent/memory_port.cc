#include "tests/support/agent/memory_port.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/simulate/port_values.h"

namespace diloco {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(5);

}  // namespace

void CoordinatorSlot::Set(std::shared_ptr<Coordinator> coordinator) {
  MutexLock lock(&mu_);
  coordinator_ = std::move(coordinator);
}

std::shared_ptr<Coordinator> CoordinatorSlot::Get() const {
  MutexLock lock(&mu_);
  return coordinator_;
}

template <typename T>
absl::StatusOr<T> MemoryPort::Call(
    const std::function<void(Coordinator&, Done<T>)>& start) {
  if (shutdown_) return absl::CancelledError("shut down");
  const std::shared_ptr<Coordinator> coordinator = slot_->Get();
  if (cut_ || coordinator == nullptr) {
    return absl::UnavailableError("the coordinator is away");
  }
  struct Box {
    Mutex mu;
    CondVar ready;
    std::optional<absl::StatusOr<T>> value;
  };
  auto box = std::make_shared<Box>();
  start(*coordinator, [box](absl::StatusOr<T> value) {
    MutexLock lock(&box->mu);
    box->value = std::move(value);
    box->ready.SignalAll();
  });
  MutexLock lock(&box->mu);
  while (!box->value.has_value()) {
    box->ready.WaitFor(&box->mu, kPoll);
    if (shutdown_) return absl::CancelledError("shut down");
  }
  return *std::move(box->value);
}

absl::StatusOr<JoinReply> MemoryPort::Join(const JoinCall& call) {
  ++joins_;
  {
    MutexLock lock(&mu_);
    last_join_ = call;
  }
  JoinEvent event;
  event.worker = call.worker;
  event.attempt = call.attempt;
  event.previous_session = call.previous_session;
  event.fresh = call.fresh;
  event.take_over = call.take_over;
  event.peer = "memory";
  ASSIGN_OR_RETURN(
      const JoinOutcome outcome,
      Call<JoinOutcome>([&](Coordinator& coordinator, Done<JoinOutcome> done) {
        coordinator.Join(event, call.last_seen, call.settings_digest,
                         std::move(done));
      }));
  JoinReply reply;
  reply.fencing = outcome.fencing;
  reply.session = outcome.session;
  reply.settings = outcome.settings->run;
  reply.settings_revision = outcome.settings->revision;
  reply.settings_digest = outcome.settings_digest;
  reply.data_end = outcome.data_end;
  reply.lease = absl::Seconds(30);
  reply.beat_every = absl::Milliseconds(20);
  MutexLock lock(&mu_);
  session_ = outcome.session;
  fencing_ = outcome.fencing;
  return reply;
}

absl::StatusOr<RunView> MemoryPort::Watch(uint64_t known_revision,
                                          absl::Duration max_wait) {
  if (told_drain_) knows_of_drain_ = true;
  std::string session;
  Fencing fencing;
  {
    MutexLock lock(&mu_);
    session = session_;
    fencing = fencing_;
  }
  ASSIGN_OR_RETURN(
      const ViewOutcome outcome,
      Call<ViewOutcome>([&](Coordinator& coordinator, Done<ViewOutcome> done) {
        coordinator.Watch(session, fencing, known_revision, max_wait,
                          std::move(done));
      }));
  const std::shared_ptr<Coordinator> coordinator = slot_->Get();
  RunView view =
      ViewOf(outcome,
             coordinator != nullptr ? coordinator->eval_shard() : std::nullopt);
  told_drain_ = view.drain;
  MutexLock lock(&mu_);
  fencing_ = outcome.fencing;
  return view;
}

absl::StatusOr<uint64_t> MemoryPort::Report(const ProgressReport& report) {
  std::string session;
  Fencing fencing;
  {
    MutexLock lock(&mu_);
    session = session_;
    fencing = fencing_;
  }
  return Call<uint64_t>([&](Coordinator& coordinator, Done<uint64_t> done) {
    coordinator.Beat(session, fencing, ProgressOf(report, traffic()),
                     std::move(done));
  });
}

absl::StatusOr<std::vector<RemoteFile>> MemoryPort::Resolve(
    uint32_t fragment, std::optional<uint64_t> have_version) {
  std::string session;
  Fencing fencing;
  {
    MutexLock lock(&mu_);
    session = session_;
    fencing = fencing_;
  }
  ASSIGN_OR_RETURN(const ResolveOutcome outcome,
                   Call<ResolveOutcome>([&](Coordinator& coordinator,
                                            Done<ResolveOutcome> done) {
                     coordinator.Resolve(session, fencing, fragment,
                                         have_version, std::move(done));
                   }));
  return FilesOf(outcome);
}

absl::Status MemoryPort::ReportEval(uint64_t version, uint32_t slice,
                                    double loss_sum, uint64_t tokens) {
  if (eval_failures_.fetch_sub(1) > 0) {
    return absl::Status(eval_code_, "the report was lost");
  }
  EvalReportEvent event;
  event.version = version;
  event.slice = slice;
  event.loss_sum = loss_sum;
  event.tokens = tokens;
  std::string session;
  Fencing fencing;
  {
    MutexLock lock(&mu_);
    session = session_;
    fencing = fencing_;
  }
  return Call<bool>([&](Coordinator& coordinator, Done<bool> done) {
           coordinator.ReportEval(session, fencing, event,
                                  [done](const absl::Status& status) {
                                    if (!status.ok()) return done(status);
                                    done(true);
                                  });
         })
      .status();
}

absl::Status MemoryPort::Leave(const std::string& reason) {
  std::string session;
  Fencing fencing;
  {
    MutexLock lock(&mu_);
    session = session_;
    fencing = fencing_;
  }
  return Call<bool>([&](Coordinator& coordinator, Done<bool> done) {
           coordinator.Leave(session, fencing, reason,
                             [done](const absl::Status& status) {
                               if (!status.ok()) return done(status);
                               done(true);
                             });
         })
      .status();
}

absl::StatusOr<UploadOutcome> MemoryPort::UploadOnce(Coordinator& coordinator,
                                                     const UpdateOffer& offer,
                                                     const ReadableFile& file,
                                                     const CancelFlag& cancel) {
  std::string session;
  Fencing fencing;
  {
    MutexLock lock(&mu_);
    session = session_;
    fencing = fencing_;
  }
  ASSIGN_OR_RETURN(const BeginOutcome begin,
                   coordinator.BeginUpload(session, fencing, offer.fragment,
                                           offer.round, ValueOf(offer)));
  if (begin.queued) return absl::UnavailableError("queued");
  if (begin.kind != UploadVerdict::Kind::kSend) {
    return OutcomeOf(begin.kind, begin.reason);
  }
  ASSIGN_OR_RETURN(
      const std::shared_ptr<Coordinator::Upload> upload,
      coordinator.OpenUpload(session, fencing, offer.fragment, offer.round));
  std::string chunk;
  for (uint64_t at = begin.offset; at < offer.bytes; at += chunk.size()) {
    if (cancel) return absl::CancelledError("not wanted any more");
    if (cut_) return absl::UnavailableError("cut");
    chunk.resize(std::min<uint64_t>(4096, offer.bytes - at));
    RETURN_IF_ERROR(file.ReadAt(at, absl::MakeSpan(chunk)));
    const absl::Status written = upload->Write(at, chunk);
    if (absl::IsInvalidArgument(written)) break;  // Finish says why.
    RETURN_IF_ERROR(written);
  }
  ASSIGN_OR_RETURN(const FinishOutcome finish,
                   coordinator.FinishUpload(session, fencing, offer.fragment,
                                            offer.round, offer.digest));
  if (cut_after_commit_.exchange(false)) {
    uploads_cut_ = true;
    return absl::UnavailableError("the reply was lost");
  }
  if (lost_replies_.fetch_sub(1) > 0) {
    return absl::UnavailableError("the reply was lost");
  }
  return OutcomeOf(finish.kind, finish.reason);
}

absl::StatusOr<UploadOutcome> MemoryPort::Upload(const UpdateOffer& offer,
                                                 const ReadableFile& file,
                                                 const CancelFlag& cancel) {
  {
    MutexLock lock(&mu_);
    if (offers_.empty() || offers_.back().digest != offer.digest ||
        offers_.back().round != offer.round) {
      offers_.push_back(offer);
    }
  }
  while (true) {
    if (cancel || shutdown_) {
      ++cancelled_uploads_;
      return absl::CancelledError("not wanted any more");
    }
    const std::shared_ptr<Coordinator> coordinator = slot_->Get();
    if (!cut_ && !uploads_cut_ && coordinator != nullptr) {
      absl::StatusOr<UploadOutcome> outcome =
          UploadOnce(*coordinator, offer, file, cancel);
      const bool again = absl::IsUnavailable(outcome.status()) ||
                         absl::IsAborted(outcome.status()) ||
                         absl::IsDataLoss(outcome.status());
      if (!again) return outcome;
    }
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kPoll));
  }
}

absl::Status MemoryPort::Download(const Digest& digest, uint64_t bytes,
                                  const std::string& path,
                                  const CancelFlag& cancel) {
  if (cancel) return absl::CancelledError("not wanted any more");
  const std::shared_ptr<Coordinator> coordinator = slot_->Get();
  if (cut_ || coordinator == nullptr) return absl::UnavailableError("away");
  ASSIGN_OR_RETURN(const ServedFile served, coordinator->FindFile(digest));
  FileSystem* const fs = coordinator->options().fs;
  ASSIGN_OR_RETURN(const std::string content, ReadFile(fs, served.path));
  if (content.size() != bytes || BlockDigest(content) != digest) {
    return absl::DataLossError("the file served is not the one named");
  }
  return WriteFileAtomic(fs_, path, content);
}

}  // namespace diloco
