// A YAML file as a checked tree with positions. The only code that sees
// yaml-cpp, whose laxness and exceptions end here: duplicate keys, anchors,
// aliases, merge keys, tags, directives, several documents, tabs as indentation
// and anything but UTF-8 are errors with a position. Used through FieldTable.
#ifndef COMMON_CONFIG_DOCUMENT_H_
#define COMMON_CONFIG_DOCUMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/file_system.h"

namespace diloco {

// Larger files are refused unread.
inline constexpr uint64_t kMaxConfigBytes = 1 << 20;

// Both count from 1; columns count bytes. 0: no position.
struct Position {
  int line = 0;
  int column = 0;

  friend auto operator<=>(const Position&, const Position&) = default;
};

struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry;

  Kind kind = Kind::kNull;
  Position position;
  std::string text;     // Of a scalar.
  bool quoted = false;  // Quoted or block text: never a number or a word.
  std::vector<Node> items;
  std::vector<Entry> entries;  // In file order, names unique.

  // nullptr when this is no map or has no such key.
  const Entry* Find(absl::string_view key) const;
};

struct Node::Entry {
  std::string key;
  Position position;
  // The key stands without ':' (YAML gives it no value).
  bool bare = false;
  Node value;
};

// Everything that is wrong with one file.
class ConfigErrors {
 public:
  explicit ConfigErrors(std::string file) : file_(std::move(file)) {}

  // `path` may be empty. Line breaks in the message become spaces.
  void Add(Position position, absl::string_view path,
           absl::string_view message);
  bool empty() const { return errors_.empty(); }
  const std::string& file() const { return file_; }
  // "file:line:col: path: message", ordered by position, each once. Of very
  // many the first, and a line that counts the others.
  std::vector<std::string> Lines() const;
  // "path: message", without positions; for values that come from no file.
  std::string Words() const;
  // OK when empty, else INVALID_ARGUMENT with all lines.
  absl::Status ToStatus() const;

 private:
  struct Error {
    Position position;
    std::string path;
    std::string message;
  };
  const std::string file_;
  std::vector<Error> errors_;
};

// Parses a text into a map. What is wrong goes to `errors`; after a
// duplicate key or the like the tree is still whole (the first one counts), so
// that the caller can report the other errors too. False when there is no tree
// to go on with. An empty text is an empty map.
bool ParseDocument(absl::string_view text, ConfigErrors* errors, Node* root);

// The text of a config file; NOT_FOUND and the like become messages that name
// the file and say what to do.
absl::StatusOr<std::string> ReadConfigFile(FileSystem* fs,
                                           const std::string& path);

}  // namespace diloco

#endif  // COMMON_CONFIG_DOCUMENT_H_
