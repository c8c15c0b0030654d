// Start of a coordinator: lock, journal, images, and the new epoch.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "coordinator/runtime/coordinator_impl.h"
#include "coordinator/store/fact_codec.h"
#include "coordinator/store/state_dir.h"
#include "coordinator/store/unknown_files.h"

namespace diloco {
namespace {

absl::StatusOr<FileRef> DescribeFile(FileSystem* fs, const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs->OpenForRead(path));
  FileRef ref;
  ASSIGN_OR_RETURN(ref.bytes, file->Size());
  ASSIGN_OR_RETURN(ref.digest, BlockDigestOfFile(*file));
  return ref;
}

// What is acknowledged or published and cannot be read any more.
absl::Status AskForBackup(const absl::Status& status) {
  if (status.ok() || absl::IsResourceExhausted(status) ||
      absl::StrContains(status.message(), "backup")) {
    return status;
  }
  // Permissions, a read-only disk: nothing is lost.
  if (absl::IsInternal(status)) {
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(),
                     "; the coordinator must be able to read and write all of "
                     "its state directory"));
  }
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(),
                   "; put that file back from a backup of the state directory "
                   "and start again: the run does not go on without what it "
                   "holds"));
}

void AppendFact(Journal& journal, State& state, const Fact& fact) {
  const EncodedFact encoded = EncodeFact(fact);
  journal.Append(encoded.type, encoded.payload);
  const absl::Status evolved = Evolve(state, fact);
  DILOCO_CHECK(evolved.ok()) << evolved.message();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    CoordinatorOptions options) {
  auto coordinator = std::make_unique<CoordinatorImpl>(std::move(options));
  RETURN_IF_ERROR(coordinator->Recover());
  return coordinator;
}

absl::Status CoordinatorImpl::LoadServedFiles() {
  const auto serve =
      [this](const std::string& path) -> absl::StatusOr<FileRef> {
    ASSIGN_OR_RETURN(const FileRef ref, DescribeFile(options_.fs, path));
    served_files_[ref.digest] = {path, ref.bytes};
    return ref;
  };
  if (!options_.eval_shard.empty()) {
    ASSIGN_OR_RETURN(eval_shard_, serve(options_.eval_shard));
  }
  for (const auto& [name, path] : options_.tokenizer_files) {
    ASSIGN_OR_RETURN(FileRef ref, serve(path));
    tokenizer_files_.push_back({name, ref});
  }
  return absl::OkStatus();
}

absl::Status CoordinatorImpl::CheckRun(const State& state) {
  if (state.run != options_.run) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.state_dir, " holds the run \"", state.run,
                     "\", the run file names \"", options_.run,
                     "\": point state.dir to another directory"));
  }
  const std::string path = JoinPath(options_.state_dir, kSettingsFile);
  const absl::StatusOr<std::string> kept = ReadFile(options_.fs, path);
  const bool good = kept.ok() && Sha256(*kept) == state.settings_digest;
  absl::Status settings;
  if (good) {
    settings = settings_.SetCreated(*kept);
  } else if (state.settings_digest == options_.settings_digest) {
    // The run file still says the same.
    if (!kept.ok() || *kept != options_.settings_text) {
      const absl::Status written =
          WriteFileAtomic(options_.fs, path, options_.settings_text);
      DILOCO_LOG(WARNING) << path << " was missing or damaged and is "
                          << (written.ok() ? "written anew"
                                           : written.ToString());
    }
    settings = settings_.SetCreated(options_.settings_text);
  } else {
    settings = absl::FailedPreconditionError(absl::StrCat(
        "their digest is ", state.settings_digest.Short(),
        ", the run file gives ", options_.settings_digest.Short(), ", and ",
        path, " is missing or damaged: put it back from a backup"));
  }
  if (settings.ok()) return settings;
  return absl::FailedPreconditionError(absl::StrCat(
      options_.state_dir,
      " was made with other run settings: ", settings.message(),
      ". Set the run file back, or start a new run in another state.dir"));
}

absl::StatusOr<std::optional<SettingsEvent>> CoordinatorImpl::RecoverSettings(
    const State& state) {
  // Absent while the run file is that of the creation.
  absl::StatusOr<std::string> seen =
      ReadFile(options_.fs, JoinPath(options_.state_dir, kRunFileSettings));
  if (!seen.ok()) {
    seen = ReadFile(options_.fs, JoinPath(options_.state_dir, kSettingsFile));
  }
  seen_run_file_ = seen.ok() ? *seen : "";
  const absl::StatusOr<SettingValues> edits =
      settings_.Recover(state, seen_run_file_, options_.accept_edits);
  if (edits.ok()) {
    if (edits->empty()) return std::nullopt;
    return settings_.Plan(state, *edits, "the edited run file",
                          "accepted at the start");
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the run file was edited since ", options_.state_dir,
      " knows it: ", edits.status().message(),
      ". Start with --accept to take these over for the run, or set the run "
      "file back"));
}

absl::Status CoordinatorImpl::AcceptEdits(
    const std::optional<SettingsEvent>& edits) {
  if (edits.has_value()) RETURN_IF_ERROR(SubmitAndWait(*edits).first);
  if (seen_run_file_ == options_.settings_text) return absl::OkStatus();
  return WriteFileAtomic(options_.fs,
                         JoinPath(options_.state_dir, kRunFileSettings),
                         options_.settings_text);
}

absl::StatusOr<std::unique_ptr<Journal>> CoordinatorImpl::ReplayJournal(
    State& state) {
  absl::Status refused;
  absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(
      options_.fs, options_.state_dir,
      [&](const Journal::Record& record) -> absl::Status {
        ASSIGN_OR_RETURN(const Fact fact,
                         DecodeFact(record.type, record.payload));
        RETURN_IF_ERROR(Evolve(state, fact));
        // Refuse another run's directory before its facts reach the engine.
        if (record.sequence == 1) refused = CheckRun(state);
        RETURN_IF_ERROR(refused);
        versions_.Learn(fact);
        engine_->Learn(fact);
        LearnKnownFiles(fact);
        EventReport event{record.sequence, std::nullopt, fact, std::nullopt};
        if (TellsStatus(state, fact)) event.status = ReplayedStatus(state);
        events_.Add(std::move(event));
        return absl::OkStatus();
      },
      options_.journal_segment_bytes);
  // Nothing is wrong with the record that the journal would name.
  if (!refused.ok()) return refused;
  return journal;
}

void CoordinatorImpl::LearnKnownFiles(const Fact& fact) {
  if (const auto* opened = std::get_if<RoundOpened>(&fact)) {
    known_files_[opened->fragment].round = opened->round;
  } else if (const auto* published = std::get_if<VersionPublished>(&fact)) {
    // A rollback leaves the files of versions that it undid. A fold has its
    // files on disk before the journal tells of it.
    uint64_t& version = known_files_[published->fragment].version;
    version = std::max(version, published->version + 1);
  } else if (const auto* created = std::get_if<RunCreated>(&fact)) {
    for (uint32_t f = 0; f < created->fragments.size(); ++f) {
      known_files_[f].version = 1;
    }
  }
}

absl::Status CoordinatorImpl::CheckNotLost(bool fresh) const {
  ASSIGN_OR_RETURN(
      const std::optional<std::string> unknown,
      FindUnknownFile(options_.fs, options_.state_dir, known_files_));
  if (!unknown.has_value()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      *unknown, " is there, but ",
      fresh ? absl::StrCat(SegmentName(1), " is missing or empty")
            : "the journal ends before what led to it: its newest records, or "
              "its newest file, are gone",
      ": restore the journal from a backup",
      fresh ? ", or point state.dir to another directory to start a new run"
            : ", or make a state directory of what is left with dilococtl "
              "restore --accept-loss"));
}

absl::Status CoordinatorImpl::CreateRun(Journal& journal, State& state) {
  DILOCO_LOG(INFO) << "new run run=" << options_.run
                   << " parameters=" << options_.layout.parameters
                   << " state=" << options_.state_dir;
  RETURN_IF_ERROR(settings_.SetCreated(options_.settings_text));
  seen_run_file_ = options_.settings_text;
  RETURN_IF_ERROR(WriteFileAtomic(options_.fs,
                                  JoinPath(options_.state_dir, kSettingsFile),
                                  options_.settings_text));
  ASSIGN_OR_RETURN(RunCreated created,
                   engine_->CreateRun(options_.initial_theta));
  created.run = options_.run;
  created.lineage = options_.random_bytes(16);
  created.settings_digest = options_.settings_digest;
  created.layout_digest = options_.layout.ComputeDigest();
  const Fact fact = created;
  AppendFact(journal, state, fact);
  versions_.Learn(fact);
  engine_->Learn(fact);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<VersionPublished>> CoordinatorImpl::FoldPending(
    const State& state) {
  std::vector<VersionPublished> done;
  for (uint32_t f = 0; f < state.fragments.size(); ++f) {
    const std::optional<FoldOrder> order = PendingFold(state, f);
    if (!order.has_value()) continue;
    absl::StatusOr<VersionPublished> published = engine_->Run(f, *order);
    // The fold thread waits for space while the run says so.
    if (absl::IsResourceExhausted(published.status())) continue;
    RETURN_IF_ERROR(published.status());
    fold_running_[f] = true;
    done.push_back(*std::move(published));
  }
  return done;
}

absl::Status CoordinatorImpl::AsSpaceAllows(
    const std::function<absl::Status()>& attempt) {
  bool waited = false;
  while (true) {
    const absl::Status status = attempt();
    if (waited && status.ok()) {
      DILOCO_LOG(INFO) << "the start found disk space";
    }
    if (!absl::IsResourceExhausted(status) ||
        options_.wait_for_space == nullptr) {
      return status;
    }
    const std::string why =
        absl::StrCat("the start waits for disk space: ", status.message());
    if (!waited) {
      DILOCO_LOG(ERROR) << why
                        << " hint=\"nothing is lost and nobody is served; it "
                           "goes on by itself when there is room\"";
    }
    waited = true;
    if (!options_.wait_for_space(why)) return status;
  }
}

// Nothing may be served before the epoch is durable.
absl::Status CoordinatorImpl::CommitStart(Journal& journal) {
  return AsSpaceAllows([&] {
    const absl::Status status = journal.Commit();
    if (absl::IsResourceExhausted(status)) {
      MakeRoom(FoldBytes() + options_.keep_free_bytes);
    }
    return status;
  });
}

absl::Status CoordinatorImpl::Recover() {
  started_at_ = options_.clock->Now();
  FileSystem* const fs = options_.fs;
  RETURN_IF_ERROR(fs->CreateDirs(options_.state_dir));
  RETURN_IF_ERROR(CheckMayGoOn(fs, options_.state_dir));
  ASSIGN_OR_RETURN(lock_, fs->Lock(JoinPath(options_.state_dir, kLockName)));
  RETURN_IF_ERROR(LoadServedFiles());
  FoldEngine::Options engine;
  engine.fs = fs;
  engine.threads = options_.threads;
  engine.versions = &versions_;
  engine.spools = &spools_;
  engine.layout = &options_.layout;
  engine.codec_down = options_.settings.codec_down;
  engine.image_every = options_.image_every;
  engine.keep_images = options_.keep_images;
  engine.keep_every = options_.keep_every;
  engine_ = std::make_unique<FoldEngine>(engine);

  State state;
  ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal, ReplayJournal(state));
  const bool fresh = journal->last_sequence() == 0;
  std::optional<SettingsEvent> edits;
  RETURN_IF_ERROR(CheckNotLost(fresh));
  if (fresh) {
    RETURN_IF_ERROR(CreateRun(*journal, state));
  } else {
    ASSIGN_OR_RETURN(edits, RecoverSettings(state));
    for (uint32_t f = 0; f < state.fragments.size(); ++f) {
      // No room is made here: what is old is known once all is rebuilt.
      RETURN_IF_ERROR(AskForBackup(AsSpaceAllows(
          [&] { return engine_->Rebuild(f, state.fragments[f].version); })));
    }
    metrics_.images_passed_over->Increment(
        static_cast<double>(versions_.images_passed_over()));
  }
  // Before anything is served: a fold that cannot be done must not be found out
  // in the middle of the run.
  fold_running_.assign(state.fragments.size(), false);
  absl::StatusOr<std::vector<VersionPublished>> folded = FoldPending(state);
  RETURN_IF_ERROR(AskForBackup(folded.status()));
  EpochStarted started;
  started.epoch = state.epoch + 1;
  started.boot_nonce = options_.random_bytes(8);
  AppendFact(*journal, state, started);
  RETURN_IF_ERROR(CommitStart(*journal));
  fencing_ = {state.lineage, state.epoch, state.boot_nonce};
  past_lineages_ = state.past_lineages;
  DILOCO_LOG(INFO) << "recovered run=" << state.run << " epoch=" << state.epoch
                   << " version=" << ThetaVersion(state)
                   << " digest=" << state.fragments[0].digest.Short()
                   << " started_in="
                   << absl::FormatDuration(options_.clock->Now() - started_at_);

  Sequencer::Options sequencer;
  sequencer.policy = settings_.in_force()->policy;
  sequencer.policy_of = [this](const State& moved) {
    settings_.Follow(moved);
    return settings_.in_force()->policy;
  };
  sequencer.clock = options_.clock;
  sequencer.threads = options_.threads;
  sequencer.soft = StartSoft(state, options_.clock->Now());
  metrics_.Restore(state);
  sequencer.state = std::move(state);
  sequencer.journal = std::move(journal);
  sequencer.on_durable = [this](const std::vector<AppliedFact>& facts) {
    OnDurable(facts);
  };
  sequencer.after_batch = [this] { AfterBatch(); };
  sequencer.no_room = [this] { return NoRoom(); };
  sequencer.on_full = [this] {
    RequestRoom(RoundBytes() + options_.keep_free_bytes);
  };
  sequencer.on_fatal = [this](const absl::Status& status) { Fatal(status); };
  sequencer_ = std::make_unique<Sequencer>(std::move(sequencer));
  fold_thread_ = options_.threads->Start([this] { FoldLoop(); });
  sequencer_->Start();
  for (VersionPublished& published : *folded) SubmitFold(std::move(published));
  return AcceptEdits(edits);
}

}  // namespace diloco
