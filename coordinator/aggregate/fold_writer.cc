// The writing half of a fold.
#include "coordinator/aggregate/fold_writer.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace diloco {
namespace {

PartHeader WholeFragment(Codec codec, uint32_t fragment, size_t elements) {
  PartHeader header;
  header.codec = codec;
  header.fragment = fragment;
  header.elements = static_cast<int64_t>(elements);
  return header;
}

}  // namespace

ThetaBlocks::ThetaBlocks(absl::Span<const float> theta)
    : theta_(theta), blocks_(FrameCount(theta.size())) {
  static_assert(kFrameElements * sizeof(float) == kDigestBlockBytes);
}

void ThetaBlocks::Completed(int64_t tiles) {
  MutexLock lock(&mu_);
  completed_ = tiles;
}

bool ThetaBlocks::HashRun(int64_t spare) {
  constexpr int64_t kRunTiles = kDigestRunBytes / kDigestBlockBytes;
  const int64_t tiles = static_cast<int64_t>(blocks_.size());
  int64_t first = 0;
  {
    MutexLock lock(&mu_);
    first = taken_;
    if (first == tiles) return false;
    const int64_t needed = first + (spare + 1) * kRunTiles;
    if (completed_ < std::min(needed, tiles)) return false;
    taken_ = std::min(first + kRunTiles, tiles);
  }
  const absl::Span<const float> values =
      theta_.subspan(first * kFrameElements, kRunTiles * kFrameElements);
  BlockDigester digester;
  digester.Update(
      absl::string_view(reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float)));
  const std::vector<Digest> hashed = digester.Blocks();
  std::copy(hashed.begin(), hashed.end(), blocks_.begin() + first);
  return true;
}

Digest ThetaBlocks::Finish() const { return DigestOfBlocks(blocks_); }

FoldWriter::FoldWriter(uint32_t fragment, Codec codec_down,
                       absl::Span<const float> theta, WritableFile* blob,
                       Threads* threads)
    : theta_(theta),
      tiles_(FrameCount(theta.size())),
      theta_blocks_(theta),
      changes_(std::min(tiles_, kBuffers) * kFrameElements),
      blob_(blob, WholeFragment(codec_down, fragment, theta.size())),
      changed_(threads) {
  thread_ = threads->Start([this] { Run(); });
}

FoldWriter::~FoldWriter() {
  {
    MutexLock lock(&mu_);
    abandoned_ = true;
    changed_.SignalAll();
  }
  if (thread_ != nullptr) thread_->Join();
}

int64_t FoldWriter::TileElements(int64_t tile) const {
  return std::min<int64_t>(kFrameElements,
                           theta_.size() - tile * kFrameElements);
}

absl::Span<float> FoldWriter::ChangeOf(int64_t tile) {
  return absl::MakeSpan(changes_).subspan(tile % kBuffers * kFrameElements,
                                          TileElements(tile));
}

absl::StatusOr<absl::Span<float>> FoldWriter::NextChange() {
  for (;;) {
    {
      MutexLock lock(&mu_);
      RETURN_IF_ERROR(status_);
      if (submitted_ - written_ < kBuffers) return ChangeOf(submitted_);
    }
    if (theta_blocks_.HashRun()) continue;
    MutexLock lock(&mu_);
    while (status_.ok() && submitted_ - written_ == kBuffers) {
      changed_.Wait(&mu_);
    }
  }
}

void FoldWriter::Submit() {
  MutexLock lock(&mu_);
  ++submitted_;
  theta_blocks_.Completed(submitted_);
  changed_.SignalAll();
}

bool FoldWriter::AwaitTile(int64_t tile) {
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (submitted_ > tile) return true;
      if (abandoned_) return false;
    }
    // One is left for the computing thread, should it have to wait.
    if (theta_blocks_.HashRun(/*spare=*/1)) continue;
    MutexLock lock(&mu_);
    while (!abandoned_ && submitted_ == tile) changed_.Wait(&mu_);
  }
}

void FoldWriter::Run() {
  for (int64_t tile = 0; tile < tiles_; ++tile) {
    if (!AwaitTile(tile)) return;
    const absl::Status status = blob_.Append(ChangeOf(tile));
    MutexLock lock(&mu_);
    ++written_;
    status_ = status;
    changed_.SignalAll();
    if (!status.ok()) return;
  }
  while (theta_blocks_.HashRun()) {
  }
}

absl::StatusOr<FoldResult> FoldWriter::Finish() {
  while (theta_blocks_.HashRun()) {
  }
  thread_->Join();
  thread_.reset();
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(status_);
  }
  FoldResult result;
  ASSIGN_OR_RETURN(result.blob_digest, blob_.Finish());
  result.blob_bytes = blob_.file_bytes();
  result.digest = theta_blocks_.Finish();
  return result;
}

}  // namespace diloco
