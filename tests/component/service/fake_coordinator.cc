#include "tests/component/service/fake_coordinator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

}  // namespace

class FakeCoordinator::OpenedUpload final : public Coordinator::Upload {
 public:
  explicit OpenedUpload(FakeCoordinator* fake) : fake_(fake) {}
  uint64_t offset() const override {
    MutexLock lock(&fake_->mu_);
    return fake_->uploaded_.size();
  }
  absl::Status Write(uint64_t offset, absl::string_view bytes) override {
    MutexLock lock(&fake_->mu_);
    if (fake_->rewind_.has_value()) {
      fake_->uploaded_.resize(
          std::min<size_t>(*fake_->rewind_, fake_->uploaded_.size()));
      fake_->rewind_.reset();
    }
    if (offset != fake_->uploaded_.size()) {
      return absl::AbortedError(absl::StrCat(
          "chunk at offset ", offset, ", expected ", fake_->uploaded_.size()));
    }
    fake_->uploaded_.append(bytes.data(), bytes.size());
    fake_->changed_.SignalAll();
    return absl::OkStatus();
  }

 private:
  FakeCoordinator* const fake_;
};

FakeCoordinator::FakeCoordinator()
    : fencing_{.lineage = std::string(16, 'L'),
               .epoch = 5,
               .boot_nonce = std::string(8, 'N')} {
  options_.run = "kjv";
  options_.metrics = &metrics_;
  options_.policy.batch_tokens = 1024;
  RunSettings& settings = options_.settings;
  settings.run = "kjv";
  settings.seed = 7;
  settings.model.layers = 2;
  settings.model.hidden = 64;
  settings.model.heads = 4;
  settings.model.kv_heads = 2;
  settings.model.head_dim = 16;
  settings.model.ffn = 96;
  settings.model.vocab = 256;
  settings.model.tied = true;
  settings.model.max_positions = 128;
  settings.train.tokens = 1000000;
  settings.train.batch_tokens = 1024;
  settings.train.seq_len = 128;
  settings.train.schedule = ScheduleShape::kCosine;
  settings.late = LatePolicy::kReject;
  settings.layout_digest = Sha256("layout");
  options_.settings_digest = Sha256("settings");
  options_.model_json = "{}";
}

void FakeCoordinator::SetFencing(const Fencing& fencing) {
  MutexLock lock(&mu_);
  fencing_ = fencing;
}

void FakeCoordinator::SetRevision(uint64_t revision) {
  std::vector<Poll> polls;
  ViewOutcome view;
  {
    MutexLock lock(&mu_);
    revision_ = revision;
    polls.swap(polls_);
    view = View();
  }
  for (Poll& poll : polls) poll.done(view);
}

void FakeCoordinator::ExpirePolls() {
  uint64_t revision = 0;
  {
    MutexLock lock(&mu_);
    revision = revision_;
  }
  SetRevision(revision);
}

void FakeCoordinator::AddFile(const Digest& digest, const std::string& path,
                              uint64_t bytes) {
  MutexLock lock(&mu_);
  files_[digest] = {.path = path, .bytes = bytes};
}

void FakeCoordinator::RewindNextWrite(uint64_t offset) {
  MutexLock lock(&mu_);
  rewind_ = offset;
}

void FakeCoordinator::SetBusy(int times) {
  MutexLock lock(&mu_);
  busy_ = times;
}

void FakeCoordinator::SetVerdict(UploadVerdict::Kind kind,
                                 const std::string& reason) {
  MutexLock lock(&mu_);
  kind_ = kind;
  reason_ = reason;
}

void FakeCoordinator::SetBeginError(const absl::Status& status) {
  MutexLock lock(&mu_);
  begin_error_ = status;
}

size_t FakeCoordinator::waiting_polls() const {
  MutexLock lock(&mu_);
  return polls_.size();
}
absl::Duration FakeCoordinator::last_max_wait() const {
  MutexLock lock(&mu_);
  return last_max_wait_;
}
std::string FakeCoordinator::uploaded() const {
  MutexLock lock(&mu_);
  return uploaded_;
}
std::optional<UpdateValue> FakeCoordinator::value() const {
  MutexLock lock(&mu_);
  return value_;
}
uint64_t FakeCoordinator::bulk_received() const {
  MutexLock lock(&mu_);
  return bulk_received_;
}
uint64_t FakeCoordinator::bulk_sent() const {
  MutexLock lock(&mu_);
  return bulk_sent_;
}
int FakeCoordinator::begins() const {
  MutexLock lock(&mu_);
  return begins_;
}
uint64_t FakeCoordinator::last_begin_offset() const {
  MutexLock lock(&mu_);
  return last_begin_offset_;
}
int FakeCoordinator::finishes() const {
  MutexLock lock(&mu_);
  return finishes_;
}
std::optional<JoinEvent> FakeCoordinator::joined() const {
  MutexLock lock(&mu_);
  return joined_;
}
std::optional<WorkerProgress> FakeCoordinator::progress() const {
  MutexLock lock(&mu_);
  return progress_;
}
std::optional<Event> FakeCoordinator::admin_event() const {
  MutexLock lock(&mu_);
  return admin_event_;
}
std::string FakeCoordinator::left() const {
  MutexLock lock(&mu_);
  return left_;
}

bool FakeCoordinator::WaitForPolls(size_t polls) {
  MutexLock lock(&mu_);
  const Instant end = Clock::Real()->Now() + kPatience;
  while (polls_.size() < polls) {
    const absl::Duration left = end - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mu_, left);
  }
  return true;
}

bool FakeCoordinator::WaitForUploaded(uint64_t bytes) {
  MutexLock lock(&mu_);
  const Instant end = Clock::Real()->Now() + kPatience;
  while (uploaded_.size() < bytes) {
    const absl::Duration left = end - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mu_, left);
  }
  return true;
}

absl::Status FakeCoordinator::CheckSession(const std::string& session) const {
  if (session == session_) return absl::OkStatus();
  return absl::PermissionDeniedError("the session was superseded");
}

void FakeCoordinator::Join(JoinEvent event, Fencing, std::optional<Digest>,
                           Done<JoinOutcome> done) {
  JoinOutcome outcome;
  {
    MutexLock lock(&mu_);
    session_ = RandomBytes(16);
    joined_ = std::move(event);
    outcome = {.fencing = fencing_,
               .session = session_,
               .settings = InForce(),
               .settings_digest = options_.settings_digest};
  }
  done(outcome);
}

std::shared_ptr<const SettingsView> FakeCoordinator::InForce() const {
  return std::make_shared<SettingsView>(
      SettingsView{4, options_.policy, options_.settings, ""});
}

// What was asked for, as if it had been done.
void FakeCoordinator::ChangeSettings(SettingsChange change,
                                     Done<SettingsChanged> done) {
  SettingsChanged changed;
  changed.revision = 5;
  changed.from_round = kRound + 1;
  changed.by = change.by;
  for (const auto& [key, value] : change.values) {
    changed.changes.push_back({key, "old", value, false});
  }
  done(changed);
}

void FakeCoordinator::GetSettings(Done<SettingsReport> done) {
  done(SettingsReport{
      fencing_, 5, {{"outer.lr", "0.7"}}, {{"outer.lr", "0.5"}}});
}

ViewOutcome FakeCoordinator::View() const {
  ViewOutcome outcome;
  outcome.fencing = fencing_;
  outcome.revision = revision_;
  outcome.view.phase = RunPhase::kRunning;
  outcome.view.notice = "round 3 waits for b";
  outcome.view.leases.push_back({.fragment = 0,
                                 .round = kRound,
                                 .base_version = 2,
                                 .base_digest = Sha256("base"),
                                 .lease = {.worker = "a",
                                           .steps = 25,
                                           .tokens = 25600,
                                           .progress = 0.25,
                                           .progress_step = 0.001,
                                           .window_steps = 40},
                                 .deadline_left = absl::Seconds(90),
                                 .delivered = false});
  outcome.view.evals.push_back(
      {.version = 2, .slice = 1, .first_window = 8, .windows = 4});
  outcome.view.probe = {
      .version = 2, .slice = 3, .first_window = 12, .windows = 6};
  outcome.fragments.push_back({.fragment = 0,
                               .version = 2,
                               .digest = Sha256("base"),
                               .open_round = kRound});
  outcome.folded_tokens = 51200;
  outcome.settings = InForce();
  return outcome;
}

void FakeCoordinator::Watch(std::string session, Fencing, uint64_t known,
                            absl::Duration max_wait, Done<ViewOutcome> done) {
  absl::StatusOr<ViewOutcome> answer;
  {
    MutexLock lock(&mu_);
    last_max_wait_ = max_wait;
    const absl::Status status = CheckSession(session);
    if (status.ok() && known == revision_) {
      polls_.push_back({.known = known, .done = std::move(done)});
      changed_.SignalAll();
      return;
    }
    if (status.ok()) {
      answer = View();
    } else {
      answer = status;
    }
  }
  done(std::move(answer));
}

void FakeCoordinator::Beat(std::string session, Fencing,
                           WorkerProgress progress, Done<uint64_t> done) {
  absl::StatusOr<uint64_t> answer;
  {
    MutexLock lock(&mu_);
    progress_ = std::move(progress);
    answer = revision_;
    const absl::Status status = CheckSession(session);
    if (!status.ok()) answer = status;
  }
  done(answer);
}

ResolveOutcome FakeCoordinator::Steps() const {
  ResolveOutcome outcome;
  outcome.fencing = fencing_;
  outcome.version = 2;
  outcome.steps.push_back({.image = true,
                           .version = 1,
                           .file = {.digest = Sha256("image"), .bytes = 4096},
                           .result_digest = Sha256("one")});
  outcome.steps.push_back({.image = false,
                           .version = 2,
                           .file = {.digest = Sha256("blob"), .bytes = 4000},
                           .result_digest = Sha256("base")});
  return outcome;
}

void FakeCoordinator::Resolve(std::string, Fencing, uint32_t,
                              std::optional<uint64_t>,
                              Done<ResolveOutcome> done) {
  ResolveOutcome outcome;
  {
    MutexLock lock(&mu_);
    outcome = Steps();
  }
  done(outcome);
}

void FakeCoordinator::ResolveForExport(uint32_t, Done<ResolveOutcome> done) {
  ResolveOutcome outcome;
  {
    MutexLock lock(&mu_);
    outcome = Steps();
  }
  done(outcome);
}

void FakeCoordinator::ReportEval(std::string, Fencing, EvalReportEvent,
                                 std::function<void(absl::Status)> done) {
  done(absl::OkStatus());
}

void FakeCoordinator::Leave(std::string, Fencing, std::string reason,
                            std::function<void(absl::Status)> done) {
  {
    MutexLock lock(&mu_);
    left_ = std::move(reason);
  }
  done(absl::OkStatus());
}

absl::StatusOr<BeginOutcome> FakeCoordinator::BeginUpload(
    const std::string& session, const Fencing&, uint32_t, uint64_t,
    const UpdateValue& value) {
  MutexLock lock(&mu_);
  ++begins_;
  RETURN_IF_ERROR(CheckSession(session));
  RETURN_IF_ERROR(begin_error_);
  if (value_.has_value() && !(*value_ == value)) {
    return absl::AlreadyExistsError("another update came under this key");
  }
  value_ = value;
  BeginOutcome outcome;
  outcome.kind = accepted_ ? UploadVerdict::Kind::kAccepted : kind_;
  outcome.reason = reason_;
  outcome.offset = uploaded_.size();
  last_begin_offset_ = outcome.offset;
  outcome.sequence = accepted_ ? 42 : 0;
  return outcome;
}

absl::StatusOr<std::shared_ptr<Coordinator::Upload>>
FakeCoordinator::OpenUpload(const std::string& session, const Fencing&,
                            uint32_t, uint64_t) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckSession(session));
  if (open_ == nullptr) open_ = std::make_shared<OpenedUpload>(this);
  return open_;
}

absl::StatusOr<FinishOutcome> FakeCoordinator::FinishUpload(
    const std::string& session, const Fencing&, uint32_t, uint64_t,
    const Digest& digest) {
  MutexLock lock(&mu_);
  ++finishes_;
  RETURN_IF_ERROR(CheckSession(session));
  if (busy_ > 0) {
    --busy_;
    return absl::UnavailableError("another call for it is under way");
  }
  if (BlockDigest(uploaded_) != digest) {
    uploaded_.clear();
    return absl::DataLossError("the update has another digest");
  }
  accepted_ = true;
  FinishOutcome outcome;
  outcome.sequence = 42;
  return outcome;
}

absl::StatusOr<ServedFile> FakeCoordinator::FindFile(const Digest& digest) {
  MutexLock lock(&mu_);
  const auto file = files_.find(digest);
  if (file == files_.end()) return absl::NotFoundError("no such file");
  return file->second;
}

void FakeCoordinator::CountBulkBytes(uint64_t received, uint64_t sent) {
  MutexLock lock(&mu_);
  bulk_received_ += received;
  bulk_sent_ += sent;
}

StatusReport FakeCoordinator::Status() const {
  StatusReport report;
  report.fencing = fencing_;
  report.run = "kjv";
  report.phase = RunPhase::kRunning;
  report.batch_tokens = options_.policy.batch_tokens;
  report.folded_tokens = 51200;
  report.train_tokens = 1000000;
  StatusReport::Fragment fragment;
  fragment.open_round = kRound;
  fragment.version = 2;
  report.fragments.push_back(fragment);
  WorkerReport worker;
  worker.name = "a";
  worker.membership = "active";
  worker.since_heard = absl::Milliseconds(500);
  worker.progress.step_seconds = 0.5;
  report.workers.push_back(worker);
  report.eval.emplace();
  report.eval->version = 2;
  report.eval->loss = 2.0;
  report.eval->tokens = 8192;
  report.bytes_per_token = 4.0;
  report.last_sequence = 2;
  return report;
}

void FakeCoordinator::GetStatus(Done<StatusReport> done) {
  StatusReport report;
  {
    MutexLock lock(&mu_);
    report = Status();
  }
  done(report);
}

void FakeCoordinator::GetEvents(uint64_t after_sequence, absl::Duration,
                                Done<EventsOutcome> done) {
  EventsOutcome outcome;
  {
    MutexLock lock(&mu_);
    outcome.fencing = fencing_;
    outcome.oldest_sequence = 1;
    for (uint64_t sequence = after_sequence + 1; sequence <= 2; ++sequence) {
      EventReport event;
      event.sequence = sequence;
      event.wall_time = absl::UnixEpoch() + absl::Seconds(sequence);
      VersionPublished published;
      published.round = sequence;
      published.version = sequence;
      event.fact = published;
      event.status = Status();
      outcome.events.push_back(event);
    }
  }
  done(outcome);
}

void FakeCoordinator::Admin(Event event,
                            std::function<void(absl::Status)> done) {
  const auto* drain = std::get_if<DrainEvent>(&event);
  const absl::Status status = drain != nullptr && drain->worker == "nobody"
                                  ? absl::NotFoundError("no worker \"nobody\"")
                                  : absl::OkStatus();
  {
    MutexLock lock(&mu_);
    admin_event_ = std::move(event);
  }
  done(status);
}

Fencing FakeCoordinator::fencing() const {
  MutexLock lock(&mu_);
  return fencing_;
}

std::optional<FileRef> FakeCoordinator::eval_shard() const {
  return FileRef{.digest = Sha256("shard"), .bytes = 2048};
}

std::vector<std::pair<std::string, FileRef>> FakeCoordinator::tokenizer_files()
    const {
  return {{"tokenizer.model", {.digest = Sha256("tokenizer"), .bytes = 9}}};
}

}  // namespace diloco
