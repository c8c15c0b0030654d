#include "worker/runtime/shard_source.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/data/token_dataset.h"

namespace diloco {
namespace {

class ShardSource final : public BatchSource {
 public:
  explicit ShardSource(TokenShard shard)
      : tokens_(shard.file.tokens()),
        max_token_(shard.scan.max_id),
        description_(absl::StrCat(
            shard.path(), " (", tokens_, " tokens, the largest id ", max_token_,
            " at position ", shard.scan.max_position, ")")),
        shard_(std::move(shard)) {}

  uint64_t tokens() const override { return tokens_; }
  uint32_t max_token() const override { return max_token_; }
  std::string Describe() const override { return description_; }
  absl::Status Prepare(const RunSettings& settings) override {
    DatasetOptions options;
    options.seq_len = settings.train.seq_len;
    options.vocab = static_cast<uint64_t>(settings.model.vocab);
    options.seed = settings.seed;
    ASSIGN_OR_RETURN(TokenDataset data,
                     TokenDataset::FromShard(std::move(*shard_), options));
    shard_.reset();
    data_.emplace(std::move(data));
    ids_per_window_ = static_cast<int64_t>(options.seq_len) + 1;
    return absl::OkStatus();
  }
  absl::StatusOr<Batch> Read(uint64_t cursor, int64_t windows) override {
    Batch batch;
    ASSIGN_OR_RETURN(batch.ids,
                     data_->Next(cursor, static_cast<uint64_t>(windows)));
    batch.windows = windows;
    batch.ids_per_window = ids_per_window_;
    return batch;
  }

 private:
  const uint64_t tokens_;
  const uint32_t max_token_;
  const std::string description_;
  std::optional<TokenShard> shard_;  // Until Prepare.
  std::optional<TokenDataset> data_;
  int64_t ids_per_window_ = 0;
};

}  // namespace

std::unique_ptr<BatchSource> MakeShardSource(TokenShard shard) {
  return std::make_unique<ShardSource>(std::move(shard));
}

}  // namespace diloco
