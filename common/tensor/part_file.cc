// Writing and reading part files.
#include "common/tensor/part_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "common/tensor/error_feedback.h"

namespace diloco {
namespace {

absl::string_view AsBytes(absl::Span<const float> values) {
  return absl::string_view(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof(float));
}

}  // namespace

Digest DigestOfValues(absl::Span<const float> values) {
  return BlockDigest(AsBytes(values));
}

PartWriter::PartWriter(WritableFile* file, PartHeader header,
                       PartEncoding encoding)
    : file_(file),
      header_(header),
      encoding_(encoding),
      prefix_bytes_(PartPrefixBytes(header.elements)),
      next_offset_(prefix_bytes_) {
  DILOCO_CHECK(header.elements >= 1 && header.elements <= kMaxPartElements &&
               header.first_element >= 0 &&
               header.first_element % kFrameElements == 0)
      << "elements " << header.elements << " first " << header.first_element;
  const size_t residuals = encoding.residual.size();
  DILOCO_CHECK(
      (residuals == 0 || residuals == static_cast<size_t>(header.elements)) &&
      (encoding.error.empty() || encoding.error.size() == residuals))
      << residuals << " and " << encoding.error.size();
}

uint64_t PartWriter::file_bytes() const {
  return PartFileBytes(header_.codec, header_.elements);
}

absl::string_view PartWriter::EncodeFrame(absl::Span<const float> values) {
  if (header_.codec == Codec::kFp32 && encoding_.residual.empty()) {
    return AsBytes(values);
  }
  const size_t first = frames_.size() * kFrameElements;
  if (!encoding_.residual.empty()) {
    corrected_.assign(values.begin(), values.end());
    AddResidual(encoding_.residual.subspan(first, values.size()),
                absl::MakeSpan(corrected_));
    values = corrected_;
  }
  buffer_.resize(EncodedBytes(header_.codec, values.size()));
  Rounding rounding = encoding_.rounding;
  rounding.stream = frames_.size();
  Encode(header_.codec, values, absl::MakeSpan(&buffer_[0], buffer_.size()),
         rounding);
  if (!encoding_.error.empty()) {
    decoded_.resize(values.size());
    Decode(header_.codec, buffer_, absl::MakeSpan(decoded_));
    KeepError(values, decoded_, encoding_.error.subspan(first, values.size()));
  }
  return buffer_;
}

absl::Status PartWriter::Append(absl::Span<const float> values) {
  const int64_t done = static_cast<int64_t>(frames_.size()) * kFrameElements;
  const int64_t expected = std::min(kFrameElements, header_.elements - done);
  DILOCO_CHECK(static_cast<int64_t>(values.size()) == expected)
      << "frame " << frames_.size() << " has " << values.size()
      << " values, expected " << expected;
  const absl::string_view encoded = EncodeFrame(values);
  RETURN_IF_ERROR(file_->WriteAt(next_offset_, encoded));
  frames_.push_back(
      {next_offset_, static_cast<uint32_t>(encoded.size()), Crc32c(encoded)});
  next_offset_ += encoded.size();
  AddToDigest(encoded);
  return absl::OkStatus();
}

void PartWriter::AddToDigest(absl::string_view bytes) {
  const uint64_t taken = prefix_bytes_ + head_.size();
  if (taken % kDigestBlockBytes != 0) {
    const absl::string_view shared =
        bytes.substr(0, kDigestBlockBytes - taken % kDigestBlockBytes);
    absl::StrAppend(&head_, shared);
    bytes.remove_prefix(shared.size());
  }
  // At once: growing by doubling would hold two copies for a moment.
  run_.reserve(kDigestRunBytes);
  while (!bytes.empty()) {
    const absl::string_view piece =
        bytes.substr(0, kDigestRunBytes - run_.size());
    absl::StrAppend(&run_, piece);
    bytes.remove_prefix(piece.size());
    if (run_.size() == kDigestRunBytes) {
      rest_.Update(run_);
      run_.clear();
      // So that a sync at the end finds most of the file on disk already.
      file_->StartWriteBack();
    }
  }
}

absl::StatusOr<Digest> PartWriter::Finish() {
  const std::string prefix = SerializePartPrefix(header_, frames_);
  RETURN_IF_ERROR(file_->WriteAt(0, prefix));
  BlockDigester head;
  head.Update(prefix);
  head.Update(head_);
  std::vector<Digest> blocks = head.Blocks();
  rest_.Update(run_);
  const std::vector<Digest> rest = rest_.Blocks();
  blocks.insert(blocks.end(), rest.begin(), rest.end());
  return DigestOfBlocks(blocks);
}

absl::StatusOr<PartReader> PartReader::Open(std::unique_ptr<ReadableFile> file,
                                            std::string name) {
  PartReader reader;
  reader.file_ = std::move(file);
  reader.name_ = std::move(name);
  ASSIGN_OR_RETURN(reader.bytes_, reader.file_->Map());
  auto prefix = ParsePartPrefix(
      absl::string_view(reader.bytes_.data(), reader.bytes_.size()));
  if (!prefix.ok()) return WithContext(prefix.status(), reader.name_);
  reader.prefix_ = *std::move(prefix);
  const uint64_t expected =
      PartFileBytes(reader.header().codec, reader.header().elements);
  if (reader.bytes_.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(reader.name_, ": part file: size is ",
                     reader.bytes_.size(), " bytes, expected ", expected));
  }
  return reader;
}

int64_t PartReader::FrameElements(int64_t index) const {
  return std::min(kFrameElements, header().elements - index * kFrameElements);
}

absl::Span<const char> PartReader::FrameBytes(int64_t index) const {
  const FrameEntry& entry = prefix_.frames[index];
  return bytes_.subspan(entry.offset, entry.bytes);
}

absl::Status PartReader::CheckFrame(int64_t index, uint32_t crc) const {
  const FrameEntry& entry = prefix_.frames[index];
  if (crc != entry.crc) {
    return absl::DataLossError(absl::StrCat(
        name_, ": frame ", index, " of ", frames(), " (", entry.bytes,
        " bytes at offset ", entry.offset, ") has checksum ", absl::Hex(crc),
        ", expected ", absl::Hex(entry.crc), ": the file was damaged"));
  }
  return absl::OkStatus();
}

absl::Status PartReader::ReadFrame(int64_t index, absl::Span<float> out) const {
  const absl::Span<const char> encoded = FrameBytes(index);
  RETURN_IF_ERROR(CheckFrame(
      index, Crc32c(absl::string_view(encoded.data(), encoded.size()))));
  Decode(header().codec, encoded, out);
  return absl::OkStatus();
}

}  // namespace diloco
