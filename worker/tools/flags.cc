// Implements flags.h.
#include "worker/tools/flags.h"

#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/edit_distance.h"
#include "common/base/logging.h"

namespace diloco {

int ExitCodeOfTool(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
      return kExitUsage;
    case absl::StatusCode::kResourceExhausted:
      return kExitTemporary;
    default:
      return kExitFailed;
  }
}

Flags::Flags(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)) {}

void Flags::Text(const char* name, std::string* value, const char* help) {
  flags_.push_back({Kind::kText, name, value, help});
}
void Flags::Count(const char* name, uint64_t* value, const char* help,
                  uint64_t min, uint64_t max) {
  flags_.push_back({Kind::kCount, name, value, help, min, max});
}
void Flags::Real(const char* name, double* value, const char* help) {
  flags_.push_back({Kind::kReal, name, value, help});
}
void Flags::Switch(const char* name, bool* value, const char* help) {
  flags_.push_back({Kind::kSwitch, name, value, help});
}

void Flags::Require(const char* name) {
  Flag* flag = Find(name);
  DILOCO_CHECK(flag != nullptr && flag->kind == Kind::kText) << name;
  flag->required = true;
}

Flags::Flag* Flags::Find(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

bool Flags::WasSet(absl::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return flag.set;
  }
  return false;
}

std::optional<int> Flags::Parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      PrintHelp();
      return kExitOk;
    }
  }
  const std::string error = ParseAll(argc, argv);
  if (error.empty()) return std::nullopt;
  absl::FPrintF(stderr, "%s: %s (--help lists the flags)\n", command_, error);
  return kExitUsage;
}

std::string Flags::ParseAll(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (!absl::ConsumePrefix(&argument, "--")) {
      return absl::StrCat("\"", argument, "\" is not a flag");
    }
    const size_t equals = argument.find('=');
    const absl::string_view name = argument.substr(0, equals);
    Flag* flag = Find(name);
    if (flag == nullptr) {
      return absl::StrCat("no flag --", name, NearestTo(name));
    }
    absl::string_view value = "true";
    if (equals != absl::string_view::npos) {
      value = argument.substr(equals + 1);
    } else if (flag->kind != Kind::kSwitch) {
      if (i + 1 == argc) return absl::StrCat("--", name, " needs a value");
      value = argv[++i];
    }
    const std::string error = Store(*flag, value);
    if (!error.empty()) return error;
    flag->set = true;
  }
  for (const Flag& flag : flags_) {
    if (flag.required && !flag.set) {
      return absl::StrCat("--", flag.name, " is missing: ", flag.help);
    }
  }
  return "";
}

std::string Flags::Store(Flag& flag, absl::string_view text) {
  bool good = true;
  const char* expected = "";
  switch (flag.kind) {
    case Kind::kText:
      static_cast<std::string*>(flag.value)->assign(text.data(), text.size());
      break;
    case Kind::kCount: {
      uint64_t& value = *static_cast<uint64_t*>(flag.value);
      expected = "a whole number from 0";
      good = absl::SimpleAtoi(text, &value);
      if (good && (value < flag.min || value > flag.max)) {
        return absl::StrCat("--", flag.name, " is ", value, ", expected ",
                            flag.min, " to ", flag.max);
      }
      break;
    }
    case Kind::kReal:
      expected = "a number";
      good = absl::SimpleAtod(text, static_cast<double*>(flag.value));
      break;
    case Kind::kSwitch:
      expected = "true or false";
      good = text == "true" || text == "false";
      *static_cast<bool*>(flag.value) = text == "true";
      break;
  }
  if (good) return "";
  return absl::StrCat("--", flag.name, ": \"", text, "\" is not ", expected);
}

std::string Flags::NearestTo(absl::string_view name) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string nearest = NearestName(name, names);
  return nearest.empty() ? "" : absl::StrCat(", did you mean --", nearest);
}

void Flags::PrintHelp() const {
  absl::PrintF("diloco-worker %s: %s\n\n", command_, summary_);
  for (const Flag& flag : flags_) {
    std::string shown;
    switch (flag.kind) {
      case Kind::kText:
        shown = *static_cast<const std::string*>(flag.value);
        break;
      case Kind::kCount:
        shown = absl::StrCat(*static_cast<const uint64_t*>(flag.value));
        break;
      case Kind::kReal:
        shown = absl::StrCat(*static_cast<const double*>(flag.value));
        break;
      case Kind::kSwitch:
        shown = *static_cast<const bool*>(flag.value) ? "true" : "false";
        break;
    }
    const std::string note =
        flag.required ? "required" : absl::StrCat("default: ", shown);
    absl::PrintF(
        "  --%-18s %s%s\n", flag.name, flag.help,
        shown.empty() && !flag.required ? "" : absl::StrCat(" (", note, ")"));
  }
}

}  // namespace diloco
