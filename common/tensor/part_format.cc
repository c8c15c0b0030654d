// Header and table of part files: sizes, bytes and checks.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "common/tensor/part_file.h"

namespace diloco {
namespace {

constexpr absl::string_view kMagic = "DILOPART";
constexpr uint32_t kFormat = 1;
constexpr uint64_t kEntryBytes = 16;
constexpr uint64_t kTableTrailerBytes = 8;

template <typename T>
void Put(std::string* out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename T>
T Get(absl::string_view bytes, uint64_t offset) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[offset + i])} << (8 * i);
  }
  return static_cast<T>(value);
}

template <typename Got, typename Wanted>
absl::Status Bad(absl::string_view field, Got got, Wanted wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("part file: ", field, " is ", got, ", expected ", wanted));
}

int64_t ElementsInFrame(int64_t elements, int64_t index) {
  return std::min(kFrameElements, elements - index * kFrameElements);
}

}  // namespace

int64_t FrameCount(int64_t elements) {
  return (elements + kFrameElements - 1) / kFrameElements;
}

uint64_t PartPrefixBytes(int64_t elements) {
  return kPartHeaderBytes + FrameCount(elements) * kEntryBytes +
         kTableTrailerBytes;
}

uint64_t PartFileBytes(Codec codec, int64_t elements) {
  const int64_t whole = elements / kFrameElements;
  return PartPrefixBytes(elements) +
         whole * EncodedBytes(codec, kFrameElements) +
         EncodedBytes(codec, elements % kFrameElements);
}

absl::StatusOr<PartHeader> ParsePartHeader(absl::string_view prefix) {
  if (prefix.size() < kPartHeaderBytes) {
    return Bad("size", absl::StrCat(prefix.size(), " bytes"),
               "a header of 64 bytes");
  }
  if (prefix.substr(0, 8) != kMagic) {
    return Bad("magic",
               absl::StrCat("\"", absl::CHexEscape(prefix.substr(0, 8)), "\""),
               "\"DILOPART\"");
  }
  const uint32_t format = Get<uint32_t>(prefix, 8);
  if (format != kFormat) {
    return Bad("format", format, "1 (a newer program wrote this file?)");
  }
  const uint32_t crc = Crc32c(prefix.substr(0, 60));
  if (Get<uint32_t>(prefix, 60) != crc) {
    return Bad("header checksum", absl::Hex(Get<uint32_t>(prefix, 60)),
               absl::StrCat(absl::Hex(crc)));
  }
  PartHeader header;
  auto codec = CodecFromId(Get<uint32_t>(prefix, 12));
  if (!codec.ok()) return WithContext(codec.status(), "part file");
  header.codec = *codec;
  header.fragment = Get<uint32_t>(prefix, 16);
  header.first_element = Get<int64_t>(prefix, 24);
  header.elements = Get<int64_t>(prefix, 32);
  if (header.elements < 1 || header.elements > kMaxPartElements) {
    return Bad("elements", header.elements, "1 to 2^40");
  }
  if (header.first_element < 0 || header.first_element > kMaxPartElements ||
      header.first_element % kFrameElements != 0) {
    return Bad("first_element", header.first_element,
               "a multiple of 2^18 up to 2^40");
  }
  const uint32_t frames = Get<uint32_t>(prefix, 20);
  if (frames != FrameCount(header.elements)) {
    return Bad("frames", frames,
               absl::StrCat(FrameCount(header.elements), " for ",
                            header.elements, " elements"));
  }
  const uint64_t file_bytes = Get<uint64_t>(prefix, 40);
  if (file_bytes != PartFileBytes(header.codec, header.elements)) {
    return Bad("file_bytes", file_bytes,
               absl::StrCat(PartFileBytes(header.codec, header.elements),
                            " for ", header.elements, " ",
                            CodecName(header.codec), " elements"));
  }
  if (Get<uint64_t>(prefix, 48) != 0 || Get<uint32_t>(prefix, 56) != 0) {
    return Bad("a reserved field", "set", "zero");
  }
  return header;
}

absl::StatusOr<PartPrefix> ParsePartPrefix(absl::string_view prefix) {
  PartPrefix parsed;
  ASSIGN_OR_RETURN(parsed.header, ParsePartHeader(prefix));
  const uint64_t prefix_bytes = PartPrefixBytes(parsed.header.elements);
  if (prefix.size() < prefix_bytes) {
    return Bad("size", absl::StrCat(prefix.size(), " bytes"),
               absl::StrCat("a header and table of ", prefix_bytes));
  }
  const uint64_t table_end = prefix_bytes - kTableTrailerBytes;
  const uint32_t crc =
      Crc32c(prefix.substr(kPartHeaderBytes, table_end - kPartHeaderBytes));
  if (Get<uint32_t>(prefix, table_end) != crc) {
    return Bad("table checksum", absl::Hex(Get<uint32_t>(prefix, table_end)),
               absl::StrCat(absl::Hex(crc)));
  }
  if (Get<uint32_t>(prefix, table_end + 4) != 0) {
    return Bad("the word after the table", "set", "zero");
  }
  const int64_t frames = FrameCount(parsed.header.elements);
  parsed.frames.resize(frames);
  uint64_t offset = prefix_bytes;
  for (int64_t i = 0; i < frames; ++i) {
    const uint64_t at = kPartHeaderBytes + i * kEntryBytes;
    FrameEntry& entry = parsed.frames[i];
    entry.offset = Get<uint64_t>(prefix, at);
    entry.bytes = Get<uint32_t>(prefix, at + 8);
    entry.crc = Get<uint32_t>(prefix, at + 12);
    const uint64_t bytes = EncodedBytes(
        parsed.header.codec, ElementsInFrame(parsed.header.elements, i));
    if (entry.offset != offset) {
      return Bad(absl::StrCat("offset of frame ", i), entry.offset, offset);
    }
    if (entry.bytes != bytes) {
      return Bad(absl::StrCat("size of frame ", i), entry.bytes, bytes);
    }
    offset += bytes;
  }
  return parsed;
}

std::string SerializePartPrefix(const PartHeader& header,
                                absl::Span<const FrameEntry> frames) {
  DILOCO_CHECK(static_cast<int64_t>(frames.size()) ==
               FrameCount(header.elements))
      << frames.size() << " frames for " << header.elements << " elements";
  std::string bytes(kMagic);
  Put<uint32_t>(&bytes, kFormat);
  Put<uint32_t>(&bytes, static_cast<uint32_t>(header.codec));
  Put<uint32_t>(&bytes, header.fragment);
  Put<uint32_t>(&bytes, frames.size());
  Put<uint64_t>(&bytes, header.first_element);
  Put<uint64_t>(&bytes, header.elements);
  Put<uint64_t>(&bytes, PartFileBytes(header.codec, header.elements));
  Put<uint64_t>(&bytes, 0);
  Put<uint32_t>(&bytes, 0);
  Put<uint32_t>(&bytes, Crc32c(bytes));
  for (const FrameEntry& entry : frames) {
    Put<uint64_t>(&bytes, entry.offset);
    Put<uint32_t>(&bytes, entry.bytes);
    Put<uint32_t>(&bytes, entry.crc);
  }
  Put<uint32_t>(&bytes,
                Crc32c(absl::string_view(bytes).substr(kPartHeaderBytes)));
  Put<uint32_t>(&bytes, 0);
  return bytes;
}

}  // namespace diloco
