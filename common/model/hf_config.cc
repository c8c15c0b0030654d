// config.json of a Hugging Face directory: reading both generations of keys,
// refusing by name what the trainer cannot do.
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/hf_directory.h"

namespace diloco {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxConfigJsonBytes = 1 << 20;

// Typed access with errors that name file and key; the first one sticks.
class ConfigReader {
 public:
  ConfigReader(const std::string& name, const Json& root)
      : name_(name), root_(root) {}

  absl::Status status = absl::OkStatus();

  void Fail(absl::string_view key, absl::string_view message) {
    if (!status.ok()) return;
    status = absl::InvalidArgumentError(
        absl::StrCat(name_, ": ", key, ": ", message));
  }
  // nullptr when the key is missing or null.
  const Json* Find(const char* key) const {
    const auto it = root_.find(key);
    return it == root_.end() || it->is_null() ? nullptr : &*it;
  }
  int64_t Integer(const char* key, int64_t otherwise) {
    const Json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (value->is_number_unsigned() && value->get<uint64_t>() < uint64_t{1}
                                                                    << 40) {
      return static_cast<int64_t>(value->get<uint64_t>());
    }
    Fail(key, absl::StrCat(
                  "got ",
                  value->dump(-1, ' ', false, Json::error_handler_t::replace),
                  "; expected a whole number"));
    return otherwise;
  }
  int64_t RequiredInteger(const char* key) {
    if (Find(key) == nullptr) Fail(key, "is missing");
    return Integer(key, 0);
  }
  bool Flag(const char* key, bool otherwise) {
    const Json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (value->is_boolean()) return value->get<bool>();
    Fail(key, "expected true or false");
    return otherwise;
  }
  std::string Text(const char* key, const char* otherwise) {
    const Json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (value->is_string()) return value->get<std::string>();
    Fail(key, "expected a text");
    return otherwise;
  }
  double Real(const char* key, double otherwise) {
    const Json* value = Find(key);
    return value == nullptr ? otherwise : RealOf(key, *value);
  }
  double RealOf(const char* key, const Json& value) {
    if (value.is_number()) return value.get<double>();
    Fail(key, "expected a number");
    return 0;
  }

 private:
  const std::string& name_;
  const Json& root_;
};

void RefuseUnsupported(ConfigReader& in, const std::string& type) {
  if (type != "llama" && type != "qwen3") {
    in.Fail("model_type", absl::StrCat("\"", type,
                                       "\" is not supported; llama and qwen3 "
                                       "are"));
  }
  const std::string expected =
      type == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM";
  if (const Json* list = in.Find("architectures")) {
    if (!list->is_array() || list->size() != 1 || (*list)[0] != expected) {
      in.Fail("architectures",
              absl::StrCat(
                  "got ",
                  list->dump(-1, ' ', false, Json::error_handler_t::replace),
                  "; expected [\"", expected, "\"]"));
    }
  }
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    if (in.Flag(bias, false)) in.Fail(bias, "biases are not supported");
  }
  if (const std::string act = in.Text("hidden_act", "silu"); act != "silu") {
    in.Fail("hidden_act",
            absl::StrCat("\"", act, "\" is not supported; silu is"));
  }
  if (in.Flag("use_sliding_window", false)) {
    in.Fail("use_sliding_window", "sliding windows are not supported");
  }
  if (const Json* layers = in.Find("layer_types");
      layers && layers->is_array()) {
    for (const Json& layer : *layers) {
      if (layer != "full_attention") {
        in.Fail("layer_types",
                absl::StrCat(
                    layer.dump(-1, ' ', false, Json::error_handler_t::replace),
                    " is not supported"));
      }
    }
  }
  if (in.Find("quantization_config") != nullptr) {
    in.Fail("quantization_config", "quantised weights are not supported");
  }
}

// `rope_parameters` (transformers 5) or `rope_scaling` (4).
void ReadRope(ConfigReader& in, ModelConfig* model) {
  std::optional<double> theta;
  if (const Json* top = in.Find("rope_theta")) {
    theta = in.RealOf("rope_theta", *top);
  }
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* rope = in.Find(key);
    if (rope == nullptr) continue;
    if (!rope->is_object()) {
      in.Fail(key, "expected an object");
      continue;
    }
    // The type first: it explains whatever else stands there.
    for (const char* name : {"rope_type", "type"}) {
      const auto type = rope->find(name);
      if (type == rope->end() || *type == "default") continue;
      in.Fail(absl::StrCat(key, ".", name),
              absl::StrCat(
                  type->dump(-1, ' ', false, Json::error_handler_t::replace),
                  " is not supported; \"default\" is"));
    }
    for (const auto& [name, value] : rope->items()) {
      if (name == "rope_type" || name == "type") continue;
      if (name == "partial_rotary_factor" && value == 1.0) continue;
      if (name != "rope_theta") {
        in.Fail(absl::StrCat(key, ".", name), "is not supported");
        continue;
      }
      const double inner = in.RealOf("rope_theta", value);
      if (theta.has_value() && *theta != inner) {
        in.Fail("rope_theta",
                absl::StrCat(*theta, " here, but ", inner, " in ", key));
      }
      theta = inner;
    }
  }
  if (in.Real("partial_rotary_factor", 1.0) != 1.0) {
    in.Fail("partial_rotary_factor", "only 1 is supported");
  }
  model->rope_theta = theta.value_or(10000.0);
}

}  // namespace

absl::StatusOr<ModelConfig> ParseHfConfig(const std::string& name,
                                          absl::string_view text) {
  const Json root = Json::parse(text.begin(), text.end(), nullptr, false);
  if (root.is_discarded() || !root.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": not a JSON object"));
  }
  ConfigReader in(name, root);
  const std::string type = in.Text("model_type", "");
  RefuseUnsupported(in, type);
  const bool qwen = type == "qwen3";
  ModelConfig model;
  model.layers = in.RequiredInteger("num_hidden_layers");
  model.hidden = in.RequiredInteger("hidden_size");
  model.heads = in.RequiredInteger("num_attention_heads");
  model.kv_heads = in.Integer("num_key_value_heads", model.heads);
  // What transformers takes when the key is missing.
  const int64_t head_dim = qwen              ? 128
                           : model.heads > 0 ? model.hidden / model.heads
                                             : 0;
  model.head_dim = in.Integer("head_dim", head_dim);
  model.ffn = in.RequiredInteger("intermediate_size");
  model.vocab = in.RequiredInteger("vocab_size");
  model.tied = in.Flag("tie_word_embeddings", false);
  model.qk_norm = qwen;
  model.rms_norm_eps = in.Real("rms_norm_eps", 1e-6);
  model.max_positions =
      in.Integer("max_position_embeddings", qwen ? 32768 : 2048);
  ReadRope(in, &model);
  RETURN_IF_ERROR(in.status);
  if (const absl::Status valid = ValidateModel(model); !valid.ok()) {
    return WithContext(valid, name);
  }
  return model;
}

absl::StatusOr<ModelConfig> ReadHfConfig(FileSystem* fs,
                                         const std::string& dir) {
  const std::string path = JoinPath(dir, "config.json");
  absl::StatusOr<std::string> text = ReadFile(fs, path, kMaxConfigJsonBytes);
  if (!text.ok()) {
    return WithContext(text.status(),
                       absl::StrCat("Hugging Face directory ", dir));
  }
  return ParseHfConfig(path, *text);
}

}  // namespace diloco
