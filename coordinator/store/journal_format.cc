#include "coordinator/store/journal_format.h"

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/io/crc32c.h"

namespace diloco {
namespace {

constexpr absl::string_view kMagic = "DILOJRNL";
constexpr uint32_t kFormat = 2;
constexpr size_t kCommonHeaderBytes = 16;  // Of every format.
constexpr absl::string_view kHeadMagic = "DILOHEAD";
constexpr uint32_t kHeadFormat = 1;
constexpr size_t kHeadBytes = 20;

uint64_t GetLittle(absl::string_view bytes, size_t offset, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(bytes[offset + i]);
  }
  return value;
}

void PutLittle(uint64_t value, size_t count, std::string* out) {
  for (size_t i = 0; i < count; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

uint64_t Padded(uint64_t bytes) {
  return (bytes + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
}

}  // namespace

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  std::string bytes(kMagic);
  PutLittle(kFormat, 4, &bytes);
  PutLittle(Crc32c(bytes), 4, &bytes);
  PutLittle(header.first_sequence, 8, &bytes);
  PutLittle(header.number, 4, &bytes);
  PutLittle(header.chain, 4, &bytes);
  PutLittle(Crc32c(bytes), 4, &bytes);
  PutLittle(0, 4, &bytes);
  return bytes;
}

absl::StatusOr<ParsedSegmentHeader> ParseSegmentHeader(absl::string_view file) {
  const auto too_short = [&file](size_t bytes) {
    return absl::DataLossError(absl::StrCat("it has only ", file.size(),
                                            " bytes, a journal has ", bytes,
                                            " or more"));
  };
  if (file.size() < kCommonHeaderBytes) return too_short(kCommonHeaderBytes);
  if (file.substr(0, kMagic.size()) != kMagic) {
    return absl::FailedPreconditionError(
        "it does not begin with \"DILOJRNL\": this is no journal");
  }
  if (GetLittle(file, 12, 4) != Crc32c(file.substr(0, 12))) {
    return absl::DataLossError(
        "the checksum at offset 12 does not match the header");
  }
  ParsedSegmentHeader parsed;
  const uint64_t format = GetLittle(file, 8, 4);
  if (format == 0 || format > kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it has format ", format, ", this version knows formats up to ",
        kFormat, ": start the version that wrote it"));
  }
  parsed.format = static_cast<uint32_t>(format);
  parsed.bytes = kCommonHeaderBytes;
  if (format == 1) return parsed;
  parsed.bytes = kSegmentHeaderBytes;
  if (file.size() < parsed.bytes) return too_short(parsed.bytes);
  if (GetLittle(file, 32, 4) != Crc32c(file.substr(0, 32))) {
    return absl::DataLossError(
        "the checksum at offset 32 does not match the header");
  }
  parsed.header.first_sequence = GetLittle(file, 16, 8);
  parsed.header.number = static_cast<uint32_t>(GetLittle(file, 24, 4));
  parsed.header.chain = static_cast<uint32_t>(GetLittle(file, 28, 4));
  return parsed;
}

uint32_t AppendRecord(uint32_t type, uint64_t sequence,
                      absl::string_view payload, std::string* out) {
  DILOCO_CHECK(payload.size() <= kMaxRecordPayload) << payload.size();
  const size_t begin = out->size();
  PutLittle(payload.size(), 4, out);
  PutLittle(type, 4, out);
  PutLittle(sequence, 8, out);
  const uint32_t head = Crc32c(absl::string_view(*out).substr(begin));
  const uint32_t crc = ExtendCrc32c(head, payload);
  PutLittle(crc, 4, out);
  out->append(payload.data(), payload.size());
  out->resize(begin + Padded(kRecordHeaderBytes + payload.size()), '\0');
  return crc;
}

std::optional<RecordView> ParseRecord(absl::string_view file, uint64_t offset) {
  if (offset + kRecordHeaderBytes > file.size()) return std::nullopt;
  const uint64_t bytes = GetLittle(file, offset, 4);
  RecordView record;
  record.end = offset + Padded(kRecordHeaderBytes + bytes);
  if (bytes > kMaxRecordPayload || record.end > file.size()) {
    return std::nullopt;
  }
  record.type = static_cast<uint32_t>(GetLittle(file, offset + 4, 4));
  record.sequence = GetLittle(file, offset + 8, 8);
  record.payload = file.substr(offset + kRecordHeaderBytes, bytes);
  record.crc = ExtendCrc32c(Crc32c(file.substr(offset, 16)), record.payload);
  if (GetLittle(file, offset + 16, 4) != record.crc) return std::nullopt;
  const uint64_t payload_end = offset + kRecordHeaderBytes + bytes;
  for (const char c : file.substr(payload_end, record.end - payload_end)) {
    if (c != '\0') return std::nullopt;
  }
  return record;
}

std::optional<uint64_t> FindRecordAfter(absl::string_view file, uint64_t offset,
                                        uint64_t sequence) {
  for (offset += kRecordAlign; offset + kRecordHeaderBytes <= file.size();
       offset += kRecordAlign) {
    // Cheap first, so that junk does not cost a checksum at each offset.
    const uint64_t found = GetLittle(file, offset + 8, 8);
    if (found <= sequence || found - sequence > file.size()) continue;
    if (ParseRecord(file, offset).has_value()) return offset;
  }
  return std::nullopt;
}

uint32_t ExtendChain(uint32_t chain, uint32_t crc) {
  std::string bytes;
  PutLittle(crc, 4, &bytes);
  return ExtendCrc32c(chain, bytes);
}

std::string EncodeJournalHead(uint32_t segment) {
  std::string bytes(kHeadMagic);
  PutLittle(kHeadFormat, 4, &bytes);
  PutLittle(segment, 4, &bytes);
  PutLittle(Crc32c(bytes), 4, &bytes);
  return bytes;
}

absl::StatusOr<uint32_t> ParseJournalHead(absl::string_view file) {
  const bool ours =
      file.size() >= kHeadBytes && file.substr(0, 8) == kHeadMagic;
  if (ours && GetLittle(file, 8, 4) > kHeadFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it has format ", GetLittle(file, 8, 4), ", this version knows format ",
        kHeadFormat, ": start the version that wrote it"));
  }
  if (!ours || file.size() != kHeadBytes ||
      GetLittle(file, 16, 4) != Crc32c(file.substr(0, 16))) {
    return absl::DataLossError(
        "it is damaged: restore it from a backup, or, when every segment is "
        "there, remove it");
  }
  return static_cast<uint32_t>(GetLittle(file, 12, 4));
}

}  // namespace diloco
