#include "common/config/field_table.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/edit_distance.h"
#include "common/base/logging.h"

namespace diloco {
namespace {

std::string Join(const std::string& prefix, absl::string_view key) {
  return prefix.empty() ? std::string(key) : absl::StrCat(prefix, ".", key);
}

absl::string_view LastPart(absl::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos ? path : path.substr(dot + 1);
}

// The key directly below `prefix` on the way to `path`; "" when there is none.
absl::string_view ChildBelow(absl::string_view path,
                             const std::string& prefix) {
  if (!prefix.empty()) {
    if (!absl::ConsumePrefix(&path, prefix) ||
        !absl::ConsumePrefix(&path, ".")) {
      return "";
    }
  }
  return path.substr(0, path.find('.'));
}

}  // namespace

void FieldTable::Add(Field field) {
  DILOCO_CHECK(Find(field.path) == nullptr) << field.path << " twice";
  for (size_t dot = field.path.find('.'); dot != std::string::npos;
       dot = field.path.find('.', dot + 1)) {
    sections_.insert(field.path.substr(0, dot));
  }
  fields_.push_back(std::move(field));
}

void FieldTable::Refuse(std::string path, std::string reason) {
  refused_.emplace(std::move(path), std::move(reason));
}

const Field* FieldTable::Find(absl::string_view path) const {
  for (const Field& field : fields_) {
    if (field.path == path) return &field;
  }
  return nullptr;
}

void FieldTable::ReadAhead(const Node& root, absl::string_view path) const {
  const Field* field = Find(path);
  DILOCO_CHECK(field != nullptr) << path;
  const Node* node = &root;
  for (absl::string_view part : absl::StrSplit(path, '.')) {
    const Node::Entry* entry = node->Find(part);
    if (entry == nullptr) return;
    node = &entry->value;
  }
  // What is wrong with it is reported by Read.
  if (node->kind != Node::Kind::kNull) field->value.read(*node);
}

std::string FieldTable::Assign(absl::string_view path, absl::string_view text) {
  const Field* field = Find(path);
  DILOCO_CHECK(field != nullptr) << path;
  ConfigErrors errors("");
  Node root;
  if (!ParseDocument(absl::StrCat("value: ", text), &errors, &root) ||
      !errors.empty() || root.entries.size() != 1 ||
      root.entries[0].value.kind == Node::Kind::kNull) {
    return absl::StrCat("got ", QuoteText(text), "; expected ",
                        field->value.expected);
  }
  const Node& node = root.entries[0].value;
  const std::string problem = field->value.read(node);
  if (!problem.empty()) {
    return absl::StrCat("got ", DescribeNode(node), ": ", problem,
                        "; expected ", field->value.expected);
  }
  set_.emplace(path, Position{1, 1});
  return "";
}

void FieldTable::Read(const Node& root, ConfigErrors* errors) {
  set_.clear();
  warnings_.clear();
  if (root.entries.empty()) {
    const auto first =
        std::find_if(fields_.begin(), fields_.end(),
                     [](const Field& field) { return field.required; });
    errors->Add({1, 1}, "",
                absl::StrCat("the file has no keys",
                             first == fields_.end()
                                 ? ""
                                 : absl::StrCat("; the first required one is ",
                                                first->path)));
  }
  ReadSection(root, "", errors);
  for (const Field& field : fields_) {
    if (!field.required || IsSet(field.path)) continue;
    errors->Add(Where(field.path), field.path,
                absl::StrCat("required key is missing; expected ",
                             field.value.expected));
  }
}

void FieldTable::ReadSection(const Node& map, const std::string& prefix,
                             ConfigErrors* errors) {
  for (const Node::Entry& entry : map.entries) {
    const std::string path = Join(prefix, entry.key);
    if (const auto refused = refused_.find(path); refused != refused_.end()) {
      errors->Add(entry.position, path, refused->second);
      continue;
    }
    if (const Field* field = Find(path)) {
      set_.emplace(path, entry.position);
      ReadField(*field, entry, errors);
      continue;
    }
    if (sections_.count(path) == 0) {
      std::string message = UnknownKey(entry.key, prefix);
      if (entry.key.find(':') != std::string::npos) {
        message += "; put a space after ':'";
      } else if (entry.bare) {
        message += "; write it as \"key: value\"";
      }
      errors->Add(entry.position, path, message);
      continue;
    }
    set_.emplace(path, entry.position);
    if (entry.value.kind == Node::Kind::kMap) {
      ReadSection(entry.value, path, errors);
      continue;
    }
    const bool colon = entry.value.kind == Node::Kind::kScalar &&
                       entry.value.text.find(':') != std::string::npos;
    errors->Add(entry.value.kind == Node::Kind::kNull ? entry.position
                                                      : entry.value.position,
                path,
                absl::StrCat("got ", DescribeNode(entry.value),
                             "; expected keys below it",
                             colon ? "; put a space after ':'" : ""));
  }
}

void FieldTable::ReadField(const Field& field, const Node::Entry& entry,
                           ConfigErrors* errors) {
  const Node& node = entry.value;
  if (node.kind == Node::Kind::kNull) {
    errors->Add(entry.position, field.path,
                absl::StrCat(entry.bare ? "got a bare word" : "got no value",
                             "; expected ", field.value.expected));
    return;
  }
  const std::string problem = field.value.read(node);
  if (!problem.empty()) {
    errors->Add(node.position, field.path,
                absl::StrCat("got ", DescribeNode(node), ": ", problem,
                             "; expected ", field.value.expected));
    return;
  }
  if (field.no_effect) {
    Warn(*errors, field.path, "set, but it has no effect in this build");
  }
}

std::string FieldTable::UnknownKey(const std::string& key,
                                   const std::string& prefix) const {
  // The same name in another section is what was meant, most likely.
  std::vector<std::string> elsewhere;
  std::string nearest;
  int distance = 0;
  // No longer than any that could be near.
  const absl::string_view start = absl::string_view(key).substr(0, 64);
  for (const Field& field : fields_) {
    if (LastPart(field.path) == key) elsewhere.push_back(field.path);
    const std::string sibling(ChildBelow(field.path, prefix));
    if (sibling.empty()) continue;
    const int d = EditDistance(start, sibling);
    if (nearest.empty() || d < distance) {
      nearest = sibling;
      distance = d;
    }
  }
  if (!elsewhere.empty()) {
    return absl::StrCat("unknown key; did you mean ",
                        absl::StrJoin(elsewhere, " or "), "?");
  }
  return absl::StrCat("unknown key; the nearest known one is ",
                      Join(prefix, nearest));
}

bool FieldTable::IsSet(absl::string_view path) const {
  return set_.count(std::string(path)) > 0;
}

Position FieldTable::Where(absl::string_view path) const {
  std::string key(path);
  while (true) {
    if (const auto it = set_.find(key); it != set_.end()) return it->second;
    const size_t dot = key.rfind('.');
    if (dot == std::string::npos) return {1, 1};
    key.resize(dot);
  }
}

void FieldTable::Warn(const ConfigErrors& file, absl::string_view path,
                      absl::string_view message) {
  const Position position = Where(path);
  warnings_.push_back(absl::StrCat(file.file(), ":", position.line, ":",
                                   position.column, ": ", path, ": ", message));
}

std::string FieldTable::Print(
    const std::function<bool(const Field&)>& keep) const {
  std::string out;
  std::vector<std::string> open;  // Sections around the line before.
  for (const Field& field : fields_) {
    if (keep && !keep(field)) continue;
    std::vector<std::string> parts = absl::StrSplit(field.path, '.');
    size_t common = 0;
    while (common < open.size() && common + 1 < parts.size() &&
           open[common] == parts[common]) {
      ++common;
    }
    open.resize(common);
    for (; open.size() + 1 < parts.size(); open.push_back(parts[open.size()])) {
      absl::StrAppend(&out, std::string(2 * open.size(), ' '),
                      parts[open.size()], ":\n");
    }
    absl::StrAppend(&out, std::string(2 * open.size(), ' '), parts.back(), ": ",
                    field.value.print(), "\n");
  }
  return out;
}

}  // namespace diloco
