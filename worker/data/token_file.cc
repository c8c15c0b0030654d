// Implements token_file.h.
#include "worker/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

// llm.c: 256 little-endian int32, of which the first three are magic, version
// and token count.
constexpr uint64_t kLlmCHeaderBytes = 1024;
constexpr int32_t kLlmCMagic16 = 20240520;
constexpr int32_t kLlmCVersion16 = 1;
constexpr int32_t kLlmCMagic32 = 20240801;
constexpr int32_t kLlmCVersion32 = 7;

template <typename T>
T LoadLittleEndian(const char* at) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

struct LlmCHeader {
  int width = 0;
  uint64_t tokens = 0;
};

absl::StatusOr<LlmCHeader> ParseLlmC(const std::string& path,
                                     absl::Span<const char> bytes) {
  if (bytes.size() < kLlmCHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": llm.c header needs ", kLlmCHeaderBytes,
                     " bytes, the file has ", bytes.size()));
  }
  const int32_t magic = LoadLittleEndian<int32_t>(bytes.data());
  const int32_t version = LoadLittleEndian<int32_t>(bytes.data() + 4);
  const int32_t count = LoadLittleEndian<int32_t>(bytes.data() + 8);
  if (magic != kLlmCMagic16 && magic != kLlmCMagic32) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": magic ", magic, " is none of llm.c's, expected ", kLlmCMagic16,
        " (uint16 ids) or ", kLlmCMagic32, " (uint32 ids)"));
  }
  const bool wide = magic == kLlmCMagic32;
  const int32_t expected = wide ? kLlmCVersion32 : kLlmCVersion16;
  if (version != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": version ", version, ", expected ", expected));
  }
  if (count <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": token count ", count, ", expected at least 1"));
  }
  LlmCHeader header;
  header.width = wide ? 4 : 2;
  header.tokens = static_cast<uint64_t>(count);
  const uint64_t size =
      kLlmCHeaderBytes + header.tokens * static_cast<uint64_t>(header.width);
  if (bytes.size() != size) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the header states ", count, " tokens, which makes ", size,
        " bytes; the file has ", bytes.size()));
  }
  return header;
}

template <typename T>
TokenFile::Scan ScanAs(const char* data, uint64_t tokens) {
  TokenFile::Scan scan;
  constexpr uint64_t kFewest = 16;  // Below that chance can look wide.
  bool odd_small = sizeof(T) == 2 && tokens % 2 == 0 && tokens >= kFewest;
  constexpr uint64_t kBlock = 4096;
  for (uint64_t first = 0; first < tokens; first += kBlock) {
    const uint64_t end = std::min(tokens, first + kBlock);
    T block_max = 0;
    T odd_max = 0;
    for (uint64_t i = first; i < end; ++i) {
      const T id = LoadLittleEndian<T>(data + i * sizeof(T));
      block_max = std::max(block_max, id);
    }
    for (uint64_t i = first + 1; odd_small && i < end; i += 2) {
      odd_max = std::max(odd_max, LoadLittleEndian<T>(data + i * sizeof(T)));
    }
    odd_small = odd_small && odd_max <= 1;
    if (block_max <= scan.max_id && first > 0) continue;
    scan.max_id = block_max;
    for (uint64_t i = first; i < end; ++i) {
      if (LoadLittleEndian<T>(data + i * sizeof(T)) != block_max) continue;
      scan.max_position = i;
      break;
    }
  }
  scan.looks_wider = odd_small;
  return scan;
}

}  // namespace

absl::StatusOr<TokenFile> TokenFile::Open(FileSystem* fs,
                                          const std::string& path,
                                          TokenFormat format) {
  TokenFile file;
  file.path_ = path;
  ASSIGN_OR_RETURN(file.file_, fs->OpenForRead(path));
  ASSIGN_OR_RETURN(const uint64_t size, file.file_->Size());
  if (size > 0) {
    ASSIGN_OR_RETURN(file.bytes_, file.file_->Map());
  }
  if (format == TokenFormat::kLlmC) {
    ASSIGN_OR_RETURN(const LlmCHeader header, ParseLlmC(path, file.bytes_));
    file.width_ = header.width;
    file.tokens_ = header.tokens;
    file.data_start_ = kLlmCHeaderBytes;
    return file;
  }
  file.width_ = format == TokenFormat::kUint32 ? 4 : 2;
  const uint64_t width = static_cast<uint64_t>(file.width_);
  if (size % width != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", size, " bytes are no multiple of ", width,
                     ", the width of ", TokenFormatName(format),
                     " ids; the file is cut short (copy it again) or "
                     "dtype is wrong"));
  }
  file.tokens_ = size / width;
  return file;
}

absl::Status TokenFile::CheckSize() const {
  ASSIGN_OR_RETURN(const uint64_t size, file_->Size());
  if (size >= bytes_.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path_, ": had ", bytes_.size(),
                                          " bytes when it was opened and has ",
                                          size, " now; restore the file"));
}

absl::Status TokenFile::Read(uint64_t first, absl::Span<int32_t> out) const {
  DILOCO_CHECK(first <= tokens_ && out.size() <= tokens_ - first)
      << path_ << " " << first << " + " << out.size() << " of " << tokens_;
  RETURN_IF_ERROR(CheckSize());
  const char* data =
      bytes_.data() + data_start_ + first * static_cast<uint64_t>(width_);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] =
        width_ == 2
            ? LoadLittleEndian<uint16_t>(data + 2 * i)
            : static_cast<int32_t>(LoadLittleEndian<uint32_t>(data + 4 * i));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenFile::Scan> TokenFile::ScanIds() const {
  RETURN_IF_ERROR(CheckSize());
  const char* data = bytes_.data() + data_start_;
  return width_ == 2 ? ScanAs<uint16_t>(data, tokens_)
                     : ScanAs<uint32_t>(data, tokens_);
}

}  // namespace diloco
