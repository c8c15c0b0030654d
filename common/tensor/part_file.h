// A part: a contiguous element range of a fragment, encoded in frames of 2^18
// elements on the fragment's grid, each decodable alone. Updates, update blobs
// and images are part files; grammar in common/tensor/README.md.
//
// Layout, little endian:
//   header  64 bytes: "DILOPART" | u32 format=1 | u32 codec | u32 fragment |
//           u32 frames | u64 first_element | u64 elements | u64 file_bytes |
//           u64 reserved=0 | u32 reserved=0 | u32 crc32c(bytes 0..59)
//   table   frames x {u64 offset, u32 bytes, u32 crc32c(frame)} |
//           u32 crc32c(the entries) | u32 zero
//   frames  in order, each at its offset, no gaps
#ifndef COMMON_TENSOR_PART_FILE_H_
#define COMMON_TENSOR_PART_FILE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"
#include "common/tensor/codec.h"

namespace diloco {

struct Layout;

inline constexpr int64_t kFrameElements = 1 << 18;
inline constexpr size_t kPartHeaderBytes = 64;

// Far above any fragment, and small enough that byte counts never overflow.
inline constexpr int64_t kMaxPartElements = int64_t{1} << 40;

struct PartHeader {
  Codec codec = Codec::kFp32;
  uint32_t fragment = 0;
  // Within the fragment; a multiple of kFrameElements.
  int64_t first_element = 0;
  int64_t elements = 0;  // 1 to kMaxPartElements.
};

struct FrameEntry {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t crc = 0;
};

// Digest of fp32 values as little-endian bytes: names a fragment version.
Digest DigestOfValues(absl::Span<const float> values);

int64_t FrameCount(int64_t elements);
// Bytes of header and table, and of the whole file.
uint64_t PartPrefixBytes(int64_t elements);
uint64_t PartFileBytes(Codec codec, int64_t elements);

struct PartPrefix {
  PartHeader header;
  std::vector<FrameEntry> frames;
};
// Parses and checks the header alone; `prefix` may be longer than needed.
// INVALID_ARGUMENT names the field, the value and what was expected.
absl::StatusOr<PartHeader> ParsePartHeader(absl::string_view prefix);
// Header and table; allocates no more than `prefix` justifies.
absl::StatusOr<PartPrefix> ParsePartPrefix(absl::string_view prefix);
// The bytes of header and table; `frames` has FrameCount(elements) entries.
std::string SerializePartPrefix(const PartHeader& header,
                                absl::Span<const FrameEntry> frames);

// How a PartWriter encodes, for codecs that lose something.
struct PartEncoding {
  Rounding rounding;  // Its stream is set to the number of each frame.
  // Error feedback (error_feedback.h): each empty, or as many as the
  // header's elements. `residual` is added to the values; what the encoding
  // lost is left in `error`, which may be the same memory and is empty without
  // `residual`.
  absl::Span<const float> residual;
  absl::Span<float> error;
};

// Writes a part file frame by frame in constant memory (18 MiB, 20 with error
// feedback); the table is filled in at Finish, which does not sync. One thread.
class PartWriter {
 public:
  PartWriter(WritableFile* file, PartHeader header, PartEncoding encoding = {});
  // The next frame's values: kFrameElements of them, fewer only in the last.
  absl::Status Append(absl::Span<const float> values);
  // Writes header and table and returns the digest of the whole file.
  absl::StatusOr<Digest> Finish();
  uint64_t file_bytes() const;

 private:
  absl::string_view EncodeFrame(absl::Span<const float> values);
  void AddToDigest(absl::string_view bytes);

  WritableFile* const file_;
  const PartHeader header_;
  const PartEncoding encoding_;
  const uint64_t prefix_bytes_;
  std::vector<FrameEntry> frames_;
  std::string buffer_;                      // The encoded frame.
  std::vector<float> corrected_, decoded_;  // With error feedback.
  uint64_t next_offset_;
  // The prefix is known last but hashed first: frame bytes that share a digest
  // block with it (less than a block) are kept until Finish. The bytes behind
  // are hashed in runs.
  std::string head_;
  std::string run_;
  BlockDigester rest_;
};

// Reads one part file. Thread-safe after Open.
class PartReader {
 public:
  // Checks header, table and file size, not the frames. `name` is for errors.
  static absl::StatusOr<PartReader> Open(std::unique_ptr<ReadableFile> file,
                                         std::string name);
  const PartHeader& header() const { return prefix_.header; }
  int64_t frames() const { return static_cast<int64_t>(prefix_.frames.size()); }
  // Elements in frame `index`.
  int64_t FrameElements(int64_t index) const;
  // The encoded bytes of a frame, from the mapping; not verified.
  absl::Span<const char> FrameBytes(int64_t index) const;
  // DATA_LOSS unless the frame's checksum is `crc`, as the caller has computed
  // it over FrameBytes.
  absl::Status CheckFrame(int64_t index, uint32_t crc) const;
  // Decodes a frame into `out` (FrameElements(index) values); DATA_LOSS when
  // its checksum does not match.
  absl::Status ReadFrame(int64_t index, absl::Span<float> out) const;
  const ReadableFile& file() const { return *file_; }

 private:
  PartReader() = default;
  std::unique_ptr<ReadableFile> file_;
  absl::Span<const char> bytes_;
  std::string name_;
  PartPrefix prefix_;
};

// What arrives of an update, checked frame by frame while it comes in: format,
// checksums, magnitudes. Bytes are fed in order, in pieces of any size.
class PartScreen {
 public:
  struct Expect {
    Codec codec;
    uint32_t fragment;
    int64_t elements;  // Of the whole fragment; first_element must be 0.
    // The largest |value| that whoever uses the update can take.
    float max_magnitude = std::numeric_limits<float>::max();
    // Names tensors in messages; not owned, null: only elements are named.
    const Layout* layout = nullptr;
  };
  explicit PartScreen(Expect expect);
  ~PartScreen();
  // INVALID_ARGUMENT (format; a value that is not finite or too large: with
  // tensor and element within the fragment) or DATA_LOSS (checksum of frame N).
  // Sticky.
  absl::Status Feed(absl::string_view bytes);
  // OK once everything came; FAILED_PRECONDITION with the missing byte count.
  absl::Status Finish() const;
  float max_abs() const;       // Of the values so far.
  double sum_squares() const;  // In element order, for the norm.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace diloco

#endif  // COMMON_TENSOR_PART_FILE_H_
