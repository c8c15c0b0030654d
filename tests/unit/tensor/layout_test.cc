// The order of parameters in the flat buffer.
#include "common/tensor/layout.h"

#include "absl/strings/match.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

std::vector<TensorDecl> SmallModel() {
  return {{"embed", {10, 30}, TensorClass::kEmbedding, true, 0},
          {"norm", {30}, TensorClass::kVector, false, 0},
          {"matrix", {16, 16}, TensorClass::kMatrix, true, 1},
          {"final_norm", {7}, TensorClass::kVector, false, 1},
          {"head", {1, 257}, TensorClass::kHead, true, 1}};
}

TEST_CASE("fragment-major, decayed tensors first, padded to 256 elements") {
  const Layout layout = BuildLayout(SmallModel(), 2).value();
  REQUIRE(layout.tensors.size() == 5);
  const struct {
    const char* name;
    int64_t offset, elements;
  } expected[] = {{"embed", 0, 300},
                  {"norm", 512, 30},
                  {"matrix", 768, 256},
                  {"head", 1024, 257},
                  {"final_norm", 1536, 7}};
  for (size_t i = 0; i < 5; ++i) {
    CHECK(layout.tensors[i].decl.name == expected[i].name);
    CHECK(layout.tensors[i].offset == expected[i].offset);
    CHECK(layout.tensors[i].elements == expected[i].elements);
  }
  REQUIRE(layout.fragments.size() == 2);
  CHECK(layout.fragments[0].first == 0);
  CHECK(layout.fragments[0].elements == 768);
  CHECK(layout.fragments[0].decayed_elements == 512);
  CHECK(layout.fragments[1].first == 768);
  CHECK(layout.fragments[1].elements == 1024);
  CHECK(layout.fragments[1].decayed_elements == 768);
  CHECK(layout.elements == 1792);
  CHECK(layout.parameters == 300 + 30 + 256 + 257 + 7);
}

TEST_CASE("tensors are found by name and elements described by tensor") {
  const Layout layout = BuildLayout(SmallModel(), 2).value();
  REQUIRE(layout.Find("head") != nullptr);
  CHECK(layout.Find("head")->offset == 1024);
  CHECK(layout.Find("tail") == nullptr);
  CHECK(layout.Describe(0) == "embed[0]");
  CHECK(layout.Describe(299) == "embed[299]");
  CHECK(layout.Describe(300) == "padding after embed");
  CHECK(layout.Describe(512 + 29) == "norm[29]");
  CHECK(layout.Describe(1791) == "padding after final_norm");
  CHECK(absl::StrContains(layout.Describe(1792), "outside"));
  CHECK(absl::StrContains(layout.Describe(-1), "outside"));
}

TEST_CASE("the layout digest changes with everything it covers, and only so") {
  const Digest base = BuildLayout(SmallModel(), 2)->ComputeDigest();
  CHECK(base == BuildLayout(SmallModel(), 2)->ComputeDigest());
  // Part of a run's identity: it must not change between versions.
  CHECK(base.ToHex() ==
        "e82926041f6bbf9e0e678b190d82f689c284c9c5a679c1def919b15504ade63c");
  auto model = SmallModel();
  model[0].name = "embed2";
  CHECK(BuildLayout(model, 2)->ComputeDigest() != base);
  model = SmallModel();
  model[0].shape = {30, 10};
  CHECK(BuildLayout(model, 2)->ComputeDigest() != base);
  model = SmallModel();
  model[0].tensor_class = TensorClass::kMatrix;
  CHECK(BuildLayout(model, 2)->ComputeDigest() != base);
  model = SmallModel();
  model[4].decayed = false;
  CHECK(BuildLayout(model, 2)->ComputeDigest() != base);
  model = SmallModel();
  model[1].fragment = 1;
  CHECK(BuildLayout(model, 2)->ComputeDigest() != base);
}

TEST_CASE("declarations that make no layout are refused with the tensor") {
  const auto fails = [](std::vector<TensorDecl> tensors, int fragments,
                        const char* mention) {
    const absl::Status status = BuildLayout(tensors, fragments).status();
    return status.code() == absl::StatusCode::kInvalidArgument &&
           absl::StrContains(status.message(), mention);
  };
  CHECK(fails({{"a", {1}}, {"a", {2}}}, 1, "tensor a is declared twice"));
  CHECK(fails({{"a", {}}}, 1, "tensor a"));
  CHECK(fails({{"a", {3, 0}}}, 1, "[3, 0]"));
  CHECK(fails({{"a", {3, -2}}}, 1, "[3, -2]"));
  CHECK(fails({{"a", {int64_t{1} << 40, int64_t{1} << 40}}}, 1, "tensor a"));
  CHECK(fails({{"a", {int64_t{1} << 48}}, {"b", {int64_t{1} << 48}}}, 1,
              "tensor b"));
  CHECK(fails({{"a", {3}}}, 2, "fragment 1 of 2 has no tensors"));
  CHECK(fails({{"a", {3}, TensorClass::kVector, true, 2}}, 2, "fragment 2"));
  CHECK(fails({{"a", {3}, TensorClass::kVector, true, -1}}, 2, "tensor a"));
  CHECK(fails({}, 1, "no tensors"));
  CHECK(fails({}, 0, "at least one fragment"));
}

}  // namespace
}  // namespace diloco
