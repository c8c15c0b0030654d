// Part files for the tests of this directory.
#ifndef TESTS_UNIT_TENSOR_PART_TEST_UTIL_H_
#define TESTS_UNIT_TENSOR_PART_TEST_UTIL_H_

#include <memory>
#include <string>
#include <vector>

#include "common/io/crc32c.h"
#include "common/tensor/part_file.h"
#include "tests/support/fault_file_system.h"

namespace diloco {

inline std::vector<float> Values(int64_t n) {
  std::vector<float> values(n);
  uint32_t state = 7;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = (static_cast<float>(state >> 8) - 0x1p23f) * 0x1p-30f;
  }
  return values;
}

// Writes `values` as a part file at `path`; its digest.
inline absl::StatusOr<Digest> WritePart(FileSystem* fs, const std::string& path,
                                        PartHeader header,
                                        absl::Span<const float> values) {
  auto file = fs->OpenForWrite(path);
  if (!file.ok()) return file.status();
  header.elements = static_cast<int64_t>(values.size());
  PartWriter writer(file->get(), header);
  for (int64_t i = 0; i < FrameCount(header.elements); ++i) {
    const absl::Status status =
        writer.Append(values.subspan(i * kFrameElements, kFrameElements));
    if (!status.ok()) return status;
  }
  return writer.Finish();
}

// What is left of `values` when they come back from a part: each frame alone is
// encoded and decoded.
inline std::vector<float> RoundedAsPart(Codec codec,
                                        absl::Span<const float> values) {
  std::vector<float> rounded(values.size());
  for (size_t i = 0; i < values.size(); i += kFrameElements) {
    const absl::Span<const float> frame = values.subspan(i, kFrameElements);
    std::string bytes(EncodedBytes(codec, frame.size()), '\0');
    Encode(codec, frame, absl::MakeSpan(&bytes[0], bytes.size()));
    Decode(codec, bytes, absl::MakeSpan(rounded).subspan(i, frame.size()));
  }
  return rounded;
}

// The bytes of such a file.
inline std::string PartBytes(Codec codec, absl::Span<const float> values,
                             uint32_t fragment = 3) {
  FaultFileSystem fs;
  PartHeader header;
  header.codec = codec;
  header.fragment = fragment;
  if (!WritePart(&fs, "p", header, values).ok()) return "";
  return *ReadFile(&fs, "p");
}

inline void PutLe(std::string* bytes, size_t at, uint64_t value, int width) {
  for (int i = 0; i < width; ++i) {
    (*bytes)[at + i] = static_cast<char>(value >> (8 * i));
  }
}

// Makes header and table checksums right again after a change of fields, so
// that the checks behind them are reached.
inline void FixChecksums(std::string* bytes, int64_t frames) {
  PutLe(bytes, 60, Crc32c(absl::string_view(*bytes).substr(0, 60)), 4);
  const size_t end = kPartHeaderBytes + 16 * frames;
  PutLe(bytes, end,
        Crc32c(absl::string_view(*bytes).substr(kPartHeaderBytes, 16 * frames)),
        4);
}

// The same of all frames, after a change in them.
inline void FixFrameChecksums(std::string* bytes) {
  const auto prefix = ParsePartPrefix(*bytes);
  if (!prefix.ok()) return;
  for (size_t i = 0; i < prefix->frames.size(); ++i) {
    const FrameEntry& entry = prefix->frames[i];
    PutLe(bytes, kPartHeaderBytes + 16 * i + 12,
          Crc32c(absl::string_view(*bytes).substr(entry.offset, entry.bytes)),
          4);
  }
  FixChecksums(bytes, static_cast<int64_t>(prefix->frames.size()));
}

}  // namespace diloco

#endif  // TESTS_UNIT_TENSOR_PART_TEST_UTIL_H_
