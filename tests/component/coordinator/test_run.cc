#include "tests/component/coordinator/test_run.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "tests/support/sample_update.h"

namespace diloco {
namespace {

constexpr uint64_t kChunk = 1000;

}  // namespace

TestRun::TestRun(int count) {
  for (int i = 0; i < count; ++i) {
    workers.push_back(std::string(1, static_cast<char>('a' + i)));
  }
  options.run = "test";
  options.layout =
      BuildLayout({{"a.weight", {30, 10}}, {"b.norm", {100}}}, 1).value();
  options.settings.codec_up = Codec::kFp32;
  options.policy.codec_up = Codec::kFp32;
  options.policy.train_tokens = 1'000'000;
  options.policy.batch_tokens = 10;
  options.policy.interval = 5;
  options.policy.wait_for = static_cast<uint32_t>(count);
  options.policy.deadline = absl::Minutes(10);
  options.policy.outer_lr = 0.7;
  options.policy.outer_momentum = 0.5;
  options.state_dir = kStateDir;
  options.image_every = 2;
  options.initial_theta = [](absl::Span<float> theta) {
    for (size_t i = 0; i < theta.size(); ++i) {
      theta[i] = static_cast<float>(i % 7) * 0.25f;
    }
    return absl::OkStatus();
  };
  options.fs = &fs;
  options.clock = &clock;
  options.on_fatal = [this](const absl::Status& status) {
    MutexLock lock(&mu_);
    fatal_.Update(status);
    changed_.SignalAll();
  };
}

TestRun::~TestRun() { End(); }

absl::Status TestRun::Start() {
  {
    MutexLock lock(&mu_);
    fatal_ = absl::OkStatus();
  }
  metrics = std::make_unique<MetricsRegistry>();
  options.metrics = metrics.get();
  absl::StatusOr<std::unique_ptr<Coordinator>> started =
      Coordinator::Start(options);
  RETURN_IF_ERROR(started.status());
  coordinator = *std::move(started);
  return absl::OkStatus();
}

void TestRun::End() {
  // Nothing that a thread still does reaches the disk.
  fs.StopAfter(1);
  if (coordinator != nullptr) coordinator->Stop();
  coordinator.reset();
  fs.KillProcess();
}

absl::Status TestRun::fatal() const {
  MutexLock lock(&mu_);
  return fatal_;
}

template <typename T>
absl::StatusOr<T> TestRun::Wait(const std::function<void(Done<T>)>& start) {
  auto answer = std::make_shared<std::optional<absl::StatusOr<T>>>();
  start([this, answer](absl::StatusOr<T> value) {
    MutexLock lock(&mu_);
    *answer = std::move(value);
    changed_.SignalAll();
  });
  MutexLock lock(&mu_);
  while (!answer->has_value() && fatal_.ok()) changed_.Wait(&mu_);
  if (!answer->has_value()) return absl::UnavailableError("it has ended");
  return **answer;
}

void TestRun::JoinAll(const Fencing& last_seen) {
  for (const std::string& worker : workers) {
    if (!sessions[worker].empty()) continue;
    std::string& attempt = attempts_[worker];
    if (attempt.empty()) attempt = RandomBytes(16);
    JoinEvent event;
    event.worker = worker;
    event.attempt = attempt;
    event.peer = "memory";
    const absl::StatusOr<JoinOutcome> joined =
        Wait<JoinOutcome>([&](Done<JoinOutcome> done) {
          coordinator->Join(event, last_seen, std::nullopt, std::move(done));
        });
    if (!joined.ok()) continue;
    sessions[worker] = joined->session;
    attempt.clear();
  }
}

absl::StatusOr<ViewOutcome> TestRun::View(const std::string& worker) {
  return Wait<ViewOutcome>([&](Done<ViewOutcome> done) {
    coordinator->Watch(sessions[worker], Fencing(), 0, absl::ZeroDuration(),
                       std::move(done));
  });
}

absl::Status TestRun::AwaitVersion(uint64_t version, uint32_t fragment) {
  uint64_t known = 0;
  while (true) {
    ASSIGN_OR_RETURN(
        const ViewOutcome view, Wait<ViewOutcome>([&](Done<ViewOutcome> done) {
          coordinator->Watch(sessions[workers[0]], Fencing(), known,
                             absl::Hours(1), std::move(done));
        }));
    if (view.fragments[fragment].version >= version) return absl::OkStatus();
    known = view.revision;
  }
}

absl::StatusOr<SettingsChanged> TestRun::Change(SettingsChange change) {
  return Wait<SettingsChanged>([&](Done<SettingsChanged> done) {
    coordinator->ChangeSettings(change, std::move(done));
  });
}

void TestRun::Pause(bool paused) {
  std::promise<absl::Status> done;
  coordinator->Admin(
      PauseEvent{paused, "test"},
      [&](const absl::Status& status) { done.set_value(status); });
  const absl::Status status = done.get_future().get();
  DILOCO_CHECK(status.ok()) << status;
}

std::string TestRun::AwaitTrouble(const std::string& part) {
  const Instant give_up = Clock::Real()->Now() + absl::Seconds(60);
  while (Clock::Real()->Now() < give_up) {
    const std::string trouble = coordinator->NotReady();
    if (!trouble.empty() && absl::StrContains(trouble, part)) return trouble;
    std::this_thread::yield();
  }
  return "";
}

absl::Status TestRun::JoinWith(const std::string& worker,
                               const Digest& settings) {
  JoinEvent event;
  event.worker = worker;
  event.attempt = RandomBytes(16);
  event.take_over = true;
  return Wait<JoinOutcome>([&](Done<JoinOutcome> done) {
           coordinator->Join(event, Fencing(), settings, std::move(done));
         })
      .status();
}

StatusReport TestRun::Status() {
  const absl::StatusOr<StatusReport> report =
      Wait<StatusReport>([&](Done<StatusReport> done) {
        coordinator->GetStatus(std::move(done));
      });
  DILOCO_CHECK(report.ok()) << report.status().message();
  return *report;
}

std::vector<EventReport> TestRun::Events() {
  return Wait<EventsOutcome>([&](Done<EventsOutcome> done) {
           coordinator->GetEvents(0, absl::ZeroDuration(), std::move(done));
         })
      .value()
      .events;
}

std::vector<float> TestRun::Values(const std::string& worker, uint64_t round,
                                   float scale) const {
  std::vector<float> values = SampleValues(
      options.layout.elements, static_cast<int>(round * 100) + worker[0]);
  for (float& value : values) value *= scale;
  return values;
}

TestUpdate TestRun::UpdateOf(const LeaseView& lease,
                             std::vector<float> values) const {
  TestUpdate update;
  update.fragment = lease.fragment;
  update.round = lease.round;
  values.resize(
      static_cast<size_t>(options.layout.fragments[lease.fragment].elements));
  update.bytes = PartBytes(options.policy.codec_up, values, lease.fragment);
  update.value = ValueOf(update.bytes);
  update.value.codec = options.policy.codec_up;
  update.value.base_version = lease.base_version;
  update.value.base_digest = lease.base_digest;
  update.value.tokens = lease.lease.tokens;
  update.value.steps = lease.lease.steps;
  return update;
}

std::optional<TestUpdate> TestRun::FindUpdate(const std::string& worker,
                                              float scale) {
  const absl::StatusOr<ViewOutcome> view = View(worker);
  if (!view.ok() || view->view.leases.empty()) return std::nullopt;
  const LeaseView& lease = view->view.leases[0];
  return UpdateOf(lease, Values(worker, lease.round, scale));
}

TestUpdate TestRun::NextUpdate(const std::string& worker, float scale) {
  const std::optional<TestUpdate> update = FindUpdate(worker, scale);
  DILOCO_CHECK(update.has_value()) << worker << " holds no lease";
  return *update;
}

absl::StatusOr<BeginOutcome> TestRun::Begin(const std::string& worker,
                                            const TestUpdate& update) {
  return coordinator->BeginUpload(sessions.at(worker), Fencing(),
                                  update.fragment, update.round, update.value);
}

absl::Status TestRun::Send(const std::string& worker, const TestUpdate& update,
                           uint64_t offset, uint64_t end) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Coordinator::Upload> upload,
                   coordinator->OpenUpload(sessions.at(worker), Fencing(),
                                           update.fragment, update.round));
  end = std::min<uint64_t>(end, update.bytes.size());
  while (offset < end) {
    const absl::string_view chunk =
        absl::string_view(update.bytes)
            .substr(offset, std::min(kChunk, end - offset));
    RETURN_IF_ERROR(upload->Write(offset, chunk));
    offset += chunk.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<FinishOutcome> TestRun::Finish(const std::string& worker,
                                              const TestUpdate& update) {
  return coordinator->FinishUpload(sessions.at(worker), Fencing(),
                                   update.fragment, update.round,
                                   update.value.digest);
}

absl::StatusOr<FinishOutcome> TestRun::Deliver(const std::string& worker,
                                               const TestUpdate& update) {
  ASSIGN_OR_RETURN(const BeginOutcome begun, Begin(worker, update));
  if (begun.kind != UploadVerdict::Kind::kSend) {
    FinishOutcome outcome;
    outcome.kind = begun.kind;
    outcome.sequence = begun.sequence;
    outcome.reason = begun.reason;
    return outcome;
  }
  const absl::Status sent = Send(worker, update, begun.offset);
  // What can never be used is said once more, and recorded, by Finish.
  if (!sent.ok() && !absl::IsInvalidArgument(sent)) return sent;
  return Finish(worker, update);
}

void TestRun::DeliverAll() {
  for (const std::string& worker : workers) {
    const absl::StatusOr<FinishOutcome> outcome =
        Deliver(worker, NextUpdate(worker));
    DILOCO_CHECK(outcome.ok()) << outcome.status().message();
    DILOCO_CHECK(outcome->kind == UploadVerdict::Kind::kAccepted)
        << outcome->reason;
  }
}

std::vector<std::string> TestRun::FilesWith(const std::string& part) {
  std::vector<std::string> found;
  std::vector<std::string> dirs = {kStateDir};
  while (!dirs.empty()) {
    const std::string dir = std::move(dirs.back());
    dirs.pop_back();
    const std::vector<std::string> names = fs.List(dir).value();
    for (const std::string& name : names) {
      const std::string path = JoinPath(dir, name);
      if (fs.List(path).ok()) {
        dirs.push_back(path);
      } else if (absl::StrContains(path, part)) {
        found.push_back(path);
      }
    }
  }
  return found;
}

}  // namespace diloco
