// From a finished window to a receipt: take, encode, spool, upload.

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/digest.h"
#include "worker/runtime/agent.h"

namespace diloco {
namespace {

std::string UpdateFile(uint32_t fragment) {
  return absl::StrCat("update-", fragment, ".part");
}

bool HasDigest(FileSystem* fs, const std::string& path, const Digest& digest) {
  const auto file = fs->OpenForRead(path);
  if (!file.ok()) return false;
  const absl::StatusOr<Digest> found = BlockDigestOfFile(**file);
  return found.ok() && *found == digest;
}

// The file of an update that is gone: enough to ask what became of it, which
// takes none of its bytes.
class LostFile final : public ReadableFile {
 public:
  explicit LostFile(absl::Status why) : why_(std::move(why)) {}
  absl::Status ReadAt(uint64_t, absl::Span<char>) const override {
    return why_;
  }
  absl::StatusOr<uint64_t> Size() const override { return why_; }
  absl::StatusOr<absl::Span<const char>> Map() override { return why_; }

 private:
  const absl::Status why_;
};

std::unique_ptr<ReadableFile> OpenUpdate(FileSystem* fs,
                                         const std::string& path,
                                         uint64_t round) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = fs->OpenForRead(path);
  if (file.ok()) return *std::move(file);
  return std::make_unique<LostFile>(absl::DataLossError(absl::StrCat(
      "the update of round ", round,
      " is wanted but cannot be read: ", file.status().message())));
}

}  // namespace

PartEncoding Agent::MakeEncoding(uint32_t fragment, uint64_t round) {
  const RunSettings& settings = joined_.settings;
  Rounding rounding;
  rounding.stochastic = settings.stochastic_rounding;
  // Another one for each update, and the same when it is encoded again.
  std::string key =
      absl::StrCat(settings.seed, " ", options_.worker, " ", round);
  if (fragment > 0) absl::StrAppend(&key, " ", fragment);
  const Digest digest = Sha256(key);
  std::memcpy(&rounding.seed, digest.bytes.data(), sizeof(rounding.seed));
  return copies_[fragment].residual.Begin(
      settings.error_feedback,
      static_cast<size_t>(layout_.fragments[fragment].elements), rounding);
}

void Agent::ForgetSpooled(uint32_t fragment) {
  Copy& copy = copies_[fragment];
  if (copy.spooled.has_value()) {
    copy.residual.Lost();
  } else {
    copy.residual.Late();  // Its file was not finished: nothing was sent.
  }
  copy.spooled.reset();
}

Threads* Agent::JobThreads() const {
  return joined_.settings.overlap > 0 ? options_.threads : nullptr;
}

absl::Status Agent::StartSpooling(const RunView::Lease& lease) {
  Copy& copy = copies_[lease.fragment];
  const Window& window = local_.fragments[lease.fragment].window;
  SpooledUpdate spooled;
  spooled.file = UpdateFile(lease.fragment);
  spooled.round = lease.round;
  spooled.base_version = lease.base_version;
  spooled.base_digest = *copy.digest;
  spooled.codec = joined_.settings.codec_up;
  spooled.tokens = window.tokens;
  spooled.steps = window.steps;
  spooled.loss = window.losses == 0
                     ? 0
                     : window.loss_sum / static_cast<double>(window.losses);
  spooled.lr_sum = window.lr_sum;
  spooled.data_end = cursor_ * joined_.settings.train.seq_len;
  ASSIGN_OR_RETURN(const Trainer::Ticket ticket,
                   trainer_->Take(lease.fragment));
  const PartHeader header{spooled.codec, lease.fragment, 0,
                          layout_.fragments[lease.fragment].elements};
  const PartEncoding encoding = MakeEncoding(lease.fragment, lease.round);
  const std::string path = JoinPath(options_.scratch, spooled.file);
  const auto spool = [this, ticket, header, encoding, path,
                      spooled]() mutable -> absl::StatusOr<SpooledUpdate> {
    const std::string temp = path + ".tmp";
    {
      ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                       options_.fs->OpenForWrite(temp));
      RETURN_IF_ERROR(file->Truncate(0));
      PartWriter writer(file.get(), header, encoding);
      RETURN_IF_ERROR(trainer_->Encode(ticket, writer));
      ASSIGN_OR_RETURN(spooled.digest, writer.Finish());
      RETURN_IF_ERROR(file->Sync());
      ASSIGN_OR_RETURN(spooled.bytes, file->Size());
    }
    RETURN_IF_ERROR(options_.fs->Rename(temp, path));
    RETURN_IF_ERROR(options_.fs->SyncDir(options_.scratch));
    return spooled;
  };
  copy.spooling_round = lease.round;
  copy.spooling = std::make_unique<Job<absl::StatusOr<SpooledUpdate>>>(
      JobThreads(), spool, [this] { link_->Wake(); });
  return absl::OkStatus();
}

bool Agent::MaySendAgain(const RunView::Lease& lease) {
  const std::optional<SpooledUpdate>& spooled = copies_[lease.fragment].spooled;
  if (!spooled.has_value() || spooled->round != lease.round ||
      spooled->base_version != lease.base_version) {
    return false;
  }
  // The file lay on the disk meanwhile; the checkpoint beside it has what it
  // was made from.
  const std::string path = JoinPath(options_.scratch, spooled->file);
  if (HasDigest(options_.fs, path, spooled->digest)) return true;
  DILOCO_LOG(WARNING) << "the update on disk is damaged and is encoded again"
                      << " round=" << lease.round
                      << " worker=" << options_.worker << " file=" << path;
  copies_[lease.fragment].spooled.reset();
  ForgetTake(local_.fragments[lease.fragment]);
  return false;
}

absl::Status Agent::Submit(const RunView::Lease& lease) {
  Copy& copy = copies_[lease.fragment];
  if (MaySendAgain(lease)) {
    copy.hand_in_begin = Instant();
    RETURN_IF_ERROR(StartSending(lease.fragment, /*with_checkpoint=*/false));
  } else {
    copy.hand_in_begin = options_.clock->Now();
    RETURN_IF_ERROR(StartSpooling(lease));
  }
  RETURN_IF_ERROR(CollectHandIn(lease.fragment));
  if (copy.spooling != nullptr || copy.sending != nullptr) {
    return absl::OkStatus();
  }
  const std::optional<RunView> view = link_->view();
  const bool closed = !local_.fragments[lease.fragment].window.delivered;
  for (const RunView::Lease& seen : view->leases) {
    if (!closed || seen.fragment != lease.fragment ||
        seen.round != lease.round) {
      continue;
    }
    // What follows the round comes with the next view.
    link_->WaitForChange(view->revision, absl::Seconds(5));
  }
  return absl::OkStatus();
}

absl::Status Agent::StartSending(uint32_t fragment, bool with_checkpoint) {
  Copy& copy = copies_[fragment];
  const SpooledUpdate spooled = *copy.spooled;
  std::function<Sent()> send = [this, fragment, spooled] {
    return Upload(fragment, spooled, spooled.base_version);
  };
  if (with_checkpoint) {
    // Durable before anything is sent: a restart must know of the update.
    ASSIGN_OR_RETURN(std::vector<NamedBuffer> buffers, ExportBuffers());
    send = [this, fragment, spooled, turn = writer_->Reserve(),
            header = MakeHeader(), buffers = std::move(buffers)] {
      const absl::Status written = writer_->Write(turn, header, buffers);
      if (!written.ok()) {
        return Sent{WithContext(written, "checkpoint"), absl::ZeroDuration()};
      }
      return Upload(fragment, spooled, spooled.base_version);
    };
    last_checkpoint_ = options_.clock->Now();
  }
  Report("uploading");
  copy.sending = std::make_unique<Job<Sent>>(JobThreads(), std::move(send),
                                             [this] { link_->Wake(); });
  return absl::OkStatus();
}

absl::Status Agent::CollectHandIn(uint32_t fragment) {
  Copy& copy = copies_[fragment];
  if (copy.spooling != nullptr && copy.spooling->ready()) {
    absl::StatusOr<SpooledUpdate> spooled = copy.spooling->Take();
    copy.spooling.reset();
    copy.spooling_round = 0;
    if (!spooled.ok()) ForgetTake(local_.fragments[fragment]);
    RETURN_IF_ERROR(spooled.status());
    copy.spooled = *std::move(spooled);
    // A checkpoint has every update that was taken.
    for (uint32_t i = 0; i < copies_.size(); ++i) {
      if (copies_[i].spooling == nullptr) continue;
      copies_[i].spooling->Wait();
      RETURN_IF_ERROR(CollectHandIn(i));
    }
    RETURN_IF_ERROR(StartSending(fragment, /*with_checkpoint=*/true));
  }
  if (copy.sending != nullptr && copy.sending->ready()) {
    const Sent sent = copy.sending->Take();
    copy.sending.reset();
    return TakeOverOutcome(fragment, sent);
  }
  return absl::OkStatus();
}

absl::Status Agent::CollectJobs(const RunView& view, Leaving leaving) {
  for (uint32_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[i];
    RETURN_IF_ERROR(CollectHandIn(i));
    if (copy.fetching != nullptr && copy.fetching->ready()) {
      Fetching fetching = copy.fetching->Take();
      copy.fetching.reset();
      progress_.transfer_seconds += absl::ToDoubleSeconds(fetching.taken);
      // One that leaves takes on no version.
      if (absl::IsCancelled(fetching.files.status()) &&
          leaving != Leaving::kNo) {
        continue;
      }
      RETURN_IF_ERROR(fetching.files.status());
      copy.fetched = *std::move(fetching.files);
    }
  }
  if (JobThreads() == nullptr || leaving != Leaving::kNo) {
    return absl::OkStatus();
  }
  for (const RunView::Fragment& seen : view.fragments) {
    if (seen.fragment >= copies_.size()) continue;
    Copy& copy = copies_[seen.fragment];
    const HeldFragment& held = local_.fragments[seen.fragment];
    if (!held.version.has_value() || seen.version <= *held.version ||
        !held.window.delivered || copy.fetching != nullptr ||
        copy.fetched.has_value()) {
      continue;
    }
    copy.fetching = std::make_unique<Job<Fetching>>(
        JobThreads(),
        [this, fragment = seen.fragment, have = held.version] {
          return FetchFiles(fragment, have);
        },
        [this] { link_->Wake(); });
  }
  return absl::OkStatus();
}

void Agent::EndJobs(Copy& copy) {
  copy.spooling.reset();
  copy.spooling_round = 0;
  copy.sending.reset();
  copy.fetching.reset();
  copy.fetched.reset();
}

// Whether the update of a round that is over was in it, where no answer was
// kept: it was lost on the way, or with the process that waited for it.
absl::Status Agent::Settle(uint32_t fragment) {
  const std::optional<SpooledUpdate>& spooled = copies_[fragment].spooled;
  const Window& window = local_.fragments[fragment].window;
  if (!spooled.has_value() || spooled->round != window.round ||
      window.delivered) {
    return absl::OkStatus();
  }
  Report("uploading");
  return TakeOverOutcome(fragment, Upload(fragment, *spooled, ~0ull));
}

Agent::Sent Agent::Upload(uint32_t fragment, const SpooledUpdate& spooled,
                          uint64_t guard_version) const {
  const std::unique_ptr<ReadableFile> file = OpenUpdate(
      options_.fs, JoinPath(options_.scratch, spooled.file), spooled.round);
  UpdateOffer offer;
  offer.fragment = fragment;
  offer.round = spooled.round;
  offer.base_version = spooled.base_version;
  offer.base_digest = spooled.base_digest;
  offer.bytes = spooled.bytes;
  offer.digest = spooled.digest;
  offer.codec = spooled.codec;
  offer.tokens = spooled.tokens;
  offer.steps = spooled.steps;
  offer.loss = spooled.loss;
  offer.lr_sum = spooled.lr_sum;
  offer.data_end = spooled.data_end;
  const Link::Transfer transfer(link_.get(), Link::Transfer::Kind::kUpload,
                                fragment, guard_version);
  const Instant begin = options_.clock->Now();
  absl::StatusOr<UploadOutcome> outcome =
      options_.port->Upload(offer, *file, transfer.cancel());
  return {std::move(outcome), options_.clock->Now() - begin};
}

absl::Status Agent::TakeOverOutcome(uint32_t fragment, const Sent& sent) {
  Copy& copy = copies_[fragment];
  const SpooledUpdate& spooled = *copy.spooled;
  Window& window = local_.fragments[fragment].window;
  progress_.transfer_seconds += absl::ToDoubleSeconds(sent.taken);
  // Cancelled: the round moved on, or this agent is to end. The loop sees
  // which, and asks once more what became of the update before its work is
  // carried on.
  RETURN_IF_ERROR(sent.outcome.status());
  const UploadOutcome& outcome = *sent.outcome;
  switch (outcome.kind) {
    case UploadOutcome::Kind::kAccepted:
      window.delivered = true;
      copy.residual.Accepted();
      metrics_.rounds->Increment();
      break;
    case UploadOutcome::Kind::kRefused:
      DILOCO_LOG(ERROR) << "the update was refused and does not count round="
                        << spooled.round << " worker=" << options_.worker
                        << " reason=\"" << outcome.reason << "\"";
      window.delivered = true;
      GiveBackRefused(fragment);
      break;
    case UploadOutcome::Kind::kLate:
      // The work is carried on, and encoded again with what came after it.
      copy.residual.Late();
      DILOCO_LOG(WARNING) << "the update came too late round=" << spooled.round
                          << " worker=" << options_.worker << " reason=\""
                          << outcome.reason << "\"";
      break;
  }
  if (copy.hand_in_begin != Instant()) {
    hand_in_seconds_ =
        absl::ToDoubleSeconds(options_.clock->Now() - copy.hand_in_begin);
  }
  return absl::OkStatus();
}

void Agent::GiveBackRefused(uint32_t fragment) {
  const SpooledUpdate& spooled = *copies_[fragment].spooled;
  Residual& residual = copies_[fragment].residual;
  const std::string path = JoinPath(options_.scratch, spooled.file);
  const auto give_back = [&]() -> absl::Status {
    // A process that ended behind the next take has left that one's file.
    if (!HasDigest(options_.fs, path, spooled.digest)) {
      return absl::DataLossError(
          absl::StrCat(path, " is not the update of that round"));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file,
                     options_.fs->OpenForRead(path));
    ASSIGN_OR_RETURN(const PartReader reader,
                     PartReader::Open(std::move(file), path));
    return residual.Refused(reader);
  };
  const absl::Status status = give_back();
  if (status.ok()) return;
  residual.Late();
  DILOCO_LOG(ERROR) << "the refused update cannot be read back round="
                    << spooled.round << " worker=" << options_.worker
                    << " error=\"" << status.message() << "\"";
}

CheckpointHeader Agent::MakeHeader() const {
  CheckpointHeader header;
  header.run = joined_.settings.run;
  header.lineage = joined_.fencing.lineage;
  header.settings_digest = joined_.settings_digest;
  header.layout_digest = joined_.settings.layout_digest;
  header.local = local_;
  header.data_cursor = cursor_;
  header.inner_steps = inner_steps_;
  header.optimizer_steps = trainer_->optimizer_steps();
  header.ramp_steps_left = ramp_left_;
  const CoordinatorPort::Traffic traffic = options_.port->traffic();
  header.totals = {
      .tokens = progress_.tokens,
      .skipped_steps = progress_.skipped_steps,
      .train_seconds = progress_.train_seconds,
      .transfer_seconds = progress_.transfer_seconds,
      .wait_seconds = progress_.wait_seconds,
      .bytes_sent = progress_.earlier_bytes_sent + traffic.sent,
      .bytes_received = progress_.earlier_bytes_received + traffic.received};
  for (const Copy& copy : copies_) header.spooled.push_back(copy.spooled);
  return header;
}

absl::StatusOr<std::vector<NamedBuffer>> Agent::ExportBuffers() {
  std::vector<NamedBuffer> buffers;
  RETURN_IF_ERROR(trainer_->ExportState(
      [&](absl::string_view name, absl::Span<const float> values) {
        buffers.push_back({std::string(name),
                           std::vector<float>(values.begin(), values.end())});
        return absl::OkStatus();
      }));
  for (uint32_t i = 0; i < copies_.size(); ++i) {
    copies_[i].residual.Export(i, &buffers);
  }
  return buffers;
}

absl::Status Agent::ImportBuffers(absl::Span<const NamedBuffer> buffers) {
  for (const NamedBuffer& buffer : buffers) {
    bool taken = false;
    for (uint32_t i = 0; i < copies_.size() && !taken; ++i) {
      taken = copies_[i].residual.Import(i, buffer);
    }
    if (taken) continue;
    RETURN_IF_ERROR(trainer_->ImportState(buffer.first, buffer.second));
  }
  return absl::OkStatus();
}

absl::Status Agent::WriteCheckpoint() {
  // Nothing is held, or nothing was trained: the next start is as cold.
  if (!HoldsAll() || local_.probe_due) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<NamedBuffer> buffers, ExportBuffers());
  RETURN_IF_ERROR(WithContext(
      writer_->Write(writer_->Reserve(), MakeHeader(), buffers), "checkpoint"));
  last_checkpoint_ = options_.clock->Now();
  return absl::OkStatus();
}

absl::Status Agent::SaveInBackground() {
  checkpoint_asked_ = options_.checkpoint_requested() || checkpoint_asked_;
  const bool due =
      inner_steps_ != writer_->durable_steps() &&
      options_.clock->Now() - last_checkpoint_ >= options_.checkpoint_every;
  // What was taken and is not spooled yet is in no checkpoint.
  const bool spooling =
      std::any_of(copies_.begin(), copies_.end(),
                  [](const Copy& copy) { return copy.spooling != nullptr; });
  if (spooling) return absl::OkStatus();
  // A start that has not proved itself is to be as cold the next time.
  if (!(due || checkpoint_asked_) || writer_->busy() || !HoldsAll() ||
      local_.probe_due) {
    return absl::OkStatus();
  }
  if (checkpoint_asked_) {
    DILOCO_LOG(INFO) << "checkpoint asked for worker=" << options_.worker
                     << " inner_steps=" << inner_steps_;
  }
  checkpoint_asked_ = false;
  last_checkpoint_ = options_.clock->Now();
  ASSIGN_OR_RETURN(std::vector<NamedBuffer> buffers, ExportBuffers());
  writer_->Start(MakeHeader(), std::move(buffers));
  return absl::OkStatus();
}

}  // namespace diloco
