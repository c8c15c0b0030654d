// Writing a Hugging Face directory that transformers (4 and 5) opens.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/path.h"
#include "common/io/remove_tree.h"
#include "common/model/hf_directory.h"
#include "common/model/safetensors.h"
#include "common/model/sentencepiece_model.h"

namespace diloco {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kMaxTokenizerBytes = 256 << 20;

std::string Dump(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

// -1 is "there is none".
OrderedJson TokenId(int32_t id) {
  return id < 0 ? OrderedJson(nullptr) : OrderedJson(id);
}

struct SpecialIds {
  int32_t bos = -1, eos = -1, pad = -1;
};

OrderedJson ConfigJson(const ModelConfig& config, const SpecialIds& ids) {
  const bool qwen = config.qk_norm;
  OrderedJson json = {
      {"architectures", {qwen ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
      {"model_type", qwen ? "qwen3" : "llama"},
      {"hidden_size", config.hidden},
      {"intermediate_size", config.ffn},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", config.max_positions},
      {"rms_norm_eps", config.rms_norm_eps},
      {"vocab_size", config.vocab},
      {"tie_word_embeddings", config.tied},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"initializer_range", 0.02},
      {"use_cache", true},
      // transformers 5 reads the second form, everything older the first.
      {"rope_theta", config.rope_theta},
      {"rope_parameters",
       {{"rope_theta", config.rope_theta}, {"rope_type", "default"}}},
      {"torch_dtype", "float32"},
      {"dtype", "float32"},
      {"bos_token_id", TokenId(ids.bos)},
      {"eos_token_id", TokenId(ids.eos)},
      {"pad_token_id", TokenId(ids.pad)}};
  if (qwen) {
    json["use_sliding_window"] = false;
    json["sliding_window"] = nullptr;
  } else {
    json["mlp_bias"] = false;
  }
  return json;
}

OrderedJson GenerationJson(const SpecialIds& ids) {
  return {{"bos_token_id", TokenId(ids.bos)},
          {"eos_token_id", TokenId(ids.eos)},
          {"pad_token_id", TokenId(ids.pad)},
          {"do_sample", true},
          {"temperature", 0.8},
          {"top_p", 0.95}};
}

absl::Status WriteText(FileSystem* fs, const std::string& dir,
                       const std::string& name, absl::string_view text) {
  return WriteFileAtomic(fs, JoinPath(dir, name), text);
}

// Tokenizer files and what is derived from a SentencePiece model among them.
absl::StatusOr<SpecialIds> WriteTokenizer(FileSystem* fs,
                                          const std::string& dir,
                                          const HfExport& contents) {
  std::set<std::string> names;
  std::optional<SentencePieceModel> pieces;
  for (const std::string& path : contents.tokenizer_files) {
    const std::string name = HfTokenizerName(path);
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadFile(fs, path, kMaxTokenizerBytes));
    RETURN_IF_ERROR(WriteText(fs, dir, name, bytes));
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tokenizer files would be called ", name));
    }
    if (name == "tokenizer.model") {
      absl::StatusOr<SentencePieceModel> model =
          ParseSentencePieceModel(path, bytes);
      if (model.ok()) {
        pieces = *std::move(model);
      } else {
        DILOCO_LOG(WARNING)
            << "tokenizer is copied as it is: " << model.status().message();
      }
    }
  }
  SpecialIds ids;
  if (!pieces.has_value()) return ids;
  if (static_cast<int64_t>(pieces->pieces.size()) > contents.config.vocab) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokenizer.model has ", pieces->pieces.size(),
        " pieces, the model's vocabulary only ", contents.config.vocab));
  }
  ids = {.bos = pieces->bos_id, .eos = pieces->eos_id, .pad = pieces->pad_id};
  if (names.count("tokenizer.json") > 0) return ids;
  absl::StatusOr<std::string> json = TokenizerJson(*pieces);
  if (!json.ok()) {
    DILOCO_LOG(WARNING) << "export without tokenizer.json: "
                        << json.status().message();
    return ids;
  }
  RETURN_IF_ERROR(WriteText(fs, dir, "tokenizer.json", *json));
  if (names.count("tokenizer_config.json") == 0) {
    RETURN_IF_ERROR(
        WriteText(fs, dir, "tokenizer_config.json",
                  TokenizerConfigJson(*pieces, contents.config.max_positions)));
  }
  return ids;
}

absl::Status WriteContents(FileSystem* fs, const std::string& dir,
                           const HfExport& contents) {
  ASSIGN_OR_RETURN(const SpecialIds ids, WriteTokenizer(fs, dir, contents));
  RETURN_IF_ERROR(WriteText(fs, dir, "config.json",
                            Dump(ConfigJson(contents.config, ids))));
  RETURN_IF_ERROR(
      WriteText(fs, dir, "generation_config.json", Dump(GenerationJson(ids))));
  if (!contents.model_card.empty()) {
    RETURN_IF_ERROR(WriteText(fs, dir, "README.md", contents.model_card));
  }
  std::vector<SafetensorsTensor> tensors;
  for (const TensorSpec& tensor : contents.layout->tensors) {
    tensors.push_back(
        {.name = tensor.decl.name,
         .shape = tensor.decl.shape,
         .values = contents.theta.subspan(tensor.offset, tensor.elements)});
  }
  RETURN_IF_ERROR(WriteSafetensors(fs, JoinPath(dir, "model.safetensors"),
                                   std::move(tensors)));
  return fs->SyncDir(dir);
}

// The directory that becomes `dir` when it is complete.
absl::StatusOr<std::string> MakeBeside(FileSystem* fs, const std::string& dir) {
  if (fs->Exists(dir)) {
    return absl::AlreadyExistsError(
        absl::StrCat(dir,
                     " exists; an export never replaces anything: name another "
                     "directory or remove it"));
  }
  RemoveLeftBeside(fs, dir);
  std::string temporary = NewNameBeside(fs, dir);
  RETURN_IF_ERROR(fs->CreateDirs(temporary));
  return temporary;
}

}  // namespace

bool IsPlainFileName(absl::string_view name) {
  return !name.empty() && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

std::string HfTokenizerName(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  return absl::EndsWith(name, ".model") ? "tokenizer.model" : name;
}

std::string HfConfigJson(const ModelConfig& config) {
  return Dump(ConfigJson(config, SpecialIds{}));
}

absl::Status WriteHfDirectory(FileSystem* fs, const std::string& path,
                              const HfExport& contents) {
  const std::string dir = WithoutSlash(path);
  if (static_cast<int64_t>(contents.theta.size()) !=
      contents.layout->elements) {
    return absl::InvalidArgumentError(
        absl::StrCat("theta has ", contents.theta.size(),
                     " values, the layout ", contents.layout->elements));
  }
  ASSIGN_OR_RETURN(const std::string temporary, MakeBeside(fs, dir));
  absl::Status written = WriteContents(fs, temporary, contents);
  if (written.ok()) written = fs->Rename(temporary, dir);
  if (!written.ok()) {
    RemoveTree(fs, temporary);
    return written;
  }
  return fs->SyncDir(DirName(dir));
}

absl::Status TryHfDirectory(FileSystem* fs, const std::string& path,
                            const HfExport& contents) {
  ASSIGN_OR_RETURN(const std::string temporary,
                   MakeBeside(fs, WithoutSlash(path)));
  const absl::Status written = WriteTokenizer(fs, temporary, contents).status();
  RemoveTree(fs, temporary);
  return written;
}

}  // namespace diloco
