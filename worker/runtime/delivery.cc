// From a finished window to a receipt: take, encode, spool, upload.

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/digest.h"
#include "worker/runtime/agent.h"

namespace diloco {
namespace {

constexpr char kUpdateFile[] = "update.part";

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

}  // namespace

PartEncoding Agent::MakeEncoding(const SpooledUpdate& spooled,
                                 size_t elements) {
  const RunSettings& settings = joined_.settings;
  Rounding rounding;
  rounding.stochastic = settings.stochastic_rounding;
  // Another one for each update, and the same when it is encoded again.
  const Digest digest = Sha256(
      absl::StrCat(settings.seed, " ", options_.worker, " ", spooled.round));
  std::memcpy(&rounding.seed, digest.bytes.data(), sizeof(rounding.seed));
  return residual_.Begin(settings.error_feedback, elements, rounding);
}

void Agent::ForgetSpooled() {
  if (spooled_.has_value()) {
    residual_.Lost();
  } else {
    residual_.Late();  // Its file was not finished: nothing was sent.
  }
  spooled_.reset();
}

absl::StatusOr<SpooledUpdate> Agent::SpoolUpdate(const RunView::Lease& lease) {
  const Window& window = local_.window;
  const FragmentSpec& spec = layout_.fragments[lease.fragment];
  SpooledUpdate spooled;
  spooled.file = kUpdateFile;
  spooled.round = lease.round;
  spooled.base_version = lease.base_version;
  spooled.base_digest = *held_digest_;
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
    PartWriter writer(
        file.get(), {spooled.codec, lease.fragment, 0, spec.elements},
        MakeEncoding(spooled, static_cast<size_t>(spec.elements)));
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
  bool again = spooled_.has_value() && spooled_->round == lease.round &&
               spooled_->base_version == lease.base_version;
  // The file lay on the disk meanwhile; the checkpoint beside it has what it
  // was made from.
  const std::string path = JoinPath(options_.scratch, kUpdateFile);
  if (again && !HasDigest(options_.fs, path, spooled_->digest)) {
    DILOCO_LOG(WARNING) << "the update on disk is damaged and is encoded again"
                        << " round=" << lease.round
                        << " worker=" << options_.worker << " file=" << path;
    again = false;
  }
  if (!again) {
    ASSIGN_OR_RETURN(spooled_, SpoolUpdate(lease));
    RETURN_IF_ERROR(WriteCheckpoint());
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                   options_.fs->OpenForRead(path));
  RETURN_IF_ERROR(Deliver(*spooled_, *file, spooled_->base_version));
  if (!again) {
    hand_in_seconds_ = absl::ToDoubleSeconds(options_.clock->Now() - begin);
  }
  const std::optional<RunView> view = link_->view();
  const bool closed = !local_.window.delivered;
  if (closed && !view->leases.empty() && view->leases[0].round == lease.round) {
    // What follows the round comes with the next view.
    link_->WaitForChange(view->revision, absl::Seconds(5));
  }
  return absl::OkStatus();
}

// Whether the update of a round that is over was in it, where no answer was
// kept: it was lost on the way, or with the process that waited for it.
absl::Status Agent::Settle() {
  if (!spooled_.has_value() || spooled_->round != local_.window.round) {
    return absl::OkStatus();
  }
  const std::string path = JoinPath(options_.scratch, spooled_->file);
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file =
      options_.fs->OpenForRead(path);
  if (file.ok()) return Deliver(*spooled_, **file, ~0ull);
  return Deliver(
      *spooled_,
      LostFile(absl::DataLossError(absl::StrCat(
          "the update of round ", spooled_->round,
          " is wanted but cannot be read: ", file.status().message()))),
      ~0ull);
}

// Gives up once a version after `guard_version` is published.
absl::Status Agent::Deliver(const SpooledUpdate& spooled,
                            const ReadableFile& file, uint64_t guard_version) {
  Report("uploading");
  UpdateOffer offer;
  offer.fragment = 0;
  offer.round = spooled.round;
  offer.base_version = spooled.base_version;
  offer.base_digest = spooled.base_digest;
  offer.bytes = spooled.bytes;
  offer.digest = spooled.digest;
  offer.codec = spooled.codec;
  offer.tokens = spooled.tokens;
  offer.steps = spooled.steps;
  offer.loss = spooled.loss;
  link_->GuardTransfer(Link::Transfer::kUpload, guard_version);
  const Instant begin = options_.clock->Now();
  const absl::StatusOr<UploadOutcome> outcome =
      options_.port->Upload(offer, file, link_->cancel());
  progress_.transfer_seconds +=
      absl::ToDoubleSeconds(options_.clock->Now() - begin);
  // Cancelled: the round moved on, or this agent is to end. The loop sees
  // which, and asks once more what became of the update before its work is
  // carried on.
  RETURN_IF_ERROR(outcome.status());
  switch (outcome->kind) {
    case UploadOutcome::Kind::kAccepted:
      local_.window.delivered = true;
      residual_.Accepted();
      metrics_.rounds->Increment();
      break;
    case UploadOutcome::Kind::kRefused:
      DILOCO_LOG(ERROR) << "the update was refused and does not count round="
                        << spooled.round << " worker=" << options_.worker
                        << " reason=\"" << outcome->reason << "\"";
      local_.window.delivered = true;
      GiveBackRefused(spooled);
      break;
    case UploadOutcome::Kind::kLate:
      // The work is carried on, and encoded again with what came after it.
      residual_.Late();
      DILOCO_LOG(WARNING) << "the update came too late round=" << spooled.round
                          << " worker=" << options_.worker << " reason=\""
                          << outcome->reason << "\"";
      break;
  }
  return absl::OkStatus();
}

void Agent::GiveBackRefused(const SpooledUpdate& spooled) {
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
    return residual_.Refused(reader);
  };
  const absl::Status status = give_back();
  if (status.ok()) return;
  residual_.Late();
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
  header.spooled = spooled_;
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
  residual_.Export(&buffers);
  return buffers;
}

absl::Status Agent::ImportBuffers(absl::Span<const NamedBuffer> buffers) {
  for (const NamedBuffer& buffer : buffers) {
    if (residual_.Import(buffer)) continue;
    RETURN_IF_ERROR(trainer_->ImportState(buffer.first, buffer.second));
  }
  return absl::OkStatus();
}

absl::Status Agent::WriteCheckpoint() {
  // Nothing is held, or nothing was trained: the next start is as cold.
  if (!local_.version.has_value() || local_.probe_due) return absl::OkStatus();
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
  if (!(due || checkpoint_asked_) || writer_->busy() ||
      !local_.version.has_value() || local_.probe_due) {
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
