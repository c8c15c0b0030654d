// Small models with random weights and batches for the trainer's tests.
#ifndef TESTS_UNIT_TRAIN_SMALL_MODEL_H_
#define TESTS_UNIT_TRAIN_SMALL_MODEL_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "common/config/run_settings.h"
#include "common/model/model_config.h"
#include "common/tensor/layout.h"
#include "worker/train/torch_trainer.h"

namespace diloco::testing {

template <typename T>
T Must(absl::StatusOr<T> value) {
  DILOCO_CHECK(value.ok()) << value.status().ToString();
  return *std::move(value);
}
inline void Must(const absl::Status& status) {
  DILOCO_CHECK(status.ok()) << status.ToString();
}

inline ModelConfig SmallConfig() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.ffn = 48;
  config.vocab = 61;
  config.max_positions = 16;
  return config;
}

inline TrainSettings SmallTrain() {
  TrainSettings train;
  train.lr = 1e-3;
  return train;
}

inline Layout LayoutOf(const ModelConfig& config) {
  return Must(BuildLayout(ModelTensors(config), 1));
}

// Larger weights than a fresh model has, so that every path matters.
inline std::vector<float> RandomTheta(const Layout& layout, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.15f);
  std::vector<float> theta(layout.elements);
  for (const TensorSpec& tensor : layout.tensors) {
    const float base = tensor.decl.shape.size() < 2 ? 1.0f : 0.0f;
    for (int64_t i = 0; i < tensor.elements; ++i) {
      theta[tensor.offset + i] = base + normal(random);
    }
  }
  return theta;
}

inline Batch RandomBatch(const ModelConfig& config, int64_t windows,
                         uint32_t seed) {
  std::mt19937 random(seed);
  Batch batch;
  batch.windows = windows;
  batch.ids_per_window = config.max_positions + 1;
  for (int64_t i = 0; i < windows * batch.ids_per_window; ++i) {
    batch.ids.push_back(static_cast<int32_t>(random() % config.vocab));
  }
  return batch;
}

inline std::unique_ptr<Trainer> MakeTrainer(const ModelConfig& config,
                                            const std::vector<float>& theta,
                                            TrainSettings train = SmallTrain(),
                                            TorchOptions options = {}) {
  std::unique_ptr<Trainer> trainer =
      Must(MakeTorchTrainer(config, LayoutOf(config), train, options));
  Must(trainer->Load(0, theta));
  return trainer;
}

inline std::vector<float> LocalOf(Trainer& trainer) {
  std::vector<float> values(trainer.layout().elements);
  Must(trainer.ReadLocal(0, absl::MakeSpan(values)));
  return values;
}

inline std::vector<float> AnchorOf(Trainer& trainer) {
  std::vector<float> values(trainer.layout().elements);
  Must(trainer.ReadAnchor(0, absl::MakeSpan(values)));
  return values;
}

inline double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

// |a - b| / |b|.
inline double RelativeDistance(const std::vector<float>& a,
                               const std::vector<float>& b) {
  std::vector<float> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return Norm(difference) / Norm(b);
}

}  // namespace diloco::testing

#endif  // TESTS_UNIT_TRAIN_SMALL_MODEL_H_
