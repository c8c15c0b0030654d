// The weights of a Hugging Face directory, one file or sharded, matched by name
// against a layout.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/model/hf_directory.h"
#include "common/model/safetensors.h"

namespace diloco {
namespace {

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kHead[] = "lm_head.weight";
constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr uint64_t kMaxIndexBytes = 64 << 20;
// Names shown of a long list.
constexpr size_t kShown = 5;

struct Shards {
  std::vector<SafetensorsReader> readers;
  // Tensor name to its reader and entry.
  std::map<std::string, std::pair<size_t, const SafetensorsEntry*>> tensors;
};

// File names listed in the index, with the tensors each should hold.
absl::StatusOr<std::map<std::string, std::set<std::string>>> ReadIndex(
    FileSystem* fs, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(fs, path, kMaxIndexBytes));
  const auto root = nlohmann::json::parse(text, nullptr, false);
  const auto fail = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
  };
  if (root.is_discarded() || !root.is_object() ||
      !root.contains("weight_map") || !root["weight_map"].is_object()) {
    return fail("no index: expected an object with a weight_map");
  }
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    if (!file.is_string()) return fail("a file name is no text");
    const std::string name = file.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos) {
      return fail(absl::StrCat("\"", name, "\" is no file of this directory"));
    }
    files[name].insert(tensor);
  }
  return files;
}

absl::Status OpenShard(FileSystem* fs, const std::string& path,
                       Shards* shards) {
  ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(fs, path));
  shards->readers.push_back(std::move(reader));
  return absl::OkStatus();
}

absl::StatusOr<Shards> OpenShards(FileSystem* fs, const std::string& dir) {
  Shards shards;
  const std::string index = JoinPath(dir, kIndex);
  if (fs->Exists(JoinPath(dir, kSingle))) {
    RETURN_IF_ERROR(OpenShard(fs, JoinPath(dir, kSingle), &shards));
  } else if (fs->Exists(index)) {
    ASSIGN_OR_RETURN(const auto files, ReadIndex(fs, index));
    for (const auto& [file, names] : files) {
      const std::string path = JoinPath(dir, file);
      if (!fs->Exists(path)) {
        return absl::NotFoundError(absl::StrCat(
            path, " is missing; ", index, " lists it for ", names.size(),
            names.size() == 1 ? " tensor" : " tensors"));
      }
      RETURN_IF_ERROR(OpenShard(fs, path, &shards));
      for (const std::string& name : names) {
        if (shards.readers.back().Find(name) != nullptr) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": tensor \"", name, "\" is missing; ", index,
                         " says it is here"));
      }
    }
  } else {
    return absl::NotFoundError(absl::StrCat(
        dir, " has neither ", kSingle, " nor ", kIndex,
        fs->Exists(JoinPath(dir, "pytorch_model.bin"))
            ? "; pytorch_model.bin is a pickle and never read: convert it to "
              "safetensors"
            : ""));
  }
  // Only now: entries must not move any more.
  for (size_t i = 0; i < shards.readers.size(); ++i) {
    for (const SafetensorsEntry& entry : shards.readers[i].tensors()) {
      const auto [known, fresh] =
          shards.tensors.emplace(entry.name, std::pair(i, &entry));
      if (fresh) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", entry.name, "\" is in ",
                       shards.readers[known->second.first].path(), " and in ",
                       shards.readers[i].path()));
    }
  }
  return shards;
}

std::string SomeOf(const std::vector<std::string>& names) {
  std::vector<std::string> shown(
      names.begin(), names.begin() + std::min(names.size(), kShown));
  return absl::StrCat(names.size(), " (", absl::StrJoin(shown, ", "),
                      names.size() > kShown ? ", ..." : "", ")");
}

// Rotary tables that old checkpoints store; they follow from the config.
bool IsDerived(const std::string& name) {
  return absl::EndsWith(name, ".rotary_emb.inv_freq");
}

absl::Status MatchNames(const std::string& dir, const Shards& shards,
                        const ModelConfig& config, const Layout& layout) {
  std::vector<std::string> missing, unexpected;
  for (const TensorSpec& tensor : layout.tensors) {
    if (shards.tensors.count(tensor.decl.name) == 0) {
      missing.push_back(tensor.decl.name);
    }
  }
  for (const auto& [name, place] : shards.tensors) {
    if (layout.Find(name) != nullptr || IsDerived(name)) continue;
    if (config.tied && name == kHead) continue;
    unexpected.push_back(name);
  }
  if (missing.empty() && unexpected.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      dir, ": the weights do not fit config.json:",
      missing.empty() ? "" : absl::StrCat(" missing ", SomeOf(missing)),
      missing.empty() || unexpected.empty() ? "" : ";",
      unexpected.empty() ? ""
                         : absl::StrCat(" unexpected ", SomeOf(unexpected))));
}

absl::Status ReadTensor(const Shards& shards, const TensorSpec& tensor,
                        const Layout& layout, absl::Span<float> out) {
  const auto& [index, entry] = shards.tensors.at(tensor.decl.name);
  const SafetensorsReader& reader = shards.readers[index];
  const std::vector<uint64_t> expected(tensor.decl.shape.begin(),
                                       tensor.decl.shape.end());
  if (entry->shape != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        reader.path(), ": tensor \"", entry->name, "\" has shape [",
        absl::StrJoin(entry->shape, ","), "], config.json asks for [",
        absl::StrJoin(expected, ","), "]"));
  }
  RETURN_IF_ERROR(reader.ReadFloats(*entry, out));
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::isfinite(out[i])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(reader.path(), ": ",
                     layout.Describe(tensor.offset + static_cast<int64_t>(i)),
                     " is ", std::isnan(out[i]) ? "NaN" : "infinite"));
  }
  return absl::OkStatus();
}

// A tied model may carry its head a second time, as long as it is the same.
absl::Status CheckTiedHead(const Shards& shards, const TensorSpec& embedding,
                           absl::Span<const float> values) {
  const auto head = shards.tensors.find(kHead);
  if (head == shards.tensors.end()) return absl::OkStatus();
  const auto& [index, entry] = head->second;
  std::vector<float> copy(entry->elements);
  const bool same_size = copy.size() == values.size() &&
                         embedding.decl.shape.size() == entry->shape.size();
  if (same_size) {
    RETURN_IF_ERROR(
        shards.readers[index].ReadFloats(*entry, absl::MakeSpan(copy)));
    if (std::equal(copy.begin(), copy.end(), values.begin())) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(shards.readers[index].path(), ": ", kHead, " differs from ",
                   kEmbedding, ", but config.json ties them"));
}

}  // namespace

absl::Status ReadHfWeights(FileSystem* fs, const std::string& dir,
                           const ModelConfig& config, const Layout& layout,
                           absl::Span<float> theta) {
  if (static_cast<int64_t>(theta.size()) != layout.elements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "theta has ", theta.size(), " values, the layout ", layout.elements));
  }
  ASSIGN_OR_RETURN(const Shards shards, OpenShards(fs, dir));
  RETURN_IF_ERROR(MatchNames(dir, shards, config, layout));
  std::fill(theta.begin(), theta.end(), 0.0f);
  for (const TensorSpec& tensor : layout.tensors) {
    const absl::Span<float> out = theta.subspan(tensor.offset, tensor.elements);
    RETURN_IF_ERROR(ReadTensor(shards, tensor, layout, out));
    if (config.tied && tensor.decl.name == kEmbedding) {
      RETURN_IF_ERROR(CheckTiedHead(shards, tensor, out));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> HfTokenizerFiles(FileSystem* fs,
                                          const std::string& dir) {
  std::vector<std::string> files;
  for (const char* name :
       {"tokenizer.model", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "chat_template.jinja"}) {
    std::string path = JoinPath(dir, name);
    if (fs->Exists(path)) files.push_back(std::move(path));
  }
  return files;
}

}  // namespace diloco
