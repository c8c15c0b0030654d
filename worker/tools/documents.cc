// Implements documents.h.
#include "worker/tools/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "worker/data/tokenizer.h"

namespace diloco {
namespace {

constexpr uint64_t kReadBytes = 1 << 20;

// The "text" of one JSON line, or why there is none. Messages of the JSON
// library quote the text, so they are not passed on.
absl::StatusOr<std::string> TextOfJson(const std::string& line) {
  if (const std::optional<size_t> bad = FindInvalidUtf8(line)) {
    return absl::InvalidArgumentError(
        absl::StrCat("invalid UTF-8 at byte ", *bad));
  }
  const nlohmann::json json =
      nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError("not one JSON object");
  }
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a JSON ", json.type_name(), ", expected an object"));
  }
  const auto text = json.find("text");
  if (text == json.end()) return absl::InvalidArgumentError("missing key text");
  if (!text->is_string()) {
    return absl::InvalidArgumentError("text: not a string");
  }
  std::string value = text->get<std::string>();
  if (value.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("text: NUL character");
  }
  return value;
}

}  // namespace

DocumentForm FormOf(const std::string& path, bool document_per_line) {
  if (absl::EndsWith(path, ".jsonl")) return DocumentForm::kJsonLines;
  return document_per_line ? DocumentForm::kLines : DocumentForm::kParagraphs;
}

absl::StatusOr<DocumentReader> DocumentReader::Open(FileSystem* fs,
                                                    const std::string& path,
                                                    DocumentForm form) {
  DocumentReader reader;
  reader.path_ = path;
  reader.form_ = form;
  ASSIGN_OR_RETURN(reader.file_, fs->OpenForRead(path));
  ASSIGN_OR_RETURN(reader.file_bytes_, reader.file_->Size());
  return reader;
}

absl::Status DocumentReader::Error(const std::string& reason) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ":", line_, ": ", reason));
}

absl::StatusOr<bool> DocumentReader::NextLine(std::string* line) {
  line->clear();
  ++line_;
  while (true) {
    const size_t end = buffer_.find('\n', buffer_at_);
    const bool found = end != std::string::npos;
    const size_t stop = found ? end : buffer_.size();
    line->append(buffer_, buffer_at_, stop - buffer_at_);
    buffer_at_ = found ? end + 1 : stop;
    if (line->size() > kMaxDocumentBytes) {
      return Error(
          absl::StrCat("line longer than ", kMaxDocumentBytes, " bytes"));
    }
    if (found) break;
    if (next_offset_ == file_bytes_) {
      if (line->empty()) return false;
      break;
    }
    const uint64_t bytes = std::min(kReadBytes, file_bytes_ - next_offset_);
    buffer_.resize(bytes);
    RETURN_IF_ERROR(file_->ReadAt(
        next_offset_, absl::MakeSpan(buffer_.data(), buffer_.size())));
    next_offset_ += bytes;
    buffer_at_ = 0;
  }
  if (absl::EndsWith(*line, "\r")) line->pop_back();
  if (line_ == 1 && absl::StartsWith(*line, "\xEF\xBB\xBF")) line->erase(0, 3);
  return true;
}

absl::StatusOr<bool> DocumentReader::Next(std::string* text) {
  text->clear();
  std::string line;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, NextLine(&line));
    if (!more) return !text->empty();
    if (absl::StripAsciiWhitespace(line).empty()) {
      if (text->empty()) continue;
      return true;
    }
    if (form_ == DocumentForm::kJsonLines) {
      absl::StatusOr<std::string> value = TextOfJson(line);
      if (!value.ok()) return Error(std::string(value.status().message()));
      if (value->empty()) continue;
      *text = *std::move(value);
      return true;
    }
    if (!text->empty()) text->push_back('\n');
    text->append(line);
    if (form_ == DocumentForm::kLines) return true;
    if (text->size() > kMaxDocumentBytes) {
      return Error(absl::StrCat("document longer than ", kMaxDocumentBytes,
                                " bytes; blank lines separate documents"));
    }
  }
}

}  // namespace diloco
