// The digest that names every blob, update and fragment version: SHA-256 over
// the concatenated SHA-256s of its 1 MiB blocks (the last block may be short;
// no bytes at all are zero blocks). Parallel, resumable, names the bad block.
#ifndef COMMON_IO_DIGEST_H_
#define COMMON_IO_DIGEST_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/file_system.h"

namespace diloco {

inline constexpr uint64_t kDigestBlockBytes = 1 << 20;
// So many bytes are hashed at once where the CPU can.
inline constexpr uint64_t kDigestRunBytes = 16 * kDigestBlockBytes;

struct Digest {
  std::array<uint8_t, 32> bytes{};

  std::string ToHex() const;
  // The first 12 hexadecimal digits, for log lines.
  std::string Short() const;
  std::string ToBytes() const;  // 32 raw bytes, as on the wire.
  // INVALID_ARGUMENT unless there are exactly 32 bytes / 64 digits.
  static absl::StatusOr<Digest> FromBytes(absl::string_view raw);
  static absl::StatusOr<Digest> FromHex(absl::string_view text);

  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

// Plain SHA-256 of the bytes.
Digest Sha256(absl::string_view bytes);

// Takes the bytes in order, in pieces of any size; fastest in pieces of
// kDigestRunBytes that begin at a block. One thread at a time.
class BlockDigester {
 public:
  BlockDigester();
  ~BlockDigester();
  BlockDigester(BlockDigester&&) noexcept;
  BlockDigester& operator=(BlockDigester&&) noexcept;

  void Update(absl::string_view bytes);
  uint64_t bytes() const;
  // The digest of all bytes so far; the digester can go on afterwards.
  Digest Finish() const;
  // SHA-256 of each block so far, the last possibly short one included.
  std::vector<Digest> Blocks() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Digest BlockDigest(absl::string_view bytes);
// The block digest of the content whose blocks have these SHA-256s.
Digest DigestOfBlocks(absl::Span<const Digest> blocks);
absl::StatusOr<Digest> BlockDigestOfFile(const ReadableFile& file);

}  // namespace diloco

#endif  // COMMON_IO_DIGEST_H_
