#include "tests/bench/fake_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/tensor/part_file.h"
#include "tests/bench/daemon.h"
#include "worker/transport/grpc_port.h"

namespace diloco {
namespace {

constexpr int64_t kHidden = 512;
constexpr int64_t kLayers = 4;
constexpr int64_t kFfn = 1376;

}  // namespace

ModelConfig FakeModel(int64_t parameters) {
  ModelConfig model;
  model.layers = kLayers;
  model.hidden = kHidden;
  model.heads = model.kv_heads = 8;
  model.head_dim = kHidden / model.heads;
  model.ffn = kFfn;
  model.tied = true;
  model.max_positions = 128;
  const int64_t blocks =
      kLayers * (4 * kHidden * kHidden + 3 * kHidden * kFfn + 2 * kHidden) +
      kHidden;
  model.vocab =
      std::max<int64_t>(2, (parameters - blocks + kHidden - 1) / kHidden);
  return model;
}

std::string FakeRunFile(const ModelConfig& model, int workers,
                        int64_t image_every, const std::string& up) {
  return absl::StrCat("run: {name: bench}\n",  //
                      "model: {layers: ", model.layers,
                      ", hidden: ", model.hidden,                           //
                      ", heads: ", model.heads, ", ffn: ", model.ffn,       //
                      ", vocab: ", model.vocab, ", tied: true}\n",          //
                      "data: {seq_len: ", model.max_positions, "}\n",       //
                      "train: {tokens: 1000000000, batch_tokens: 1024}\n",  //
                      "sync: {interval: 10, deadline: 1h, up: ", up, "}\n",
                      "join: {wait_for: ", workers, ", lease: 1h}\n",         //
                      "listen: {control: \"127.0.0.1:0\", metrics: none}\n",  //
                      "state: {dir: state, image_every: ", image_every, "}\n");
}

absl::StatusOr<FakeUpdate> MakeFakeUpdate(const std::string& path,
                                          int64_t elements, Codec codec) {
  FileSystem* const fs = FileSystem::Posix();
  std::vector<float> tile(kFrameElements);
  for (size_t i = 0; i < tile.size(); ++i) {
    tile[i] = static_cast<float>(static_cast<int>(i % 255) - 127) * 0x1p-17f;
  }
  PartHeader header;
  header.codec = codec;
  header.elements = elements;
  ASSIGN_OR_RETURN(const auto out, fs->OpenForWrite(path));
  PartWriter writer(out.get(), header);
  for (int64_t frame = 0; frame < FrameCount(elements); ++frame) {
    RETURN_IF_ERROR(writer.Append(absl::MakeConstSpan(tile).first(
        std::min(kFrameElements, elements - frame * kFrameElements))));
  }
  FakeUpdate update;
  ASSIGN_OR_RETURN(update.digest, writer.Finish());
  update.codec = codec;
  update.bytes = writer.file_bytes();
  ASSIGN_OR_RETURN(update.file, fs->OpenForRead(path));
  return update;
}

absl::StatusOr<FakeWorker> FakeWorker::Join(const std::string& name, int port,
                                            const FakeUpdate* update,
                                            const CancelFlag* cancel) {
  GrpcPortOptions options;
  options.coordinator = absl::StrCat("127.0.0.1:", port);
  // The machine may be busy with all the others.
  options.control_deadline = kBenchPatience;
  ASSIGN_OR_RETURN(auto coordinator, MakeGrpcPort(options));
  JoinCall join;
  join.worker = name;
  join.attempt = RandomBytes(16);
  join.fresh = true;
  join.take_over = true;
  join.data_tokens = 1'000'000;
  join.max_token = 1;
  RETURN_IF_ERROR(coordinator->Join(join).status());
  return FakeWorker(std::move(coordinator), update, cancel);
}

template <typename Done>
absl::StatusOr<RunView> FakeWorker::WatchUntil(Done done) {
  uint64_t revision = 0;
  const Instant give_up = Clock::Real()->Now() + kBenchPatience;
  while (Clock::Real()->Now() < give_up) {
    if (*cancel_) return absl::CancelledError("another worker failed");
    ASSIGN_OR_RETURN(const RunView view,
                     port_->Watch(revision, absl::Seconds(1)));
    revision = view.revision;
    if (!view.fragments.empty() && done(view)) return view;
  }
  return absl::DeadlineExceededError(
      absl::StrCat("no progress after revision ", revision));
}

absl::StatusOr<RunView::Lease> FakeWorker::WaitForLease() {
  ASSIGN_OR_RETURN(const RunView view, WatchUntil([](const RunView& view) {
                     return !view.leases.empty() && !view.leases[0].delivered;
                   }));
  return view.leases[0];
}

absl::Status FakeWorker::Beat() { return port_->Report({}).status(); }

absl::Status FakeWorker::Upload(const RunView::Lease& lease) {
  UpdateOffer offer;
  offer.round = lease.round;
  offer.base_version = lease.base_version;
  offer.base_digest = lease.base_digest;
  offer.bytes = update_->bytes;
  offer.digest = update_->digest;
  offer.codec = update_->codec;
  offer.tokens = 1024 * lease.steps;
  offer.steps = lease.steps;
  offer.loss = 4.0;
  ASSIGN_OR_RETURN(const UploadOutcome outcome,
                   port_->Upload(offer, *update_->file, *cancel_));
  if (outcome.kind != UploadOutcome::Kind::kAccepted) {
    return absl::InternalError(
        absl::StrCat("update not accepted: ", outcome.reason));
  }
  return absl::OkStatus();
}

absl::Status FakeWorker::WaitForVersionAfter(uint64_t version) {
  return WatchUntil([version](const RunView& view) {
           return view.fragments[0].version > version;
         })
      .status();
}

absl::Status FakeWorker::Fetch(uint64_t version, const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<RemoteFile> files,
                   port_->Resolve(0, version));
  for (const RemoteFile& file : files) {
    RETURN_IF_ERROR(port_->Download(file.digest, file.bytes, path, *cancel_));
    RETURN_IF_ERROR(FileSystem::Posix()->Remove(path));
  }
  return absl::OkStatus();
}

}  // namespace diloco
