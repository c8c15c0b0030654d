#include "common/model/fragments.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

absl::Status OutOfRange(const Fragmentation& of, int64_t least, int64_t most,
                        absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the pattern ", FragmentPatternName(of.pattern), " cannot make ",
      of.count, " fragments of this model: ", why, "; expected ",
      least == most ? absl::StrCat(least)
                    : absl::StrCat("from ", least, " to ", most)));
}

// Of "model.layers.7.mlp.up_proj.weight": 7.
std::optional<int64_t> LayerOf(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "model.layers.")) return std::nullopt;
  int64_t layer = 0;
  if (!absl::SimpleAtoi(name.substr(0, name.find('.')), &layer)) {
    return std::nullopt;
  }
  return layer;
}

int64_t CountLayers(const std::vector<TensorDecl>& tensors) {
  int64_t layers = 0;
  for (const TensorDecl& tensor : tensors) {
    layers = std::max(layers, LayerOf(tensor.name).value_or(-1) + 1);
  }
  return layers;
}

absl::Status AssignSequential(const Fragmentation& of,
                              std::vector<TensorDecl>& tensors) {
  const int64_t layers = CountLayers(tensors);
  if (of.count > layers) {
    return OutOfRange(of, 1, layers,
                      absl::StrCat("it has ", layers, " layers"));
  }
  for (TensorDecl& tensor : tensors) {
    const std::optional<int64_t> layer = LayerOf(tensor.name);
    if (layer.has_value()) {
      tensor.fragment = static_cast<int>(*layer * of.count / layers);
    } else {
      tensor.fragment = tensor.tensor_class == TensorClass::kEmbedding
                            ? 0
                            : static_cast<int>(of.count) - 1;
    }
  }
  return absl::OkStatus();
}

absl::Status AssignStrided(const Fragmentation& of,
                           std::vector<TensorDecl>& tensors) {
  const int64_t layers = CountLayers(tensors);
  if (of.count < 2 || of.count > layers + 1) {
    return OutOfRange(of, 2, layers + 1,
                      absl::StrCat("it has ", layers,
                                   " layers, and embedding, head and final "
                                   "norm have a fragment of their own"));
  }
  const int own = static_cast<int>(of.count) - 1;
  for (TensorDecl& tensor : tensors) {
    const std::optional<int64_t> layer = LayerOf(tensor.name);
    tensor.fragment = layer.has_value() ? static_cast<int>(*layer % own) : own;
  }
  return absl::OkStatus();
}

absl::Status AssignBalanced(const Fragmentation& of,
                            std::vector<TensorDecl>& tensors) {
  if (of.count > tensors.size()) {
    return OutOfRange(of, 1, static_cast<int64_t>(tensors.size()),
                      absl::StrCat("it has ", tensors.size(), " tensors"));
  }
  // As they lie in the buffer: a small tensor takes a whole block.
  ASSIGN_OR_RETURN(const Layout whole, BuildLayout(tensors, 1));
  const auto size = [&](size_t i) {
    const int64_t elements = whole.Find(tensors[i].name)->elements;
    return (elements + kAlignElements - 1) / kAlignElements;
  };
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size(a) > size(b); });
  std::vector<int64_t> filled(of.count, 0);
  for (const size_t i : order) {
    const auto least = std::min_element(filled.begin(), filled.end());
    tensors[i].fragment = static_cast<int>(least - filled.begin());
    *least += size(i);
  }
  return absl::OkStatus();
}

bool Matches(absl::string_view pattern, absl::string_view name) {
  // Where the last "*" stood, and how much of the name it has taken.
  size_t star = absl::string_view::npos;
  size_t taken = 0;
  size_t p = 0;
  size_t n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::Status AssignByName(const Fragmentation& of,
                          std::vector<TensorDecl>& tensors) {
  if (of.count != of.names.size()) {
    return OutOfRange(of, static_cast<int64_t>(of.names.size()),
                      static_cast<int64_t>(of.names.size()),
                      "there is one list item for each fragment");
  }
  std::vector<bool> used(of.count, false);
  for (TensorDecl& tensor : tensors) {
    const auto item = std::find_if(
        of.names.begin(), of.names.end(), [&](const std::string& alternatives) {
          for (absl::string_view one : absl::StrSplit(alternatives, '|')) {
            if (Matches(one, tensor.name)) return true;
          }
          return false;
        });
    if (item == of.names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no pattern matches the tensor ", tensor.name,
                       "; a last one \"*\" takes what is left"));
    }
    tensor.fragment = static_cast<int>(item - of.names.begin());
    used[tensor.fragment] = true;
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the pattern \"", of.names[i], "\" of fragment ", i,
                     " gets no tensor that an earlier one has not"));
  }
  return absl::OkStatus();
}

}  // namespace

const char* FragmentPatternName(FragmentPattern pattern) {
  switch (pattern) {
    case FragmentPattern::kWhole:
      return "whole";
    case FragmentPattern::kSequential:
      return "sequential";
    case FragmentPattern::kStrided:
      return "strided";
    case FragmentPattern::kBalanced:
      return "balanced";
    case FragmentPattern::kNames:
      return "names";
  }
  return "unknown";
}

absl::StatusOr<std::vector<TensorDecl>> AssignFragments(
    std::vector<TensorDecl> tensors, const Fragmentation& fragmentation) {
  switch (fragmentation.pattern) {
    case FragmentPattern::kWhole:
      if (fragmentation.count != 1) {
        return OutOfRange(fragmentation, 1, 1, "whole is one fragment");
      }
      break;
    case FragmentPattern::kSequential:
      RETURN_IF_ERROR(AssignSequential(fragmentation, tensors));
      break;
    case FragmentPattern::kStrided:
      RETURN_IF_ERROR(AssignStrided(fragmentation, tensors));
      break;
    case FragmentPattern::kBalanced:
      RETURN_IF_ERROR(AssignBalanced(fragmentation, tensors));
      break;
    case FragmentPattern::kNames:
      RETURN_IF_ERROR(AssignByName(fragmentation, tensors));
      break;
  }
  return tensors;
}

absl::StatusOr<Layout> ModelLayout(const ModelConfig& model,
                                   const Fragmentation& fragmentation) {
  if (fragmentation.count == 0) {
    return absl::InvalidArgumentError("a run has at least one fragment");
  }
  ASSIGN_OR_RETURN(const std::vector<TensorDecl> tensors,
                   AssignFragments(ModelTensors(model), fragmentation));
  return BuildLayout(tensors, static_cast<int>(fragmentation.count));
}

uint32_t FirstDueStep(uint32_t fragment, uint32_t fragments,
                      uint32_t interval) {
  const uint32_t offset =
      static_cast<uint32_t>(uint64_t{fragment} * interval / fragments);
  return offset == 0 ? interval : offset;
}

}  // namespace diloco
