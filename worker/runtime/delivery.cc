// From a finished window to a receipt: take, encode, spool, upload.

#include <cstring>
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

absl::StatusOr<SpooledUpdate> Agent::SpoolUpdate(const RunView::Lease& lease) {
  const Window& window = local_.fragments[lease.fragment].window;
  const FragmentSpec& spec = layout_.fragments[lease.fragment];
  SpooledUpdate spooled;
  spooled.file = UpdateFile(lease.fragment);
  spooled.round = lease.round;
  spooled.base_version = lease.base_version;
  spooled.base_digest = *copies_[lease.fragment].digest;
  spooled.codec = joined_.settings.codec_up;
  spooled.tokens = window.tokens;
  spooled.steps = window.steps;
  spooled.loss = window.losses == 0
                     ? 0
                     : window.loss_sum / static_cast<double>(window.losses);
  const std::string path = JoinPath(options_.scratch, spooled.file);
  const std::string temp = path + ".tmp";
  {
    ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                     options_.fs->OpenForWrite(temp));
    RETURN_IF_ERROR(file->Truncate(0));
    ASSIGN_OR_RETURN(const Trainer::Ticket ticket,
                     trainer_->Take(lease.fragment));
    PartWriter writer(file.get(),
                      {spooled.codec, lease.fragment, 0, spec.elements},
                      MakeEncoding(lease.fragment, lease.round));
    RETURN_IF_ERROR(trainer_->Encode(ticket, writer));
    ASSIGN_OR_RETURN(spooled.digest, writer.Finish());
    RETURN_IF_ERROR(file->Sync());
    ASSIGN_OR_RETURN(spooled.bytes, file->Size());
  }
  RETURN_IF_ERROR(options_.fs->Rename(temp, path));
  RETURN_IF_ERROR(options_.fs->SyncDir(options_.scratch));
  return spooled;
}

absl::Status Agent::Submit(const RunView::Lease& lease) {
  const Instant begin = options_.clock->Now();
  std::optional<SpooledUpdate>& spooled = copies_[lease.fragment].spooled;
  bool again = spooled.has_value() && spooled->round == lease.round &&
               spooled->base_version == lease.base_version;
  // The file lay on the disk meanwhile; the checkpoint beside it has what it
  // was made from.
  if (again) {
    const std::string path = JoinPath(options_.scratch, spooled->file);
    again = HasDigest(options_.fs, path, spooled->digest);
    if (!again) {
      DILOCO_LOG(WARNING)
          << "the update on disk is damaged and is encoded again"
          << " round=" << lease.round << " worker=" << options_.worker
          << " file=" << path;
    }
  }
  if (!again) {
    ASSIGN_OR_RETURN(spooled, SpoolUpdate(lease));
    RETURN_IF_ERROR(WriteCheckpoint());
  }
  RETURN_IF_ERROR(Deliver(lease.fragment, spooled->base_version));
  if (!again) {
    hand_in_seconds_ = absl::ToDoubleSeconds(options_.clock->Now() - begin);
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

// Whether the update of a round that is over was in it, where no answer was
// kept: it was lost on the way, or with the process that waited for it.
absl::Status Agent::Settle(uint32_t fragment) {
  const std::optional<SpooledUpdate>& spooled = copies_[fragment].spooled;
  if (!spooled.has_value() ||
      spooled->round != local_.fragments[fragment].window.round) {
    return absl::OkStatus();
  }
  return Deliver(fragment, ~0ull);
}

absl::Status Agent::Deliver(uint32_t fragment, uint64_t guard_version) {
  const SpooledUpdate& spooled = *copies_[fragment].spooled;
  Window& window = local_.fragments[fragment].window;
  Residual& residual = copies_[fragment].residual;
  Report("uploading");
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
  link_->GuardTransfer(Link::Transfer::kUpload, fragment, guard_version);
  const Instant begin = options_.clock->Now();
  const absl::StatusOr<UploadOutcome> outcome =
      options_.port->Upload(offer, *file, link_->cancel());
  progress_.transfer_seconds +=
      absl::ToDoubleSeconds(options_.clock->Now() - begin);
  // Cancelled: the round moved on, or this agent is to end. The loop sees
  // which, and asks once more what became of the update before its work is
  // carried on.
  RETURN_IF_ERROR(outcome.status());
  switch (outcome->kind) {
    case UploadOutcome::Kind::kAccepted:
      window.delivered = true;
      residual.Accepted();
      metrics_.rounds->Increment();
      break;
    case UploadOutcome::Kind::kRefused:
      DILOCO_LOG(ERROR) << "the update was refused and does not count round="
                        << spooled.round << " worker=" << options_.worker
                        << " reason=\"" << outcome->reason << "\"";
      window.delivered = true;
      GiveBackRefused(fragment);
      break;
    case UploadOutcome::Kind::kLate:
      // The work is carried on, and encoded again with what came after it.
      residual.Late();
      DILOCO_LOG(WARNING) << "the update came too late round=" << spooled.round
                          << " worker=" << options_.worker << " reason=\""
                          << outcome->reason << "\"";
      break;
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
  (void)writer_->Wait();
  ASSIGN_OR_RETURN(const std::vector<NamedBuffer> buffers, ExportBuffers());
  RETURN_IF_ERROR(
      WithContext(checkpoints_.Write(MakeHeader(), buffers), "checkpoint"));
  last_checkpoint_ = options_.clock->Now();
  saved_steps_ = inner_steps_;
  return absl::OkStatus();
}

absl::Status Agent::SaveInBackground() {
  checkpoint_asked_ = options_.checkpoint_requested() || checkpoint_asked_;
  const bool due =
      inner_steps_ != saved_steps_ &&
      options_.clock->Now() - last_checkpoint_ >= options_.checkpoint_every;
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
  saved_steps_ = inner_steps_;
  last_checkpoint_ = options_.clock->Now();
  ASSIGN_OR_RETURN(std::vector<NamedBuffer> buffers, ExportBuffers());
  writer_->Start(MakeHeader(), std::move(buffers));
  return absl::OkStatus();
}

}  // namespace diloco
