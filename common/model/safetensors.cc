#include "common/model/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/safetensors_header.h"
#include "common/tensor/codec.h"

namespace diloco {
namespace {

constexpr size_t kLengthBytes = 8;
// Values converted at a time.
constexpr size_t kChunkElements = 1 << 18;

uint64_t LoadLe64(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

void AppendLe64(uint64_t value, std::string* out) {
  for (size_t i = 0; i < 8; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(
    FileSystem* fs, const std::string& path) {
  SafetensorsReader reader;
  reader.path_ = path;
  ASSIGN_OR_RETURN(reader.file_, fs->OpenForRead(path));
  ASSIGN_OR_RETURN(reader.file_bytes_, reader.file_->Size());
  if (reader.file_bytes_ < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no safetensors file: it has ", reader.file_bytes_,
                     " bytes, the header length alone takes 8"));
  }
  char length_bytes[kLengthBytes];
  RETURN_IF_ERROR(reader.ReadAt(0, absl::MakeSpan(length_bytes)));
  const uint64_t length =
      LoadLe64(absl::string_view(length_bytes, kLengthBytes));
  if (length > reader.file_bytes_ - kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": header length ", length, ", file has ",
                     reader.file_bytes_, " bytes"));
  }
  if (length > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": header length ", length,
                     " is above the limit of ", kMaxSafetensorsHeader));
  }
  std::string json(length, '\0');
  RETURN_IF_ERROR(reader.ReadAt(kLengthBytes, absl::MakeSpan(json)));
  reader.data_start_ = kLengthBytes + length;
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, reader.file_bytes_ - reader.data_start_);
  if (!header.ok()) return WithContext(header.status(), path);
  reader.tensors_ = std::move(header->tensors);
  reader.metadata_ = std::move(header->metadata);
  for (size_t i = 0; i < reader.tensors_.size(); ++i) {
    reader.index_.emplace(reader.tensors_[i].name, i);
  }
  return reader;
}

const SafetensorsEntry* SafetensorsReader::Find(absl::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

absl::Status SafetensorsReader::ReadAt(uint64_t offset,
                                       absl::Span<char> out) const {
  const absl::Status status = file_->ReadAt(offset, out);
  if (status.code() != absl::StatusCode::kOutOfRange) return status;
  return absl::DataLossError(absl::StrCat(
      path_, ": the file had ", file_bytes_,
      " bytes when it was opened and is shorter now; restore it and start "
      "again"));
}

absl::Status SafetensorsReader::ReadBytes(const SafetensorsEntry& entry,
                                          absl::Span<char> out) const {
  if (out.size() != entry.end - entry.begin) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": tensor \"", entry.name, "\" has ",
                     entry.end - entry.begin, " bytes, not ", out.size()));
  }
  return ReadAt(data_start_ + entry.begin, out);
}

absl::Status SafetensorsReader::ReadFloats(const SafetensorsEntry& entry,
                                           absl::Span<float> out) const {
  Codec codec = Codec::kFp32;
  if (entry.dtype == "F16") {
    codec = Codec::kFp16;
  } else if (entry.dtype == "BF16") {
    codec = Codec::kBf16;
  } else if (entry.dtype != "F32") {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": tensor \"", entry.name, "\" is ", entry.dtype,
                     "; weights are read from F32, F16 or BF16"));
  }
  if (out.size() != entry.elements) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": tensor \"", entry.name, "\" has ",
                     entry.elements, " values, not ", out.size()));
  }
  std::vector<char> buffer(
      EncodedBytes(codec, std::min(out.size(), kChunkElements)));
  uint64_t offset = data_start_ + entry.begin;
  while (!out.empty()) {
    const size_t count = std::min(out.size(), kChunkElements);
    const absl::Span<char> bytes =
        absl::MakeSpan(buffer).first(EncodedBytes(codec, count));
    RETURN_IF_ERROR(ReadAt(offset, bytes));
    Decode(codec, bytes, out.first(count));
    offset += bytes.size();
    out.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status WriteSafetensors(FileSystem* fs, const std::string& path,
                              std::vector<SafetensorsTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return a.name < b.name;
            });
  std::string header = R"({"__metadata__":{"format":"pt"})";
  uint64_t end = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const uint64_t begin = end;
    end += EncodedBytes(Codec::kFp32, tensor.values.size());
    absl::StrAppend(&header, ",", nlohmann::json(tensor.name).dump(),
                    R"(:{"dtype":"F32","shape":[)",
                    absl::StrJoin(tensor.shape, ","), R"(],"data_offsets":[)",
                    begin, ",", end, "]}");
  }
  header += '}';
  // Aligns the data for readers that map the file.
  while (header.size() % 8 != 0) header += ' ';

  std::string prefix;
  AppendLe64(header.size(), &prefix);
  prefix += header;
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                   fs->OpenForWrite(path));
  RETURN_IF_ERROR(file->Truncate(0));
  RETURN_IF_ERROR(file->Reserve(prefix.size() + end));
  RETURN_IF_ERROR(file->WriteAt(0, prefix));
  uint64_t offset = prefix.size();
  std::vector<char> buffer;
  for (const SafetensorsTensor& tensor : tensors) {
    absl::Span<const float> values = tensor.values;
    while (!values.empty()) {
      const size_t count = std::min(values.size(), kChunkElements);
      buffer.resize(EncodedBytes(Codec::kFp32, count));
      Encode(Codec::kFp32, values.first(count), absl::MakeSpan(buffer));
      RETURN_IF_ERROR(file->WriteAt(
          offset, absl::string_view(buffer.data(), buffer.size())));
      offset += buffer.size();
      values.remove_prefix(count);
    }
  }
  return file->Sync();
}

}  // namespace diloco
