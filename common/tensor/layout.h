// The one order of all parameters: worker memory, wire, spool, fold tile,
// image and checkpoint share it. Fragment-major; inside a fragment the decayed
// tensors come first; each tensor starts at a multiple of kAlignElements, and
// the padding between tensors is zero. So a fragment is one contiguous range
// [first, first + elements), and its decayed part is a prefix of it.
//
// Immutable after BuildLayout; thread-safe.
#ifndef COMMON_TENSOR_LAYOUT_H_
#define COMMON_TENSOR_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/digest.h"

namespace diloco {

// Every tensor starts at a multiple of this (the largest codec block).
inline constexpr int64_t kAlignElements = 256;

enum class TensorClass { kEmbedding, kMatrix, kVector, kHead };

// A tensor as the model declares it; names are those of the Hugging Face
// checkpoint.
struct TensorDecl {
  std::string name;
  std::vector<int64_t> shape;
  TensorClass tensor_class = TensorClass::kMatrix;
  bool decayed = true;  // Weight decay applies (tensors of two dimensions).
  int fragment = 0;
};

struct TensorSpec {
  TensorDecl decl;
  int64_t offset = 0;    // In elements, from the start of the flat buffer.
  int64_t elements = 0;  // Without padding.
};

struct FragmentSpec {
  int64_t first = 0;             // In elements.
  int64_t elements = 0;          // With padding; a multiple of kAlignElements.
  int64_t decayed_elements = 0;  // The prefix that decays, padding included.
};

struct Layout {
  std::vector<TensorSpec> tensors;  // In buffer order.
  std::vector<FragmentSpec> fragments;
  int64_t elements = 0;    // Of the flat buffer, padding included.
  int64_t parameters = 0;  // Without padding.

  // nullptr when there is no tensor of that name.
  const TensorSpec* Find(absl::string_view name) const;
  // The tensor and its row-major index at a flat element, for error messages:
  // "model.norm.weight[17]" or "padding after NAME".
  std::string Describe(int64_t element) const;
  // Over names, shapes, classes, decay, fragments and offsets.
  Digest ComputeDigest() const;
};

// INVALID_ARGUMENT for a duplicate name, an empty or overflowing shape, or a
// fragment without tensors. Within a fragment and decay group the order of
// `tensors` is kept.
absl::StatusOr<Layout> BuildLayout(const std::vector<TensorDecl>& tensors,
                                   int fragments);

}  // namespace diloco

#endif  // COMMON_TENSOR_LAYOUT_H_
