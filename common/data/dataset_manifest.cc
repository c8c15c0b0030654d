#include "common/data/dataset_manifest.h"

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"

namespace diloco {
namespace {

constexpr int kManifestFormat = 1;

using Json = nlohmann::ordered_json;

// Reads typed members of one object and remembers the first that is wrong.
class Members {
 public:
  Members(const Json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) Fail("is not an object");
  }

  void Text(const char* key, std::string& out) {
    const Json* value = Get(key);
    if (value == nullptr) return;
    if (!value->is_string()) return Fail(absl::StrCat(key, ": not a string"));
    out = value->get<std::string>();
  }
  void Count(const char* key, uint64_t& out) {
    const Json* value = Get(key);
    if (value == nullptr) return;
    if (!value->is_number_unsigned()) {
      return Fail(absl::StrCat(key, ": not a whole number from 0"));
    }
    out = value->get<uint64_t>();
  }
  const Json* Get(const char* key) {
    if (!status_.ok()) return nullptr;
    const auto it = object_.find(key);
    if (it != object_.end()) return &*it;
    Fail(absl::StrCat("missing key ", key));
    return nullptr;
  }
  void Fail(absl::string_view why) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(where_, ": ", why));
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json& object_;
  const std::string where_;
  absl::Status status_;
};

absl::StatusOr<DatasetManifest::Shard> ParseShard(const Json& json,
                                                  const std::string& where) {
  DatasetManifest::Shard shard;
  Members members(json, where);
  uint64_t max_id = 0;
  members.Text("file", shard.file);
  members.Text("split", shard.split);
  members.Count("file_bytes", shard.file_bytes);
  members.Text("digest", shard.digest);
  members.Count("tokens", shard.tokens);
  members.Count("documents", shard.documents);
  members.Count("text_bytes", shard.text_bytes);
  members.Count("max_id", max_id);
  shard.max_id = static_cast<uint32_t>(max_id);
  RETURN_IF_ERROR(members.status());
  return shard;
}

}  // namespace

const DatasetManifest::Shard* DatasetManifest::Find(
    absl::string_view file) const {
  for (const Shard& shard : shards) {
    if (shard.file == file) return &shard;
  }
  return nullptr;
}

std::string ManifestToJson(const DatasetManifest& manifest) {
  Json json;
  json["format"] = kManifestFormat;
  json["dtype"] = TokenFormatName(manifest.dtype);
  json["vocab"] = manifest.vocab;
  json["tokenizer"] = manifest.tokenizer;
  json["tokenizer_digest"] = manifest.tokenizer_digest;
  json["eos_id"] = manifest.eos_id;
  json["shards"] = Json::array();
  for (const DatasetManifest::Shard& shard : manifest.shards) {
    json["shards"].push_back({{"file", shard.file},
                              {"split", shard.split},
                              {"file_bytes", shard.file_bytes},
                              {"digest", shard.digest},
                              {"tokens", shard.tokens},
                              {"documents", shard.documents},
                              {"text_bytes", shard.text_bytes},
                              {"max_id", shard.max_id}});
  }
  return json.dump(2) + "\n";
}

absl::StatusOr<DatasetManifest> ReadManifest(FileSystem* fs,
                                             const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(fs, path, 64 << 20));
  return ParseManifest(path, text);
}

absl::StatusOr<DatasetManifest> ParseManifest(const std::string& path,
                                              const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not valid JSON"));
  }
  DatasetManifest manifest;
  Members members(json, path);
  uint64_t format = 0;
  std::string dtype;
  members.Count("format", format);
  members.Text("dtype", dtype);
  members.Count("vocab", manifest.vocab);
  members.Text("tokenizer", manifest.tokenizer);
  members.Text("tokenizer_digest", manifest.tokenizer_digest);
  const Json* eos = members.Get("eos_id");
  if (eos != nullptr && !eos->is_number_integer()) {
    members.Fail("eos_id: not a whole number");
  }
  const Json* shards = members.Get("shards");
  if (shards != nullptr && !shards->is_array()) {
    members.Fail("shards: not a list");
  }
  RETURN_IF_ERROR(members.status());
  if (format != kManifestFormat) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": format ", format, ", this program reads ", kManifestFormat));
  }
  manifest.eos_id = eos->get<int64_t>();
  absl::StatusOr<TokenFormat> parsed = ParseTokenFormat(dtype);
  if (!parsed.ok()) {
    return WithContext(parsed.status(), absl::StrCat(path, ": dtype"));
  }
  manifest.dtype = *parsed;
  for (size_t i = 0; i < shards->size(); ++i) {
    ASSIGN_OR_RETURN(
        DatasetManifest::Shard shard,
        ParseShard((*shards)[i], absl::StrCat(path, ": shards[", i, "]")));
    manifest.shards.push_back(std::move(shard));
  }
  return manifest;
}

}  // namespace diloco
