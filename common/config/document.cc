#include "common/config/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/config/encoding.h"

namespace diloco {
namespace {

// Deeper nesting has no use in a config file and costs stack.
constexpr size_t kMaxDepth = 16;

// Nobody reads on; the first ones often cause the rest.
constexpr size_t kMaxReported = 20;

// yaml-cpp counts from 0.
Position FromMark(const YAML::Mark& mark) {
  if (mark.is_null()) return {};
  return {mark.line + 1, mark.column + 1};
}

// The usual slips, seen from the line where the reader stumbled.
std::string Hint(absl::string_view line) {
  const absl::string_view text = absl::StripAsciiWhitespace(line);
  if (text.size() > 1 && text[0] == '-' && text[1] != ' ' && text[1] != '-') {
    return "; put a space after '-'";
  }
  size_t end = 0;
  while (end < text.size() && (absl::ascii_isalnum(text[end]) ||
                               text[end] == '_' || text[end] == '.')) {
    ++end;
  }
  if (end > 0 && end + 1 < text.size() && text[end] == ':' &&
      text[end + 1] != ' ') {
    return "; put a space after ':'";
  }
  return "";
}

// Ends the parse from inside the handler when going on makes no sense.
struct TooDeep {
  Position position;
};

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::vector<absl::string_view>& lines, ConfigErrors* errors)
      : lines_(lines), errors_(errors) {}

  std::optional<Node> root;
  Position document_start;

  void OnDocumentStart(const YAML::Mark& mark) override {
    document_start = FromMark(mark);
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(FromMark(mark), anchor);
    Node node;
    node.position = FromMark(mark);
    Take(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    errors_->Add(FromMark(mark), "",
                 "aliases (*name) are not allowed; write the value out");
    Node node;
    node.position = FromMark(mark);
    node.kind = Node::Kind::kScalar;
    Take(std::move(node));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag,
                YAML::anchor_t anchor, const std::string& value) override {
    RefuseAnchor(FromMark(mark), anchor);
    RefuseTag(FromMark(mark), tag);
    Node node;
    node.kind = Node::Kind::kScalar;
    node.position = FromMark(mark);
    if (tag == "!" && !QuoteCloses(node.position)) {
      errors_->Add(node.position, "",
                   "the quote that begins here is never closed");
    }
    node.text = value;
    node.quoted = tag == "!";
    Take(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Node::Kind::kList, FromMark(mark), tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag,
                  YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    Open(Node::Kind::kMap, FromMark(mark), tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Frame {
    Node node;
    std::optional<Node::Entry> entry;  // Key read, value to come.
    bool skip_value = false;           // The key was refused.
    std::map<std::string, Position> keys;
  };

  void RefuseAnchor(Position position, YAML::anchor_t anchor) {
    if (anchor == 0) return;
    errors_->Add(position, "",
                 "anchors (&name) are not allowed; write the value out");
  }

  void RefuseTag(Position position, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    errors_->Add(position, "",
                 absl::StrCat("tag ", tag, " is not allowed; remove it"));
  }

  void Open(Node::Kind kind, Position position, const std::string& tag,
            YAML::anchor_t anchor) {
    RefuseAnchor(position, anchor);
    RefuseTag(position, tag);
    if (stack_.size() >= kMaxDepth) throw TooDeep{position};
    Frame frame;
    frame.node.kind = kind;
    frame.node.position = position;
    stack_.push_back(std::move(frame));
  }

  void Close() {
    Node node = std::move(stack_.back().node);
    stack_.pop_back();
    Take(std::move(node));
  }

  void Take(Node node) {
    if (stack_.empty()) {
      root = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.node.kind == Node::Kind::kList) {
      frame.node.items.push_back(std::move(node));
    } else if (!frame.entry.has_value()) {
      TakeKey(frame, node);
    } else {
      if (!frame.skip_value) {
        frame.entry->bare =
            node.kind == Node::Kind::kNull && !ColonFollows(*frame.entry);
        frame.entry->value = std::move(node);
        frame.node.entries.push_back(*std::move(frame.entry));
      }
      frame.entry.reset();
    }
  }

  void TakeKey(Frame& frame, const Node& node) {
    frame.entry.emplace();
    frame.entry->position = node.position;
    frame.skip_value = true;
    if (node.kind != Node::Kind::kScalar) {
      errors_->Add(node.position, "", "a key must be a word");
      return;
    }
    frame.entry->key = node.text;
    if (node.text == "<<" && !node.quoted) {
      errors_->Add(node.position, "",
                   "merge keys (<<) are not allowed; write the keys out");
      return;
    }
    const auto [known, fresh] = frame.keys.emplace(node.text, node.position);
    if (!fresh) {
      errors_->Add(
          node.position, "",
          absl::StrCat("duplicate key \"", node.text, "\": first on line ",
                       known->second.line, ", again on line ",
                       node.position.line, "; keep one"));
      return;
    }
    frame.skip_value = false;
  }

  // Whether the source has a ':' behind a key that got no value.
  bool ColonFollows(const Node::Entry& entry) const {
    const size_t line = entry.position.line - 1;
    if (entry.position.line < 1 || line >= lines_.size()) return true;
    const size_t from = entry.position.column - 1 + entry.key.size();
    if (from > lines_[line].size()) return true;
    return lines_[line].find(':', from) != absl::string_view::npos;
  }

  // Whether a quoted text that begins here ends before the file does: yaml-cpp
  // takes the end of the file for the missing quote.
  bool QuoteCloses(Position position) const {
    size_t line = static_cast<size_t>(position.line) - 1;
    if (position.line < 1 || line >= lines_.size()) return true;
    size_t at = static_cast<size_t>(position.column) - 1;
    if (at >= lines_[line].size()) return true;
    const char quote = lines_[line][at++];
    if (quote != '"' && quote != '\'') return true;  // Block text.
    for (; line < lines_.size(); ++line, at = 0) {
      for (; at < lines_[line].size(); ++at) {
        if (lines_[line][at] == quote) return true;
        if (quote == '"' && lines_[line][at] == '\\') ++at;
      }
    }
    return false;
  }

  const std::vector<absl::string_view>& lines_;
  ConfigErrors* const errors_;
  std::vector<Frame> stack_;
};

}  // namespace

const Node::Entry* Node::Find(absl::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

void ConfigErrors::Add(Position position, absl::string_view path,
                       absl::string_view message) {
  errors_.push_back({position, std::string(path),
                     absl::StrReplaceAll(message, {{"\n", " "}})});
}

std::vector<std::string> ConfigErrors::Lines() const {
  std::vector<Error> sorted = errors_;
  std::stable_sort(
      sorted.begin(), sorted.end(),
      [](const Error& a, const Error& b) { return a.position < b.position; });
  std::vector<std::string> lines;
  std::set<std::string> known;
  size_t more = 0;
  for (const Error& error : sorted) {
    // A missing key has no position of its own.
    const int line = std::max(error.position.line, 1);
    const int column = std::max(error.position.column, 1);
    std::string text =
        absl::StrCat(file_, ":", line, ":", column, ": ", error.path,
                     error.path.empty() ? "" : ": ", error.message);
    if (!known.insert(text).second) continue;
    if (lines.size() < kMaxReported) {
      lines.push_back(std::move(text));
    } else {
      ++more;
    }
  }
  if (more > 0) {
    lines.push_back(absl::StrCat(file_, ": and ", more,
                                 more == 1 ? " error" : " errors",
                                 " more; mend these first"));
  }
  return lines;
}

std::string ConfigErrors::Words() const {
  return absl::StrJoin(errors_, "; ", [](std::string* out, const Error& error) {
    absl::StrAppend(out, error.path, error.path.empty() ? "" : ": ",
                    error.message);
  });
}

absl::Status ConfigErrors::ToStatus() const {
  if (errors_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(Lines(), "\n"));
}

bool ParseDocument(absl::string_view bytes, ConfigErrors* errors, Node* root) {
  *root = Node{};
  root->kind = Node::Kind::kMap;
  root->position = {1, 1};
  std::string text;
  if (!NormaliseEncoding(bytes, errors, &text)) return false;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const auto line_at = [&](int line) {
    return line >= 1 && line <= static_cast<int>(lines.size())
               ? lines[line - 1]
               : absl::string_view();
  };

  // yaml-cpp drops them without a word.
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!absl::StartsWith(lines[i], "%")) continue;
    errors->Add({static_cast<int>(i) + 1, 1}, "",
                "a line that begins with '%' is a YAML directive, which is not "
                "allowed; remove it (a comment begins with '#')");
    return false;
  }

  TreeBuilder builder(lines, errors);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder))
      return true;  // Nothing but blanks.
    std::optional<Node> first = std::move(builder.root);
    // yaml-cpp stops at the end of what it understood as the first document.
    TreeBuilder rest(lines, errors);
    bool more = false;
    try {
      more = parser.HandleNextDocument(rest);
    } catch (const YAML::ParserException& e) {
      rest.document_start = FromMark(e.mark);
      more = true;
    }
    if (more) {
      const absl::string_view line = line_at(rest.document_start.line);
      const bool marked =
          absl::StartsWith(line, "---") || absl::StartsWith(line, "...");
      errors->Add(rest.document_start, "",
                  marked ? "a second document begins here; a config file has "
                           "exactly one"
                         : absl::StrCat("this line belongs to nothing before "
                                        "it; check its indentation",
                                        Hint(line)));
      return false;
    }
    if (!first.has_value() || first->kind == Node::Kind::kNull) return true;
    *root = *std::move(first);
  } catch (const YAML::ParserException& e) {
    const Position position = FromMark(e.mark);
    std::string hint = Hint(line_at(position.line));
    // A value swallowed the line before: the slip is there.
    if (hint.empty()) hint = Hint(line_at(position.line - 1));
    errors->Add(position, "", absl::StrCat(e.msg, hint));
    return false;
  } catch (const YAML::Exception& e) {
    errors->Add(FromMark(e.mark), "", e.msg);
    return false;
  } catch (const TooDeep& deep) {
    errors->Add(deep.position, "", "nested too deeply");
    return false;
  }
  if (root->kind != Node::Kind::kMap) {
    errors->Add(root->position, "",
                absl::StrCat("expected \"key: value\" lines at the top level",
                             Hint(line_at(root->position.line))));
    return false;
  }
  return true;
}

absl::StatusOr<std::string> ReadConfigFile(FileSystem* fs,
                                           const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(fs, path, kMaxConfigBytes);
  if (text.ok()) return text;
  return WithContext(text.status(), absl::StrCat("config file ", path));
}

}  // namespace diloco
