// safetensors files, in and out. The reader checks everything the format says
// before any value is touched: it allocates no more than the header's bytes
// and trusts no number in it. Values are read with positioned reads, not from a
// mapping: a file that shrinks later is an error, never a signal. Used by
// import, export and the fixtures program.
//
// Format: u64 LE header length N | N bytes of JSON (UTF-8, begins with '{', may
// end in spaces) | data. Tensors, sorted by offset, tile the data exactly.
#ifndef COMMON_MODEL_SAFETENSORS_H_
#define COMMON_MODEL_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/io/file_system.h"

namespace diloco {

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // As in the file: "F32", "BF16", ...
  std::vector<uint64_t> shape;
  uint64_t elements = 0;
  uint64_t begin = 0;  // In bytes, from the start of the data.
  uint64_t end = 0;
};

// Bits per element of a dtype of the format; 0 when there is no such dtype.
uint32_t SafetensorsDtypeBits(absl::string_view dtype);

// Thread-safe after Open.
class SafetensorsReader {
 public:
  // INVALID_ARGUMENT naming file, tensor and numbers for every departure from
  // the format (also duplicate keys, which some readers accept).
  static absl::StatusOr<SafetensorsReader> Open(FileSystem* fs,
                                                const std::string& path);

  // In data order.
  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  // nullptr when there is no tensor of that name.
  const SafetensorsEntry* Find(absl::string_view name) const;
  // The tensor's bytes as they are in the file; `out` has exactly that many.
  // DATA_LOSS when the file became shorter since Open.
  absl::Status ReadBytes(const SafetensorsEntry& entry,
                         absl::Span<char> out) const;
  // Converts an F32, F16 or BF16 tensor into `out` (entry.elements values).
  // INVALID_ARGUMENT for another dtype, naming those that are accepted.
  absl::Status ReadFloats(const SafetensorsEntry& entry,
                          absl::Span<float> out) const;
  const std::string& path() const { return path_; }

 private:
  SafetensorsReader() = default;
  absl::Status ReadAt(uint64_t offset, absl::Span<char> out) const;

  std::string path_;
  uint64_t file_bytes_ = 0;
  uint64_t data_start_ = 0;
  std::unique_ptr<ReadableFile> file_;
  std::vector<SafetensorsEntry> tensors_;
  std::map<std::string, size_t> index_;  // Name to position in tensors_.
  std::map<std::string, std::string> metadata_;
};

// One fp32 tensor to write; `values` is not owned.
struct SafetensorsTensor {
  std::string name;
  std::vector<int64_t> shape;
  absl::Span<const float> values;
};

// Writes F32 tensors sorted by name, header padded with spaces to a multiple of
// 8, `__metadata__: {"format": "pt"}`; fsyncs the file, not its directory.
// Deterministic.
absl::Status WriteSafetensors(FileSystem* fs, const std::string& path,
                              std::vector<SafetensorsTensor> tensors);

}  // namespace diloco

#endif  // COMMON_MODEL_SAFETENSORS_H_
