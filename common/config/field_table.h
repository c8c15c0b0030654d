// A file's keys as a table of Fields: reading checks a document against it and
// reports everything at once; printing gives the effective values back. The
// run file and the worker's file are one table each.
//
//   FieldTable table;
//   table.Add({.path = "outer.lr", .value = Real(&lr, {0, 10}),
//              .doc = "Outer learning rate.", .change = Change::kBoundary});
//   ConfigErrors errors("run.yaml");
//   Node root;
//   if (ParseDocument(text, &errors, &root)) table.Read(root, &errors);
#ifndef COMMON_CONFIG_FIELD_TABLE_H_
#define COMMON_CONFIG_FIELD_TABLE_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/config/document.h"
#include "common/config/values.h"

namespace diloco {

// When a key may change in a run that exists.
enum class Change {
  kFixed,     // Never: it is part of the run's identity.
  kBoundary,  // At a round boundary, recorded in the journal.
  kAtOnce,    // At any time, recorded in the journal: it judges what comes next
              // and no window is trained with it.
  kLocal,     // At any restart: it belongs to this machine, not to the run.
};

struct Field {
  std::string path;  // "section.key", any depth.
  Value value;
  std::string doc = "";  // One sentence.
  Change change = Change::kFixed;
  bool required = false;
  // Accepted and checked, but this build does nothing with it: a warning.
  bool no_effect = false;
};

// Not thread-safe; lives as long as the variables its Values are bound to.
class FieldTable {
 public:
  void Add(Field field);
  // A known key or section that must not stand in this file, and why.
  void Refuse(std::string path, std::string reason);

  // Reads one field quietly, for values that others' defaults depend on.
  void ReadAhead(const Node& root, absl::string_view path) const;
  // Gives the field a value written as in a file; "" or what is wrong with it.
  std::string Assign(absl::string_view path, absl::string_view text);
  // Null for a name that is no key.
  const Field* Find(absl::string_view path) const;
  // Reads all fields. Errors: unknown, refused, blank, wrong, missing keys.
  // Afterwards the document's keys are known to IsSet and Where.
  void Read(const Node& root, ConfigErrors* errors);

  bool IsSet(absl::string_view path) const;
  // Of the key if it is set, else of the nearest section around it.
  Position Where(absl::string_view path) const;
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Adds "file:line:col: path: message" to the warnings.
  void Warn(const ConfigErrors& file, absl::string_view path,
            absl::string_view message);

  // Block YAML of all fields that `keep` accepts, in the order of Add.
  std::string Print(
      const std::function<bool(const Field&)>& keep = nullptr) const;
  const std::vector<Field>& fields() const { return fields_; }

 private:
  void ReadSection(const Node& map, const std::string& prefix,
                   ConfigErrors* errors);
  void ReadField(const Field& field, const Node::Entry& entry,
                 ConfigErrors* errors);
  std::string UnknownKey(const std::string& key,
                         const std::string& prefix) const;

  std::vector<Field> fields_;
  std::set<std::string> sections_;
  std::map<std::string, std::string> refused_;
  std::map<std::string, Position> set_;  // Keys and sections of the document.
  std::vector<std::string> warnings_;
};

}  // namespace diloco

#endif  // COMMON_CONFIG_FIELD_TABLE_H_
