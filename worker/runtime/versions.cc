// What an agent does with versions of theta: download, apply, verify, evaluate.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "worker/runtime/agent.h"

namespace diloco {

absl::StatusOr<std::string> Agent::Fetch(const Digest& digest, uint64_t bytes,
                                         const std::string& name) const {
  const std::string path = JoinPath(options_.scratch, name);
  const Link::Transfer transfer(link_.get(), Link::Transfer::Kind::kDownload, 0,
                                ~0ull);
  RETURN_IF_ERROR(
      options_.port->Download(digest, bytes, path, transfer.cancel()));
  return path;
}

Agent::Fetching Agent::FetchFiles(uint32_t fragment,
                                  std::optional<uint64_t> have) const {
  const auto fetch = [&]() -> absl::StatusOr<std::vector<Fetched>> {
    ASSIGN_OR_RETURN(const std::vector<RemoteFile> files,
                     options_.port->Resolve(fragment, have));
    std::vector<Fetched> fetched;
    for (const RemoteFile& file : files) {
      const std::string name =
          absl::StrCat(file.image ? "theta-" : "change-", fragment, "-",
                       fetched.size(), file.image ? ".image" : ".blob");
      ASSIGN_OR_RETURN(const std::string path,
                       Fetch(file.digest, file.bytes, name));
      fetched.push_back({file, path});
    }
    return fetched;
  };
  const Instant begin = options_.clock->Now();
  absl::StatusOr<std::vector<Fetched>> files = fetch();
  return {std::move(files), options_.clock->Now() - begin};
}

absl::Status Agent::ApplyFile(uint32_t fragment, const Fetched& fetched,
                              Trainer::MergeMode mode, float mix) {
  const auto& [file, path] = fetched;
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> raw,
                   options_.fs->OpenForRead(path));
  ASSIGN_OR_RETURN(PartReader reader, PartReader::Open(std::move(raw), path));
  if (reader.header().fragment != fragment ||
      reader.header().elements != layout_.fragments[fragment].elements) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", reader.header().elements,
                     " elements of fragment ", reader.header().fragment,
                     " are not fragment ", fragment, " of the model's layout"));
  }
  if (!file.image) {
    RETURN_IF_ERROR(trainer_->Merge(fragment, reader, mode, mix));
  } else {
    std::vector<float> values(static_cast<size_t>(reader.header().elements));
    for (int64_t i = 0; i < reader.frames(); ++i) {
      RETURN_IF_ERROR(reader.ReadFrame(
          i, absl::MakeSpan(values).subspan(
                 static_cast<size_t>(i * kFrameElements),
                 static_cast<size_t>(reader.FrameElements(i)))));
    }
    RETURN_IF_ERROR(trainer_->Adopt(fragment, values, mode, mix));
  }
  RETURN_IF_ERROR(options_.fs->Remove(path));
  std::optional<Digest>& digest = copies_[fragment].digest;
  digest = trainer_->AnchorDigest(fragment);
  if (*digest != file.result_digest) {
    return absl::DataLossError(
        absl::StrCat("version ", file.version, " has digest ", digest->Short(),
                     " here, ", file.result_digest.Short(), " was published"));
  }
  return absl::OkStatus();
}

absl::Status Agent::ApplyFiles(uint32_t fragment,
                               const std::vector<Fetched>& files, bool carry,
                               float mix) {
  for (const Fetched& fetched : files) {
    RETURN_IF_ERROR(ApplyFile(
        fragment, fetched,
        carry ? Trainer::MergeMode::kCarry : Trainer::MergeMode::kMix, mix));
    FinishCatchUp(local_.fragments[fragment], fetched.file.version, carry);
    local_.evaluated.clear();
    // The next version is one that this worker had no part in: what is left in
    // its local values stays there.
    carry = carry || mix > 0 || local_.fragments[fragment].window.steps > 0;
  }
  return absl::OkStatus();
}

absl::Status Agent::Pull(uint32_t fragment, uint64_t version) {
  const Fetching fetching = FetchFiles(fragment, std::nullopt);
  progress_.transfer_seconds += absl::ToDoubleSeconds(fetching.taken);
  RETURN_IF_ERROR(fetching.files.status());
  RETURN_IF_ERROR(
      ApplyFiles(fragment, *fetching.files, /*carry=*/false, /*mix=*/0));
  const std::optional<uint64_t>& held = local_.fragments[fragment].version;
  if (!held.has_value()) {
    return absl::UnavailableError("the coordinator named no files");
  }
  if (version == 0) ramp_left_ = 0;  // At the start of a run nobody is warm.
  DILOCO_LOG(INFO) << "holds theta version=" << *held
                   << " digest=" << copies_[fragment].digest->Short()
                   << " fragment=" << fragment;
  return absl::OkStatus();
}

absl::Status Agent::CatchUp(uint32_t fragment, uint64_t version, bool carry) {
  HeldFragment& held = local_.fragments[fragment];
  Copy& copy = copies_[fragment];
  if (!copy.fetched.has_value()) {
    Fetching fetching = FetchFiles(fragment, held.version);
    progress_.transfer_seconds += absl::ToDoubleSeconds(fetching.taken);
    RETURN_IF_ERROR(fetching.files.status());
    copy.fetched = *std::move(fetching.files);
  }
  const std::vector<Fetched> files = *std::exchange(copy.fetched, std::nullopt);
  const auto mix = static_cast<float>(joined_.settings.mix);
  const bool took_part = held.window.delivered;
  // What is left of earlier local values stays in them through a round that
  // this worker had no part in, unless steps that are dropped are in them too.
  // The end of a run is theta itself.
  const bool idle = !took_part && held.window.steps == 0;
  const absl::Status applied =
      ApplyFiles(fragment, files, carry || (idle && mix > 0),
                 took_part && !held.window.last ? mix : 0);
  ForgetSpooled(fragment);
  if (absl::IsDataLoss(applied)) {
    // The copy in memory, or what came over the wire, is damaged; the loop
    // pulls it afresh.
    Alarm(fragment, version, std::string(applied.message()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(applied);
  if (options_.after_apply) options_.after_apply(*held.version, *trainer_);
  return absl::OkStatus();
}

void Agent::Alarm(uint32_t fragment, uint64_t version, const std::string& why) {
  metrics_.digest_mismatches->Increment();
  DILOCO_LOG(ERROR) << "this copy of theta is damaged and is downloaded afresh"
                    << " worker=" << options_.worker << " version=" << version
                    << " fragment=" << fragment << " error=\"" << why << "\"";
  Report("repairing");
  ProgressReport alarm = progress_;
  if (fragment == 0) {
    alarm.version = version;
    alarm.digest = copies_[0].digest;
  } else {
    alarm.others[fragment - 1].version = version;
    alarm.others[fragment - 1].digest = copies_[fragment].digest;
  }
  link_->SetProgress(alarm);
  link_->BeatNow();
  EndJobs(copies_[fragment]);
  local_.fragments[fragment] = HeldFragment{};
  ForgetSpooled(fragment);
}

absl::StatusOr<LossSum> Agent::EvaluateWindows(const RunView::Eval& eval) {
  const std::string wanted = eval.shard_digest.ToHex();
  if (eval_shard_digest_ != wanted) {
    ASSIGN_OR_RETURN(const std::string path,
                     Fetch(eval.shard_digest, eval.shard_bytes, "eval.bin"));
    ASSIGN_OR_RETURN(eval_ids_, ReadFile(options_.fs, path));
    eval_shard_digest_ = wanted;
  }
  const int64_t seq_len = joined_.settings.train.seq_len;
  const int64_t ids = static_cast<int64_t>(eval_ids_.size() / 2);
  const int64_t total = ids < seq_len + 1 ? 0 : (ids - 1) / seq_len;
  const int64_t end = static_cast<int64_t>(eval.first_window + eval.windows);
  if (end > total) {
    return absl::InternalError(
        absl::StrCat("slice ", eval.slice, " ends at window ", end,
                     ", the evaluation shard has ", total));
  }
  const int64_t per_batch = std::max<int64_t>(
      1, static_cast<int64_t>(joined_.settings.train.batch_tokens) / seq_len);
  LossSum sum;
  for (int64_t w = static_cast<int64_t>(eval.first_window); w < end;
       w += per_batch) {
    // The coordinator gives the slice to another.
    if (link_->hand_in_by().has_value()) {
      return absl::CancelledError("leaving");
    }
    Batch batch;
    batch.windows = std::min(per_batch, end - w);
    batch.ids_per_window = seq_len + 1;
    batch.ids.reserve(
        static_cast<size_t>(batch.windows * batch.ids_per_window));
    for (int64_t row = w; row < w + batch.windows; ++row) {
      for (int64_t i = 0; i <= seq_len; ++i) {
        const size_t at = static_cast<size_t>(2 * (row * seq_len + i));
        batch.ids.push_back(static_cast<uint8_t>(eval_ids_[at]) |
                            static_cast<uint8_t>(eval_ids_[at + 1]) << 8);
      }
    }
    ASSIGN_OR_RETURN(const LossSum part, trainer_->EvaluateAnchor(batch));
    sum.loss_sum += part.loss_sum;
    sum.tokens += part.tokens;
  }
  return sum;
}

absl::Status Agent::EvaluateSlice(const RunView& view, uint64_t version,
                                  uint32_t slice) {
  for (const RunView::Eval& eval : view.evals) {
    if (eval.version != version || eval.slice != slice) continue;
    const std::string what =
        absl::StrCat(" worker=", options_.worker, " version=", eval.version,
                     " slice=", slice, " windows=", eval.windows);
    DILOCO_LOG(INFO) << "evaluates" << what;
    const Instant begin = options_.clock->Now();
    ASSIGN_OR_RETURN(const LossSum sum, EvaluateWindows(eval));
    DILOCO_LOG(INFO) << "evaluated" << what << " seconds="
                     << absl::ToDoubleSeconds(options_.clock->Now() - begin)
                     << " tokens=" << sum.tokens << " loss="
                     << sum.loss_sum / static_cast<double>(sum.tokens);
    link_->AddEval(eval.version, slice, sum);
    local_.evaluated.push_back(slice);
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace diloco
