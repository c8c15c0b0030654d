// The types a config value can have: how a YAML node becomes a C++ value and
// back, and in words what is accepted. Each function binds to a variable that
// outlives the Value; the variable's content at binding time is the default.
// Used to fill FieldTables.
//
//   table.Add({.path = "outer.lr", .value = Real(&outer.lr, {0, 10})});
#ifndef COMMON_CONFIG_VALUES_H_
#define COMMON_CONFIG_VALUES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/config/document.h"

namespace diloco {

struct Value {
  // What is accepted, in words: "a number from 0 to 1".
  std::string expected;
  // Sets the variable and returns "", or says what is wrong with the node and
  // leaves the variable alone. The node is not null.
  std::function<std::string(const Node&)> read;
  // The variable as YAML on one line.
  std::function<std::string()> print;
};

struct RealBounds {
  double min = 0;
  double max = 0;
  bool above_min = false;  // min itself is excluded.
};
Value Real(double* target, RealBounds bounds);
// A list of as many numbers as there are targets, all within the bounds.
Value RealList(std::vector<double*> targets, RealBounds bounds);

// Whole numbers, with k, M, G, T as powers of 1000.
Value Count(uint64_t* target, uint64_t min, uint64_t max);
Value Count(uint32_t* target, uint32_t min, uint32_t max);
Value Count(int64_t* target, int64_t min, int64_t max);

// "N rounds"; the unit is required.
Value Rounds(uint32_t* target, uint32_t max);

Value ByteRate(uint64_t* target, uint64_t min);  // 10MiB/s
Value Bytes(uint64_t* target);                   // 10GB, 0
Value Duration(absl::Duration* target, absl::Duration min, absl::Duration max);
// `auto` is absent.
Value DurationOrAuto(std::optional<absl::Duration>* target, absl::Duration min,
                     absl::Duration max);

// A HOST:PORT that the metrics server can listen on.
Value MetricsAddress(std::string* target);

Value Bool(bool* target);

// `inner`, or a share of something as "90%": whichever is read sets the other
// to none, `share` to 0 or the rest by `clear`.
Value OrPercent(Value inner, double* share, std::function<void()> clear);

// Text that `problem` finds nothing wrong with ("" is fine). Blank text is
// always refused.
Value Text(std::string* target, std::string expected,
           std::function<std::string(absl::string_view)> problem = nullptr);
// Names of runs and workers (ids.h); never "null".
Value Name(std::string* target);
// HOST:PORT or [IPV6]:PORT.
Value HostPort(std::string* target);
// Why a text is no such address, "" when it is one. Also for flags.
std::string HostPortProblem(absl::string_view text);
// A path; a relative one is joined to `base`, the file's directory.
Value Path(std::string* target, std::string base);
// One path or a list of them, likewise.
Value PathList(std::vector<std::string>* target, std::string base);

// A list of texts, none of them blank.
Value TextList(std::vector<std::string>* target);

// One of the named values.
template <typename T>
Value Choice(T* target, std::vector<std::pair<std::string, T>> choices) {
  std::vector<std::string> names;
  for (const auto& choice : choices) names.push_back(choice.first);
  Value value;
  value.expected = names.size() == 1
                       ? names[0]
                       : absl::StrCat("one of ", absl::StrJoin(names, ", "));
  value.read = [target, choices](const Node& node) -> std::string {
    for (const auto& [name, chosen] : choices) {
      if (node.kind == Node::Kind::kScalar && node.text == name) {
        *target = chosen;
        return "";
      }
    }
    return "it is none of them";
  };
  value.print = [target, choices]() -> std::string {
    for (const auto& [name, chosen] : choices) {
      if (chosen == *target) return name;
    }
    return "unknown";
  };
  return value;
}

// `inner`, or a word that stands for "not set": `none`, `auto`, `never`. `is`
// says whether the variable is in that state, `set` puts it there.
Value OrWord(Value inner, std::string word, std::function<bool()> is,
             std::function<void()> set);
// The same for a variable whose empty state is meant.
template <typename Container>
Value OrNone(Value inner, Container* target) {
  return OrWord(
      std::move(inner), "none", [target] { return target->empty(); },
      [target] { target->clear(); });
}

// `inner`, but these words get an answer that says they come later.
Value NotYet(Value inner, std::vector<std::string> words);

// A text in double quotes, as YAML and JSON read it.
std::string QuoteText(absl::string_view text);
// A node as it is shown in messages, short.
std::string DescribeNode(const Node& node);

}  // namespace diloco

#endif  // COMMON_CONFIG_VALUES_H_
