// Reads the documents of a text or JSON-lines file, one at a time in bounded
// memory. Used by tokenize and train-tokenizer.
#ifndef WORKER_TOOLS_DOCUMENTS_H_
#define WORKER_TOOLS_DOCUMENTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/file_system.h"

namespace diloco {

enum class DocumentForm {
  kParagraphs,  // Separated by blank lines.
  kLines,       // One a line.
  kJsonLines,   // {"text": "..."} a line.
};

// Longer lines and documents are refused.
inline constexpr uint64_t kMaxDocumentBytes = 256 << 20;

// A byte order mark at the start, CRLF, blank lines and a missing last newline
// are accepted. One thread.
class DocumentReader {
 public:
  static absl::StatusOr<DocumentReader> Open(FileSystem* fs,
                                             const std::string& path,
                                             DocumentForm form);

  // True with the next document in `text`, never empty; false at the end.
  // INVALID_ARGUMENT "file:line: reason", without the text itself. Lines of
  // text need not be UTF-8; those of JSON must be.
  absl::StatusOr<bool> Next(std::string* text);
  // Of the last line read, from 1.
  uint64_t line() const { return line_; }

 private:
  DocumentReader() = default;
  // The next line without its end; false at the end of the file.
  absl::StatusOr<bool> NextLine(std::string* line);
  absl::Status Error(const std::string& reason) const;

  std::string path_;
  DocumentForm form_ = DocumentForm::kParagraphs;
  std::unique_ptr<ReadableFile> file_;
  uint64_t file_bytes_ = 0;
  uint64_t next_offset_ = 0;  // Of the file, behind `buffer_`.
  std::string buffer_;
  size_t buffer_at_ = 0;
  uint64_t line_ = 0;
};

// kJsonLines for a path that ends in .jsonl; otherwise by the flag.
DocumentForm FormOf(const std::string& path, bool document_per_line);

}  // namespace diloco

#endif  // WORKER_TOOLS_DOCUMENTS_H_
