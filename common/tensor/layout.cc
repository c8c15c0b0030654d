// Places the tensors of a model in the flat buffer.
#include "common/tensor/layout.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace diloco {
namespace {

// Far above any model, and small enough that byte counts never overflow.
constexpr int64_t kMaxElements = int64_t{1} << 48;

int64_t RoundUp(int64_t elements) {
  return (elements + kAlignElements - 1) / kAlignElements * kAlignElements;
}

// Elements of the tensor, or an error.
absl::StatusOr<int64_t> CountElements(const TensorDecl& decl) {
  int64_t elements = decl.shape.empty() ? 0 : 1;
  for (int64_t size : decl.shape) {
    if (size <= 0 || elements > kMaxElements / size) {
      elements = 0;
      break;
    }
    elements *= size;
  }
  if (elements == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", decl.name, " has shape [", absl::StrJoin(decl.shape, ", "),
        "]: expected one or more dimensions of at least 1 with at most 2^48 "
        "elements in all"));
  }
  return elements;
}

void PutU64(std::string* out, uint64_t value) {
  for (int i = 0; i < 8; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

}  // namespace

const TensorSpec* Layout::Find(absl::string_view name) const {
  for (const TensorSpec& tensor : tensors) {
    if (tensor.decl.name == name) return &tensor;
  }
  return nullptr;
}

std::string Layout::Describe(int64_t element) const {
  const auto after = std::upper_bound(
      tensors.begin(), tensors.end(), element,
      [](int64_t e, const TensorSpec& tensor) { return e < tensor.offset; });
  if (element < 0 || element >= elements || after == tensors.begin()) {
    return absl::StrCat("element ", element, " outside the model's ", elements);
  }
  const TensorSpec& tensor = *(after - 1);
  const int64_t index = element - tensor.offset;
  return index < tensor.elements
             ? absl::StrCat(tensor.decl.name, "[", index, "]")
             : absl::StrCat("padding after ", tensor.decl.name);
}

Digest Layout::ComputeDigest() const {
  std::string text = "DILOLAYT";
  PutU64(&text, kAlignElements);
  PutU64(&text, fragments.size());
  PutU64(&text, tensors.size());
  for (const TensorSpec& tensor : tensors) {
    PutU64(&text, tensor.decl.name.size());
    text += tensor.decl.name;
    PutU64(&text, tensor.decl.shape.size());
    for (int64_t size : tensor.decl.shape) PutU64(&text, size);
    PutU64(&text, static_cast<uint64_t>(tensor.decl.tensor_class));
    PutU64(&text, tensor.decl.decayed ? 1 : 0);
    PutU64(&text, tensor.decl.fragment);
    PutU64(&text, tensor.offset);
  }
  return Sha256(text);
}

absl::StatusOr<Layout> BuildLayout(const std::vector<TensorDecl>& tensors,
                                   int fragments) {
  std::set<std::string> names;
  for (const TensorDecl& decl : tensors) {
    if (!names.insert(decl.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", decl.name, " is declared twice"));
    }
    if (decl.fragment < 0 || decl.fragment >= fragments) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", decl.name, " is in fragment ", decl.fragment,
                       " of ", fragments));
    }
  }
  Layout layout;
  for (int fragment = 0; fragment < fragments; ++fragment) {
    FragmentSpec range;
    range.first = layout.elements;
    for (const bool decayed : {true, false}) {
      for (const TensorDecl& decl : tensors) {
        if (decl.fragment != fragment || decl.decayed != decayed) continue;
        auto count = CountElements(decl);
        if (!count.ok()) return count.status();
        layout.tensors.push_back({decl, layout.elements, *count});
        layout.parameters += *count;
        layout.elements += RoundUp(*count);
        if (layout.elements > kMaxElements) {
          return absl::InvalidArgumentError(absl::StrCat(
              "the model has more than 2^48 elements at tensor ", decl.name));
        }
      }
      if (decayed) range.decayed_elements = layout.elements - range.first;
    }
    range.elements = layout.elements - range.first;
    if (range.elements == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "fragment ", fragment, " of ", fragments,
          " has no tensors: use fewer fragments (at most one per tensor)"));
    }
    layout.fragments.push_back(range);
  }
  if (layout.fragments.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a layout needs at least one fragment, not ", fragments));
  }
  return layout;
}

}  // namespace diloco
