// The UploadSpool over a .part file. Made by SpoolStore only.
#ifndef COORDINATOR_STORE_UPLOAD_FILE_H_
#define COORDINATOR_STORE_UPLOAD_FILE_H_

#include <memory>
#include <optional>
#include <string>

#include "common/io/digest.h"
#include "coordinator/store/spool.h"

namespace diloco {

class UploadFile final : public UploadSpool {
 public:
  struct Paths {
    std::string part;
    std::string complete;
  };
  // Opens `paths.complete` if it is there, else `paths.part`, creating it, and
  // screens what it holds.
  static absl::StatusOr<std::unique_ptr<UploadFile>> Open(
      FileSystem* fs, Paths paths, const UpdateValue& value,
      PartScreen::Expect expect);

  uint64_t offset() const override { return received_; }
  absl::Status Write(uint64_t offset, absl::string_view bytes) override;
  absl::StatusOr<Verified> Finish() override;
  bool sync_failed() const override { return sync_failed_; }

 private:
  UploadFile(FileSystem* fs, Paths paths, const UpdateValue& value,
             PartScreen::Expect expect);

  // Feeds bytes that are in the file already, up to `end`; stops before the
  // first frame that does not pass. Afterwards received_ is what passed.
  absl::Status Screen(uint64_t end);
  absl::Status ScreenOnce(uint64_t end);
  // Throws away everything from `begin` on.
  absl::Status CutTo(uint64_t begin);
  // Start of the frame (or of the prefix) that byte `offset` is in, and the
  // start of the next one.
  uint64_t PieceBegin(uint64_t offset) const;
  uint64_t PieceEnd(uint64_t offset) const;
  absl::Status WritePiece(absl::string_view piece);
  // Digests the file's bytes up to `end`. Lags behind what was received: runs
  // of kDigestRunBytes are twice as fast, and the page cache holds them.
  absl::Status DigestTo(uint64_t end);
  // Durable under its final name, which is what a receipt promises.
  absl::Status Persist();
  const std::string& Path() const;  // Where the file is now.
  // The file failed: every later call says so.
  absl::Status GiveUp(const absl::Status& status);

  FileSystem* const fs_;
  const Paths paths_;
  const UpdateValue value_;
  const PartScreen::Expect expect_;
  const uint64_t prefix_bytes_;
  const uint64_t frame_bytes_;
  std::unique_ptr<WritableFile> file_;
  std::unique_ptr<PartScreen> screen_;
  BlockDigester digester_;  // Of the first bytes of the file.
  uint64_t received_ = 0;
  uint64_t written_back_ = 0;
  std::optional<Verified> verified_;  // Complete under its final name.
  bool renamed_ = false;
  bool sync_failed_ = false;
  absl::Status failed_;  // Unusable update or failed file: sticky.
};

}  // namespace diloco

#endif  // COORDINATOR_STORE_UPLOAD_FILE_H_
