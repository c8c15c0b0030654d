#include "common/config/values.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/ids.h"
#include "common/config/numbers.h"

namespace diloco {
namespace {

// Why a node cannot be a number, "" when it can.
std::string NotPlain(const Node& node, absl::string_view what) {
  switch (node.kind) {
    case Node::Kind::kScalar:
      break;
    case Node::Kind::kMap:
      return "it is a map";
    case Node::Kind::kList:
      return "it is a list";
    case Node::Kind::kNull:
      return "it is blank";
  }
  if (node.quoted) {
    return absl::StrCat("quoted text is not ", what, "; remove the quotes");
  }
  return "";
}

std::string QuotedList(const std::vector<std::string>& texts) {
  return absl::StrCat(
      "[",
      absl::StrJoin(texts, ", ",
                    [](std::string* out, const std::string& text) {
                      *out += QuoteText(text);
                    }),
      "]");
}

std::string NotText(const Node& node) {
  if (node.kind == Node::Kind::kMap) return "it is a map";
  if (node.kind == Node::Kind::kList) return "it is a list";
  if (node.kind == Node::Kind::kNull ||
      absl::StripAsciiWhitespace(node.text).empty()) {
    return "it is blank";
  }
  // By an escape in quotes; the system would cut a path at a NUL.
  if (std::any_of(node.text.begin(), node.text.end(),
                  [](char c) { return absl::ascii_iscntrl(c); })) {
    return "it contains a control character";
  }
  return "";
}

std::string CheckReal(const Node& node, RealBounds bounds, double* value) {
  std::string problem = NotPlain(node, "a number");
  if (problem.empty()) problem = ParseReal(node.text, value);
  if (!problem.empty()) return problem;
  if (*value < bounds.min || *value > bounds.max ||
      (bounds.above_min && *value == bounds.min)) {
    return "it is out of bounds";
  }
  return "";
}

// Bounds in messages read better without a trailing ".0".
std::string ShortReal(double value) {
  std::string text = PrintReal(value);
  if (absl::EndsWith(text, ".0")) text.resize(text.size() - 2);
  return text;
}

std::string DescribeBounds(RealBounds bounds) {
  return bounds.above_min ? absl::StrCat("above ", ShortReal(bounds.min),
                                         " and up to ", ShortReal(bounds.max))
                          : absl::StrCat("from ", ShortReal(bounds.min), " to ",
                                         ShortReal(bounds.max));
}

template <typename T>
Value CountOf(T* target, T min, T max) {
  Value value;
  value.expected = absl::StrCat("a whole number from ", min, " to ", max);
  value.read = [target, min, max](const Node& node) -> std::string {
    std::string problem = NotPlain(node, "a number");
    uint64_t parsed = 0;
    if (problem.empty()) problem = ParseCount(node.text, &parsed);
    if (!problem.empty()) return problem;
    if (parsed < static_cast<uint64_t>(min) ||
        parsed > static_cast<uint64_t>(max)) {
      return "it is out of bounds";
    }
    *target = static_cast<T>(parsed);
    return "";
  };
  value.print = [target] { return absl::StrCat(*target); };
  return value;
}

std::string CheckDuration(const Node& node, absl::Duration min,
                          absl::Duration max, absl::Duration* value) {
  std::string problem = NotPlain(node, "a duration");
  if (problem.empty()) problem = ParseDurationWithUnit(node.text, value);
  if (!problem.empty()) return problem;
  if (*value < min || *value > max) return "it is out of bounds";
  return "";
}

bool IsWord(const Node& node, absl::string_view word) {
  return node.kind == Node::Kind::kScalar && node.text == word;
}

std::string Resolve(const std::string& base, const std::string& path) {
  if (absl::StartsWith(path, "/") || base.empty() || base == ".") return path;
  return path == "." ? base : JoinPath(base, path);
}

}  // namespace

std::string HostPortProblem(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return "the port is missing";
  const absl::string_view host = text.substr(0, colon);
  const absl::string_view port = text.substr(colon + 1);
  const bool bracketed =
      host.size() > 1 && host.front() == '[' && host.back() == ']';
  if (host.empty()) return "the host is missing";
  if (bracketed) {
    // A zone, as in fe80::1%eth0, is not for inet_pton.
    const absl::string_view address = host.substr(1, host.size() - 2);
    in6_addr parsed;
    if (inet_pton(AF_INET6,
                  std::string(address.substr(0, address.find('%'))).c_str(),
                  &parsed) != 1) {
      return "there is no IPv6 address in the brackets";
    }
  } else if (host.find_first_of("[]") != absl::string_view::npos) {
    return "brackets go around the whole host";
  }
  if (!bracketed && host.find(':') != absl::string_view::npos) {
    return "write an IPv6 address in brackets";
  }
  if (host.find_first_of(" /\t") != absl::string_view::npos) {
    return "the host contains a blank or '/'";
  }
  uint64_t number = 0;
  if (std::string problem = ParseCount(port, &number); !problem.empty()) {
    return absl::StrCat("the port: ", problem);
  }
  if (number > 65535 || !absl::ascii_isdigit(port.back())) {
    return "the port is out of bounds";
  }
  return "";
}

Value Real(double* target, RealBounds bounds) {
  Value value;
  value.expected = absl::StrCat("a number ", DescribeBounds(bounds));
  value.read = [target, bounds](const Node& node) {
    double parsed = 0;
    std::string problem = CheckReal(node, bounds, &parsed);
    if (problem.empty()) *target = parsed;
    return problem;
  };
  value.print = [target] { return PrintReal(*target); };
  return value;
}

Value RealList(std::vector<double*> targets, RealBounds bounds) {
  Value value;
  value.expected = absl::StrCat("a list of ", targets.size(), " numbers ",
                                DescribeBounds(bounds));
  value.read = [targets, bounds](const Node& node) -> std::string {
    if (node.kind != Node::Kind::kList) return "it is no list";
    if (node.items.size() != targets.size()) {
      return absl::StrCat("it has ", node.items.size());
    }
    std::vector<double> parsed(targets.size());
    for (size_t i = 0; i < targets.size(); ++i) {
      std::string problem = CheckReal(node.items[i], bounds, &parsed[i]);
      if (!problem.empty()) {
        return absl::StrCat("item ", i + 1, " is ", DescribeNode(node.items[i]),
                            ": ", problem);
      }
    }
    for (size_t i = 0; i < targets.size(); ++i) *targets[i] = parsed[i];
    return "";
  };
  value.print = [targets] {
    std::vector<std::string> items;
    for (const double* target : targets) items.push_back(PrintReal(*target));
    return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
  };
  return value;
}

Value Count(uint64_t* target, uint64_t min, uint64_t max) {
  return CountOf(target, min, max);
}
Value Count(uint32_t* target, uint32_t min, uint32_t max) {
  return CountOf(target, min, max);
}
Value Count(int64_t* target, int64_t min, int64_t max) {
  return CountOf(target, min, max);
}

Value Rounds(uint32_t* target, uint32_t max) {
  Value value;
  value.expected = absl::StrCat("\"N rounds\" with N from 1 to ", max);
  value.read = [target, max](const Node& node) -> std::string {
    std::string problem = NotPlain(node, "a number of rounds");
    if (!problem.empty()) return problem;
    absl::string_view text = node.text;
    const size_t blank = text.find(' ');
    const absl::string_view unit =
        blank == absl::string_view::npos
            ? absl::string_view()
            : absl::StripLeadingAsciiWhitespace(text.substr(blank));
    uint64_t parsed = 0;
    problem = ParseCount(text.substr(0, blank), &parsed);
    if (!problem.empty()) return problem;
    if (unit.empty()) return "it needs the unit \"rounds\"";
    if (unit != "round" && unit != "rounds") {
      return absl::StrCat("\"", unit, "\" is not \"rounds\"");
    }
    if (parsed < 1 || parsed > max) return "it is out of bounds";
    *target = static_cast<uint32_t>(parsed);
    return "";
  };
  value.print = [target] {
    return absl::StrCat(*target, *target == 1 ? " round" : " rounds");
  };
  return value;
}

Value ByteRate(uint64_t* target, uint64_t min) {
  Value value;
  value.expected =
      absl::StrCat("a rate from ", PrintBytes(min), "/s, such as 10MiB/s");
  value.read = [target, min](const Node& node) -> std::string {
    std::string problem = NotPlain(node, "a rate");
    if (!problem.empty()) return problem;
    absl::string_view text = node.text;
    if (!absl::ConsumeSuffix(&text, "/s")) {
      return "it needs a unit per second (MiB/s)";
    }
    uint64_t parsed = 0;
    problem = ParseBytes(text, &parsed);
    if (problem.empty() && parsed < min) return "it is out of bounds";
    if (problem.empty()) *target = parsed;
    return problem;
  };
  value.print = [target] { return absl::StrCat(PrintBytes(*target), "/s"); };
  return value;
}

Value Bytes(uint64_t* target) {
  Value value;
  value.expected = "a size such as 10GB, or 0";
  value.read = [target](const Node& node) -> std::string {
    std::string problem = NotPlain(node, "a size");
    if (!problem.empty()) return problem;
    if (node.text == "0") {
      *target = 0;
      return "";
    }
    uint64_t parsed = 0;
    problem = ParseBytes(node.text, &parsed);
    if (problem.empty()) *target = parsed;
    return problem;
  };
  value.print = [target] { return PrintBytes(*target); };
  return value;
}

Value Duration(absl::Duration* target, absl::Duration min, absl::Duration max) {
  Value value;
  value.expected = absl::StrCat("a duration from ", PrintDuration(min), " to ",
                                PrintDuration(max));
  value.read = [=](const Node& node) {
    absl::Duration parsed;
    std::string problem = CheckDuration(node, min, max, &parsed);
    if (problem.empty()) *target = parsed;
    return problem;
  };
  value.print = [target] { return PrintDuration(*target); };
  return value;
}

Value DurationOrAuto(std::optional<absl::Duration>* target, absl::Duration min,
                     absl::Duration max) {
  Value inner;
  inner.expected = absl::StrCat("a duration from ", PrintDuration(min), " to ",
                                PrintDuration(max));
  inner.read = [=](const Node& node) {
    absl::Duration parsed;
    std::string problem = CheckDuration(node, min, max, &parsed);
    if (problem.empty()) *target = parsed;
    return problem;
  };
  inner.print = [target] { return PrintDuration(target->value()); };
  return OrWord(
      std::move(inner), "auto", [target] { return !target->has_value(); },
      [target] { target->reset(); });
}

Value Bool(bool* target) {
  Value value;
  value.expected = "true or false";
  value.read = [target](const Node& node) -> std::string {
    std::string problem = NotPlain(node, "true or false");
    if (!problem.empty()) return problem;
    if (node.text != "true" && node.text != "false") return "it is neither";
    *target = node.text == "true";
    return "";
  };
  value.print = [target]() -> std::string {
    return *target ? "true" : "false";
  };
  return value;
}

Value Text(std::string* target, std::string expected,
           std::function<std::string(absl::string_view)> problem) {
  Value value;
  value.expected = std::move(expected);
  value.read = [target, check = std::move(problem)](const Node& node) {
    std::string problem = NotText(node);
    if (problem.empty() && check) problem = check(node.text);
    if (problem.empty()) *target = node.text;
    return problem;
  };
  value.print = [target] { return QuoteText(*target); };
  return value;
}

Value Name(std::string* target) {
  return Text(target,
              "a name: 1 to 63 of a-z, 0-9, '-', '_', '.', beginning with a "
              "letter or digit",
              [](absl::string_view text) -> std::string {
                // What other programs write for "no value".
                if (text == "null" || text == "none") {
                  return "that word means no name";
                }
                return ValidateName("name", text).ok() ? ""
                                                       : "it is no such name";
              });
}

Value MetricsAddress(std::string* target) {
  return Text(target, "an IPv4 HOST:PORT with a port from 0 to 65535",
              [](absl::string_view text) {
                std::string problem = HostPortProblem(text);
                if (problem.empty() && absl::StartsWith(text, "[")) {
                  problem = "metrics are served over IPv4 only";
                }
                return problem;
              });
}

Value HostPort(std::string* target) {
  return Text(target, "HOST:PORT with a port from 0 to 65535", HostPortProblem);
}

Value Path(std::string* target, std::string base) {
  Value value = Text(target, "a path");
  value.read = [target, base = std::move(base)](const Node& node) {
    std::string problem = NotText(node);
    if (problem.empty()) *target = Resolve(base, node.text);
    return problem;
  };
  return value;
}

Value OrPercent(Value inner, double* share, std::function<void()> clear) {
  Value value;
  value.expected = absl::StrCat(inner.expected, ", or a share up to 100%");
  value.read = [inner, share, clear](const Node& node) -> std::string {
    absl::string_view text = node.text;
    if (node.kind != Node::Kind::kScalar || !absl::ConsumeSuffix(&text, "%")) {
      std::string problem = inner.read(node);
      if (problem.empty()) *share = 0;
      return problem;
    }
    double percent = 0;
    if (std::string problem = ParseReal(text, &percent); !problem.empty()) {
      return problem;
    }
    if (!(percent > 0 && percent <= 100)) return "it is out of bounds";
    clear();
    *share = percent / 100;
    return "";
  };
  value.print = [inner, share] {
    return *share > 0 ? absl::StrCat(100 * *share, "%") : inner.print();
  };
  return value;
}

Value TextList(std::vector<std::string>* target) {
  Value value;
  value.expected = "a list of texts";
  value.read = [target](const Node& node) -> std::string {
    if (node.kind != Node::Kind::kList) return "it is no list";
    if (node.items.empty()) return "the list is empty";
    std::vector<std::string> texts;
    for (size_t i = 0; i < node.items.size(); ++i) {
      if (std::string problem = NotText(node.items[i]); !problem.empty()) {
        return absl::StrCat("item ", i + 1, ": ", problem);
      }
      texts.push_back(node.items[i].text);
    }
    *target = std::move(texts);
    return "";
  };
  value.print = [target] { return QuotedList(*target); };
  return value;
}

Value PathList(std::vector<std::string>* target, std::string base) {
  Value value;
  value.expected = "a path or a list of paths";
  value.read = [target,
                base = std::move(base)](const Node& node) -> std::string {
    std::vector<std::string> paths;
    if (node.kind != Node::Kind::kList) {
      if (std::string problem = NotText(node); !problem.empty()) return problem;
      paths.push_back(Resolve(base, node.text));
    }
    for (size_t i = 0; i < node.items.size(); ++i) {
      const Node& item = node.items[i];
      if (std::string problem = NotText(item); !problem.empty()) {
        return absl::StrCat("item ", i + 1, ": ", problem);
      }
      paths.push_back(Resolve(base, item.text));
    }
    if (paths.empty()) return "the list is empty";
    *target = std::move(paths);
    return "";
  };
  value.print = [target] { return QuotedList(*target); };
  return value;
}

Value OrWord(Value inner, std::string word, std::function<bool()> is,
             std::function<void()> set) {
  Value value;
  value.expected = absl::StrCat(inner.expected, ", or ", word);
  value.read = [read = std::move(inner.read), word,
                set = std::move(set)](const Node& node) -> std::string {
    if (!IsWord(node, word)) return read(node);
    set();
    return "";
  };
  value.print = [print = std::move(inner.print), word, is = std::move(is)] {
    return is() ? word : print();
  };
  return value;
}

Value NotYet(Value inner, std::vector<std::string> words) {
  inner.read = [read = std::move(inner.read),
                words = std::move(words)](const Node& node) -> std::string {
    for (const std::string& word : words) {
      if (IsWord(node, word)) return "it is not available yet in this build";
    }
    return read(node);
  };
  return inner;
}

std::string QuoteText(absl::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", absl::string_view(&c, 1));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

std::string DescribeNode(const Node& node) {
  constexpr size_t kShown = 40;
  switch (node.kind) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kMap:
      return "a map";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kScalar:
      break;
  }
  std::string shown = node.text;
  if (shown.size() > kShown) {
    size_t cut = kShown;
    // Not inside a UTF-8 sequence.
    while (cut > 0 && (static_cast<unsigned char>(shown[cut]) & 0xC0) == 0x80) {
      --cut;
    }
    shown = absl::StrCat(shown.substr(0, cut), "...");
  }
  return node.quoted ? QuoteText(shown) : shown;
}

}  // namespace diloco
