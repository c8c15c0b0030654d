#include "worker/update/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace diloco {
namespace {

using nlohmann::json;

constexpr char kMagic[] = "DILOCKPT";
constexpr uint32_t kFormat = 2;
constexpr uint32_t kOneFragment = 1;  // The format before.
constexpr size_t kPrefixBytes = 16;
constexpr size_t kDigestBytes = 32;

void PutU32(std::string& out, uint32_t value) {
  for (int i = 0; i < 4; ++i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
}

uint32_t GetU32(absl::string_view in, size_t offset) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(in[offset + i]))
             << (8 * i);
  }
  return value;
}

json ToJson(const Window& window) {
  return {{"round", window.round},
          {"base_version", window.base_version},
          {"steps_done", window.steps_done},
          {"tokens", window.tokens},
          {"steps", window.steps},
          {"loss_sum", window.loss_sum},
          {"losses", window.losses},
          {"lr_sum", window.lr_sum},
          {"delivered", window.delivered},
          {"last", window.last},
          {"progress", window.progress},
          {"progress_step", window.progress_step}};
}

json ToJson(const SpooledUpdate& spooled) {
  return {{"file", spooled.file},
          {"round", spooled.round},
          {"base_version", spooled.base_version},
          {"base_digest", spooled.base_digest.ToHex()},
          {"bytes", spooled.bytes},
          {"digest", spooled.digest.ToHex()},
          {"codec", CodecName(spooled.codec)},
          {"tokens", spooled.tokens},
          {"steps", spooled.steps},
          {"loss", spooled.loss},
          {"lr_sum", spooled.lr_sum},
          {"data_end", spooled.data_end}};
}

json ToJson(const CheckpointHeader& header,
            absl::Span<const NamedBuffer> buffers) {
  json out = {
      {"sequence", header.sequence},
      {"run", header.run},
      {"lineage", ToHex(header.lineage)},
      {"settings_digest", header.settings_digest.ToHex()},
      {"layout_digest", header.layout_digest.ToHex()},
      {"fragments", json::array()},
      {"data_cursor", header.data_cursor},
      {"inner_steps", header.inner_steps},
      {"optimizer_steps", header.optimizer_steps},
      {"ramp_steps_left", header.ramp_steps_left},
      {"totals",
       {{"tokens", header.totals.tokens},
        {"skipped_steps", header.totals.skipped_steps},
        {"train_seconds", header.totals.train_seconds},
        {"transfer_seconds", header.totals.transfer_seconds},
        {"wait_seconds", header.totals.wait_seconds},
        {"bytes_sent", header.totals.bytes_sent},
        {"bytes_received", header.totals.bytes_received}}},
  };
  if (header.local.progress.has_value()) {
    out["progress"] = *header.local.progress;
  }
  for (size_t i = 0; i < header.local.fragments.size(); ++i) {
    const HeldFragment& fragment = header.local.fragments[i];
    json one = {{"window", ToJson(fragment.window)},
                {"ahead", ToJson(fragment.ahead)}};
    if (fragment.version.has_value()) one["version"] = *fragment.version;
    if (i < header.spooled.size() && header.spooled[i].has_value()) {
      one["spooled"] = ToJson(*header.spooled[i]);
    }
    out["fragments"].push_back(std::move(one));
  }
  out["buffers"] = json::array();
  for (const NamedBuffer& buffer : buffers) {
    out["buffers"].push_back(
        {{"name", buffer.first}, {"elements", buffer.second.size()}});
  }
  return out;
}

absl::StatusOr<Digest> DigestField(const json& in, const char* key) {
  return Digest::FromHex(in.at(key).get<std::string>());
}

// nlohmann's exceptions end in ParseHeader, also those of the functions here.
Window WindowFrom(const json& in) {
  Window window;
  window.round = in.at("round").get<uint64_t>();
  window.base_version = in.at("base_version").get<uint64_t>();
  window.steps_done = in.at("steps_done").get<uint32_t>();
  window.tokens = in.at("tokens").get<uint64_t>();
  window.steps = in.at("steps").get<uint32_t>();
  window.loss_sum = in.at("loss_sum").get<double>();
  window.losses = in.at("losses").get<uint64_t>();
  window.lr_sum = in.value("lr_sum", 0.0);
  window.delivered = in.at("delivered").get<bool>();
  // A window of format 1 takes these from the next view of its lease.
  window.last = in.value("last", false);
  window.progress = in.value("progress", 0.0);
  window.progress_step = in.value("progress_step", 0.0);
  return window;
}

absl::StatusOr<SpooledUpdate> SpooledFrom(const json& in) {
  SpooledUpdate spooled;
  spooled.file = in.at("file").get<std::string>();
  spooled.round = in.at("round").get<uint64_t>();
  spooled.base_version = in.at("base_version").get<uint64_t>();
  ASSIGN_OR_RETURN(spooled.base_digest, DigestField(in, "base_digest"));
  spooled.bytes = in.at("bytes").get<uint64_t>();
  ASSIGN_OR_RETURN(spooled.digest, DigestField(in, "digest"));
  ASSIGN_OR_RETURN(spooled.codec,
                   ParseCodec(in.at("codec").get<std::string>()));
  spooled.tokens = in.at("tokens").get<uint64_t>();
  spooled.steps = in.at("steps").get<uint32_t>();
  spooled.loss = in.at("loss").get<double>();
  spooled.lr_sum = in.value("lr_sum", 0.0);
  spooled.data_end = in.value("data_end", uint64_t{0});
  return spooled;
}

absl::Status AddFragment(const json& in, CheckpointHeader& header) {
  HeldFragment fragment;
  if (in.contains("version")) fragment.version = in["version"].get<uint64_t>();
  fragment.window = WindowFrom(in.at("window"));
  if (in.contains("ahead")) fragment.ahead = WindowFrom(in["ahead"]);
  header.local.fragments.push_back(fragment);
  header.spooled.emplace_back();
  if (in.contains("spooled")) {
    ASSIGN_OR_RETURN(header.spooled.back(), SpooledFrom(in["spooled"]));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointHeader> FromJson(const json& in) {
  CheckpointHeader header;
  header.sequence = in.at("sequence").get<uint64_t>();
  header.run = in.at("run").get<std::string>();
  ASSIGN_OR_RETURN(header.lineage,
                   FromHex(in.at("lineage").get<std::string>()));
  ASSIGN_OR_RETURN(header.settings_digest, DigestField(in, "settings_digest"));
  ASSIGN_OR_RETURN(header.layout_digest, DigestField(in, "layout_digest"));
  if (in.contains("fragments")) {
    for (const json& fragment : in["fragments"]) {
      RETURN_IF_ERROR(AddFragment(fragment, header));
    }
  } else {  // Format 1: the keys of its only fragment lie at the top.
    RETURN_IF_ERROR(AddFragment(in, header));
  }
  if (in.contains("progress")) {
    header.local.progress = in["progress"].get<double>();
  }
  header.data_cursor = in.at("data_cursor").get<uint64_t>();
  header.inner_steps = in.at("inner_steps").get<uint64_t>();
  header.optimizer_steps = in.at("optimizer_steps").get<uint64_t>();
  header.ramp_steps_left = in.at("ramp_steps_left").get<uint32_t>();
  if (in.contains("totals")) {
    const json& from = in.at("totals");
    WorkTotals& totals = header.totals;
    totals.tokens = from.at("tokens").get<uint64_t>();
    totals.skipped_steps = from.at("skipped_steps").get<uint64_t>();
    totals.train_seconds = from.at("train_seconds").get<double>();
    totals.transfer_seconds = from.at("transfer_seconds").get<double>();
    totals.wait_seconds = from.at("wait_seconds").get<double>();
    totals.bytes_sent = from.at("bytes_sent").get<uint64_t>();
    totals.bytes_received = from.at("bytes_received").get<uint64_t>();
  }
  return header;
}

struct ParsedHeader {
  CheckpointHeader header;
  std::vector<std::pair<std::string, uint64_t>> buffers;
};

absl::StatusOr<ParsedHeader> ParseHeader(const std::string& text) {
  try {
    const json in = json::parse(text);
    ParsedHeader parsed;
    ASSIGN_OR_RETURN(parsed.header, FromJson(in));
    for (const json& buffer : in.at("buffers")) {
      parsed.buffers.push_back({buffer.at("name").get<std::string>(),
                                buffer.at("elements").get<uint64_t>()});
    }
    return parsed;
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat("header: ", error.what()));
  }
}

absl::StatusOr<Checkpoint> Read(FileSystem* fs, const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs->OpenForRead(path));
  ASSIGN_OR_RETURN(const absl::Span<const char> bytes, file->Map());
  const absl::string_view all(bytes.data(), bytes.size());
  if (all.size() < kPrefixBytes + kDigestBytes ||
      all.substr(0, 8) != absl::string_view(kMagic, 8)) {
    return absl::DataLossError("no checkpoint magic");
  }
  if (GetU32(all, 8) != kFormat && GetU32(all, 8) != kOneFragment) {
    return absl::FailedPreconditionError(absl::StrCat(
        "format ", GetU32(all, 8), ", this build reads ", kOneFragment, " and ",
        kFormat,
        ": use the build that wrote it, or another scratch directory to join "
        "afresh"));
  }
  const absl::string_view content = all.substr(0, all.size() - kDigestBytes);
  ASSIGN_OR_RETURN(const Digest stored,
                   Digest::FromBytes(all.substr(content.size())));
  if (BlockDigest(content) != stored) {
    return absl::DataLossError("digest does not match");
  }
  const uint64_t header_bytes = GetU32(all, 12);
  if (header_bytes > content.size() - kPrefixBytes) {
    return absl::DataLossError("header longer than the file");
  }
  ASSIGN_OR_RETURN(
      ParsedHeader parsed,
      ParseHeader(std::string(content.substr(kPrefixBytes, header_bytes))));
  Checkpoint checkpoint;
  checkpoint.header = std::move(parsed.header);
  absl::string_view rest = content.substr(kPrefixBytes + header_bytes);
  for (const auto& [name, elements] : parsed.buffers) {
    if (elements > rest.size() / sizeof(float)) {
      return absl::DataLossError(
          absl::StrCat("buffer ", name, " is cut short"));
    }
    std::vector<float> values(elements);
    if (elements > 0) {
      std::memcpy(values.data(), rest.data(), elements * sizeof(float));
    }
    rest.remove_prefix(elements * sizeof(float));
    checkpoint.buffers.push_back({name, std::move(values)});
  }
  return checkpoint;
}

// "checkpoint-000012.ckpt" gives 12; 0 for any other name.
uint64_t SequenceOf(const std::string& name) {
  uint64_t sequence = 0;
  if (!absl::StartsWith(name, "checkpoint-") ||
      !absl::EndsWith(name, ".ckpt")) {
    return 0;
  }
  for (const char c : name.substr(11, name.size() - 16)) {
    if (c < '0' || c > '9' || sequence > (1ull << 58)) return 0;
    sequence = sequence * 10 + static_cast<uint64_t>(c - '0');
  }
  return sequence;
}

}  // namespace

CheckpointStore::CheckpointStore(FileSystem* fs, std::string dir)
    : fs_(fs), dir_(std::move(dir)) {}

std::string CheckpointStore::Path(uint64_t sequence) const {
  return JoinPath(
      dir_, absl::StrCat("checkpoint-", absl::Dec(sequence, absl::kZeroPad6),
                         ".ckpt"));
}

absl::Status CheckpointStore::Write(CheckpointHeader header,
                                    absl::Span<const NamedBuffer> buffers) {
  header.sequence = next_sequence_;
  const std::string text = ToJson(header, buffers).dump();
  std::string prefix(kMagic, 8);
  PutU32(prefix, kFormat);
  PutU32(prefix, static_cast<uint32_t>(text.size()));
  const std::string path = Path(next_sequence_);
  const std::string temp = absl::StrCat(path, ".tmp");
  {
    ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                     fs_->OpenForWrite(temp));
    RETURN_IF_ERROR(file->Truncate(0));
    BlockDigester digester;
    uint64_t offset = 0;
    const auto put = [&](absl::string_view bytes) -> absl::Status {
      RETURN_IF_ERROR(file->WriteAt(offset, bytes));
      digester.Update(bytes);
      offset += bytes.size();
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(put(prefix));
    RETURN_IF_ERROR(put(text));
    for (const NamedBuffer& buffer : buffers) {
      RETURN_IF_ERROR(put({reinterpret_cast<const char*>(buffer.second.data()),
                           buffer.second.size() * sizeof(float)}));
    }
    RETURN_IF_ERROR(file->WriteAt(offset, digester.Finish().ToBytes()));
    RETURN_IF_ERROR(file->Sync());
  }
  RETURN_IF_ERROR(fs_->Rename(temp, path));
  RETURN_IF_ERROR(fs_->SyncDir(dir_));
  if (next_sequence_ > 2) {
    // The two newest stay.
    const std::string old = Path(next_sequence_ - 2);
    if (fs_->Exists(old)) RETURN_IF_ERROR(fs_->Remove(old));
  }
  ++next_sequence_;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointStore::LoadNewest() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_->List(dir_));
  std::vector<uint64_t> sequences;
  for (const std::string& name : names) {
    if (const uint64_t sequence = SequenceOf(name); sequence > 0) {
      sequences.push_back(sequence);
      next_sequence_ = std::max(next_sequence_, sequence + 1);
    }
  }
  std::sort(sequences.rbegin(), sequences.rend());
  for (const uint64_t sequence : sequences) {
    absl::StatusOr<Checkpoint> checkpoint = Read(fs_, Path(sequence));
    if (checkpoint.ok())
      return std::optional<Checkpoint>(*std::move(checkpoint));
    if (absl::IsFailedPrecondition(checkpoint.status())) {
      return WithContext(checkpoint.status(), Path(sequence));
    }
    DILOCO_LOG(WARNING) << "a checkpoint is damaged and passed over file="
                        << Path(sequence) << " error=\""
                        << checkpoint.status().message() << "\"";
  }
  return std::optional<Checkpoint>();
}

}  // namespace diloco
