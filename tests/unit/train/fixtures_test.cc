// The training reference: one pass, the same with sharpened attention, and 30
// AdamW steps, within the file's own tolerances. Needs DILOCO_FIXTURES, the
// folder of the reference data; skipped without.
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/io/file_system.h"
#include "common/model/hf_directory.h"
#include "tests/support/catch.h"
#include "tests/unit/train/small_model.h"
#include "worker/train/probe.h"

namespace diloco {
namespace {

using nlohmann::json;
using testing::Must;

class Reference {
 public:
  explicit Reference(const std::string& fixtures) {
    FileSystem* fs = FileSystem::Posix();
    const std::string folder = fixtures + "/llama_tiny";
    file = json::parse(Must(ReadFile(fs, folder + "/reference.json")));
    tolerance = file["tolerance"];
    config = Must(ReadHfConfig(fs, folder));
    layout = testing::LayoutOf(config);
    theta.resize(layout.elements);
    Must(ReadHfWeights(fs, folder, config, layout, absl::MakeSpan(theta)));
    const std::string raw = Must(ReadFile(fs, folder + "/tokens.bin"));
    for (size_t i = 0; i + 1 < raw.size(); i += 2) {
      tokens.push_back(static_cast<uint8_t>(raw[i]) |
                       static_cast<uint8_t>(raw[i + 1]) << 8);
    }
  }

  Batch BatchAt(const json& offsets, int64_t ids_per_window) const {
    Batch batch;
    batch.windows = static_cast<int64_t>(offsets.size());
    batch.ids_per_window = ids_per_window;
    for (const int64_t offset : offsets) {
      batch.ids.insert(batch.ids.end(), tokens.begin() + offset,
                       tokens.begin() + offset + ids_per_window);
    }
    return batch;
  }
  double Limit(const char* kind) const { return tolerance[kind]; }
  std::vector<float> Tensor(const std::vector<float>& flat,
                            const std::string& name) const {
    const TensorSpec& spec = *layout.Find(name);
    return {flat.begin() + spec.offset,
            flat.begin() + spec.offset + spec.elements};
  }

  json file, tolerance;
  ModelConfig config;
  Layout layout;
  std::vector<float> theta;
  std::vector<int32_t> tokens;
};

void Near(double got, double want, double limit) {
  INFO("got " << got << " want " << want << " limit " << limit);
  REQUIRE(std::abs(got - want) <= limit);
}

void RelativelyNear(double got, double want, double limit) {
  Near(got, want, limit * std::abs(want));
}

// The summary of tensors in `flat`: norm, first values, row 32.
void CheckSummary(const Reference& ref, const json& want,
                  const std::vector<float>& flat, double norm_limit,
                  double value_limit, bool relative_to_norm) {
  for (const auto& [name, summary] : want.items()) {
    INFO(name);
    const std::vector<float> values = ref.Tensor(flat, name);
    const double norm = summary["l2"];
    RelativelyNear(testing::Norm(values), norm, norm_limit);
    const double limit = value_limit * (relative_to_norm ? norm : 1.0);
    for (size_t i = 0; i < 4; ++i) Near(values[i], summary["first4"][i], limit);
    if (!summary.contains("row32_first4")) continue;
    const size_t row = 32 * static_cast<size_t>(ref.config.hidden);
    for (size_t i = 0; i < 4; ++i) {
      Near(values[row + i], summary["row32_first4"][i], limit);
    }
  }
}

void CheckOneBatch(const Reference& ref, const json& want,
                   const std::vector<float>& theta) {
  const ForwardProbe probe = Must(RunForwardProbe(
      ref.config, ref.layout, theta, ref.BatchAt(want["offsets"], 64)));
  RelativelyNear(probe.loss, want["loss"], ref.Limit("losses_relative"));
  const ForwardProbe longer = Must(RunForwardProbe(
      ref.config, ref.layout, theta, ref.BatchAt(want["offsets"], 65)));
  RelativelyNear(longer.loss, want["loss_65_token_windows"],
                 ref.Limit("losses_relative"));
  const size_t vocab = static_cast<size_t>(ref.config.vocab);
  const double logit_limit = ref.Limit("logits_absolute");
  for (size_t i = 0; i < 16; ++i) {
    Near(probe.logits[63 * vocab + i],
         want["logits_row0_last_position_first16"][i], logit_limit);
  }
  for (size_t i = 0; i < 8; ++i) {
    Near(probe.logits[(3 * 64 + 32) * vocab - 8 + i],
         want["logits_row3_position31_last8"][i], logit_limit);
  }
  RelativelyNear(testing::Norm(probe.grads), want["grad_total_l2"],
                 ref.Limit("gradient_norms_relative"));
  CheckSummary(ref, want["grad"], probe.grads,
               ref.Limit("gradient_norms_relative"),
               ref.Limit("gradient_values_relative_to_tensor_l2"),
               /*relative_to_norm=*/true);
}

void CheckSteps(const Reference& ref, const json& want, double clip) {
  TrainSettings train = testing::SmallTrain();
  train.clip = clip;
  auto trainer = Must(MakeTorchTrainer(ref.config, ref.layout, train, {}));
  Must(trainer->Load(0, ref.theta));
  for (const json& step : want["steps"]) {
    const StepResult result =
        Must(trainer->Step(ref.BatchAt(step["offsets"], 64), step["lr"]));
    RelativelyNear(result.loss, step["loss"], ref.Limit("losses_relative"));
    RelativelyNear(result.grad_norm, step["grad_norm"],
                   ref.Limit("gradient_norms_relative"));
  }
  CheckSummary(ref, want["final"], testing::LocalOf(*trainer),
               ref.Limit("parameter_norms_relative"),
               ref.Limit("parameter_values_absolute"),
               /*relative_to_norm=*/false);
}

TEST_CASE("the training reference is met within its tolerances") {
  const char* fixtures = std::getenv("DILOCO_FIXTURES");
  if (fixtures == nullptr) {
    WARN("skipped: DILOCO_FIXTURES is not set");
    return;
  }
  const Reference ref(fixtures);
  SECTION("one batch") { CheckOneBatch(ref, ref.file["one_batch"], ref.theta); }
  SECTION("one batch with sharpened attention") {
    std::vector<float> sharp = ref.theta;
    for (const TensorSpec& tensor : ref.layout.tensors) {
      const std::string& name = tensor.decl.name;
      const bool attention = name.find("q_proj") != std::string::npos ||
                             name.find("k_proj") != std::string::npos;
      for (int64_t i = 0; i < tensor.elements; ++i) {
        float& value = sharp[tensor.offset + i];
        if (attention) value *= 8;
        if (tensor.decl.shape.size() == 1) {
          value *= 1 + static_cast<float>(i % 8) / 16;
        }
      }
    }
    CheckOneBatch(ref, ref.file["one_batch_sharpened"], sharp);
  }
  SECTION("AdamW steps with clipping") {
    CheckSteps(ref, ref.file["adamw_steps"], 1.0);
  }
  SECTION("AdamW steps without clipping") {
    CheckSteps(ref, ref.file["adamw_steps_no_clip"], 0.0);
  }
}

}  // namespace
}  // namespace diloco
