#include "common/model/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

// Real tensors have a handful; the bound keeps messages and loops short.
constexpr size_t kMaxRank = 64;
constexpr char kMetadata[] = "__metadata__";

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

// Follows the only shape a header may have:
//   { NAME: {"dtype": TEXT, "shape": [N..], "data_offsets": [N, N]} ..,
//     "__metadata__": {TEXT: TEXT ..} }
// Every callback returns false to stop with error_ set.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;
  std::string error;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(absl::StrCat("the number ", text));
  }
  bool number_integer(number_integer_t value) override {
    return Unexpected(absl::StrCat("the number ", value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) return Unexpected(absl::StrCat("the number ", value));
    if (list_->size() >= kMaxRank) {
      return Fail(
          absl::StrCat(field_, " has more than ", kMaxRank, " numbers"));
    }
    list_->push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      header.metadata[field_] = value;
      return true;
    }
    if (depth_ == 2 && field_ == "dtype" && list_ == nullptr) {
      entry_.dtype = value;
      return true;
    }
    return Unexpected(absl::StrCat("the text \"", Short(value), "\""));
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool start_object(size_t) override {
    if (depth_ == 2 || list_ != nullptr) return Unexpected("an object");
    ++depth_;
    keys_.clear();
    return true;
  }
  bool key(string_t& value) override {
    std::set<std::string>& seen = depth_ == 1 ? names_ : keys_;
    if (!seen.insert(value).second) {
      return Fail(absl::StrCat("duplicate key \"", Short(value), "\""));
    }
    if (depth_ == 1) {
      name_ = value;
      in_metadata_ = value == kMetadata;
      entry_ = SafetensorsEntry{};
      entry_.name = value;
      offsets_.clear();
      field_.clear();
      return true;
    }
    field_ = value;
    if (!in_metadata_ && value != "dtype" && value != "shape" &&
        value != "data_offsets") {
      return Fail(absl::StrCat("unknown key \"", Short(value), "\""));
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ != 1) return true;
    if (in_metadata_) {
      name_.clear();
      return true;
    }
    for (const char* required : {"dtype", "shape", "data_offsets"}) {
      if (keys_.count(required) == 0) {
        return Fail(absl::StrCat("\"", required, "\" is missing"));
      }
    }
    if (offsets_.size() != 2) {
      return Fail(absl::StrCat("data_offsets has ", offsets_.size(),
                               " numbers, not 2"));
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header.tensors.push_back(std::move(entry_));
    name_.clear();
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || list_ != nullptr) {
      return Unexpected("a list");
    }
    if (field_ == "shape") {
      list_ = &entry_.shape;
    } else if (field_ == "data_offsets") {
      list_ = &offsets_;
    } else {
      return Unexpected("a list");
    }
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error = absl::StrCat("the header is not valid JSON in UTF-8 at byte ",
                         position, " of it");
    return false;
  }

 private:
  static std::string Short(const std::string& text) {
    return text.size() <= 80 ? text : absl::StrCat(text.substr(0, 80), "...");
  }
  bool Fail(std::string message) {
    error = name_.empty() ? std::move(message)
            : in_metadata_
                ? absl::StrCat(kMetadata, ": ", message)
                : absl::StrCat("tensor \"", Short(name_), "\": ", message);
    return false;
  }
  bool Unexpected(const std::string& what) {
    if (depth_ == 0) return Fail("the header is no JSON object");
    if (depth_ == 1)
      return Fail(absl::StrCat("expected an object, got ", what));
    if (in_metadata_) {
      return Fail(
          absl::StrCat("\"", Short(field_), "\" must be a text, got ", what));
    }
    return Fail(absl::StrCat(field_,
                             field_ == "dtype"
                                 ? " must be a text, got "
                                 : " must be a list of whole numbers, got ",
                             what));
  }

  int depth_ = 0;
  std::string name_;   // Key at depth 1; empty between tensors.
  std::string field_;  // Key at depth 2.
  bool in_metadata_ = false;
  std::set<std::string> names_, keys_;
  SafetensorsEntry entry_;
  std::vector<uint64_t> offsets_;
  std::vector<uint64_t>* list_ = nullptr;
};

// Shape, dtype and byte range of one tensor against each other.
absl::Status CheckEntry(SafetensorsEntry& entry) {
  const auto fail = [&](const std::string& message) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", entry.name, "\": ", message));
  };
  const uint32_t bits = SafetensorsDtypeBits(entry.dtype);
  if (bits == 0) {
    return fail(absl::StrCat("unknown dtype \"", entry.dtype, "\""));
  }
  uint64_t elements = 1;
  uint64_t total_bits = 0;
  bool overflow = false;
  for (uint64_t dimension : entry.shape) {
    overflow |= __builtin_mul_overflow(elements, dimension, &elements);
  }
  overflow |= __builtin_mul_overflow(elements, uint64_t{bits}, &total_bits);
  if (overflow) {
    return fail(absl::StrCat("shape ", ShapeText(entry.shape), " of ",
                             entry.dtype, " overflows 64 bits"));
  }
  if (total_bits % 8 != 0) {
    return fail(absl::StrCat("shape ", ShapeText(entry.shape), " of ",
                             entry.dtype, " is no whole number of bytes"));
  }
  if (entry.begin > entry.end || entry.end - entry.begin != total_bits / 8) {
    return fail(absl::StrCat(
        "shape ", ShapeText(entry.shape), " of ", entry.dtype, " needs ",
        total_bits / 8, " bytes, data_offsets [", entry.begin, ",", entry.end,
        "] give ",
        entry.begin > entry.end ? std::string("a negative number")
                                : absl::StrCat(entry.end - entry.begin)));
  }
  entry.elements = elements;
  return absl::OkStatus();
}

}  // namespace

uint32_t SafetensorsDtypeBits(absl::string_view dtype) {
  static constexpr struct {
    absl::string_view name;
    uint32_t bits;
  } kDtypes[] = {
      {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6},
      {"U8", 8},      {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},        {"BF16", 16},       {"I32", 32},
      {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},
      {"I64", 64},    {"U64", 64}};
  for (const auto& known : kDtypes) {
    if (known.name == dtype) return known.bits;
  }
  return 0;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t data_bytes) {
  if (json.empty() || json[0] != '{') {
    return absl::InvalidArgumentError("the header does not begin with '{'");
  }
  // The JSON reader would take a zero byte for the end of its input.
  if (const size_t zero = json.find('\0'); zero != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header has a zero byte at ", zero));
  }
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler)) {
    return absl::InvalidArgumentError(handler.error);
  }
  SafetensorsHeader header = std::move(handler.header);
  for (SafetensorsEntry& entry : header.tensors) {
    RETURN_IF_ERROR(CheckEntry(entry));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) <
                     std::tie(b.begin, b.end, b.name);
            });
  uint64_t next = 0;
  for (const SafetensorsEntry& entry : header.tensors) {
    if (entry.begin != next) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", entry.name, "\" begins at data byte ", entry.begin,
          entry.begin < next ? ", inside the tensor before it, which ends at "
                             : ", but the tensor before it ends at ",
          next));
    }
    next = entry.end;
  }
  if (next != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the tensors need ", next, " bytes of data, the file has ", data_bytes,
        next > data_bytes ? ": it is cut short" : ": there are extra bytes"));
  }
  return header;
}

}  // namespace diloco
