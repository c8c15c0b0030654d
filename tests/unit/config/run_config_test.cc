// run.yaml: keys, presets, cross-checks, what it turns into.
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "coordinator/config.h"
#include "coordinator/presets.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"

namespace diloco {
namespace {

const char kRunBase[] = R"(run: {name: kjv}
model: {layers: 2, hidden: 64, heads: 4, ffn: 172, vocab: 512}
data: {seq_len: 64}
train: {tokens: 100M, batch_tokens: 512}
)";

const char kManifest[] = R"({"format": 1, "dtype": "uint16", "vocab": 512,
  "tokenizer": "tokenizer.model", "tokenizer_digest": "", "eos_id": -1,
  "shards": [{"file": "val.bin", "split": "valid", "file_bytes": 400,
    "digest": "", "tokens": 200, "documents": 1, "text_bytes": 700, "max_id": 257}]})";

void Put(FileSystem* fs, const std::string& path, const std::string& bytes) {
  REQUIRE(fs->CreateDirs(DirName(path)).ok());
  auto file = fs->OpenForWrite(path);
  REQUIRE(file.ok());
  REQUIRE((*file)->Truncate(0).ok());
  REQUIRE((*file)->WriteAt(0, bytes).ok());
}

absl::StatusOr<LoadedRun> Parse(const std::string& text) {
  FaultFileSystem fs;
  return ParseRunConfig(&fs, "run.yaml", text);
}

RunConfig Good(const std::string& text) {
  const auto loaded = Parse(text);
  CAPTURE(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return loaded->config;
}

std::vector<std::string> RunErrors(const std::string& text) {
  const auto loaded = Parse(text);
  if (loaded.ok()) return {};
  return absl::StrSplit(loaded.status().message(), '\n');
}

TEST_CASE("the smallest run file gets every default") {
  const RunConfig c = Good(kRunBase);
  CHECK(c.run == "kjv");
  CHECK(c.seed == 1);
  CHECK(c.model.kv_heads == 4);
  CHECK(c.model.head_dim == 16);
  CHECK(c.model.max_positions == 64);
  CHECK(c.train.tokens == 100'000'000);
  CHECK(c.train.seq_len == 64);
  CHECK(c.sync.interval == 100);
  CHECK(c.outer.lr == 0.7);
  CHECK(c.outer.momentum == 0.9);
  CHECK(c.outer.rule == OuterRule::kNesterov);
  CHECK(c.state.dir == "state");
  CHECK(c.state.image_every == 8);
  CHECK(c.listen.control == "127.0.0.1:7600");
  CHECK_FALSE(c.sync.deadline.has_value());
}

TEST_CASE("presets set defaults that keys override") {
  RunConfig c = Good(absl::StrCat(kRunBase, "sync: {preset: fedavg}\n"));
  CHECK(c.outer.rule == OuterRule::kSgd);
  CHECK(c.outer.lr == 1.0);
  CHECK(c.outer.momentum == 0.0);
  CHECK_FALSE(MakePolicy(c).nesterov);
  CHECK(PresetText(c) ==
        absl::StrCat("preset fedavg (", RowOf(Preset::kFedavg).source, ": ",
                     RowOf(Preset::kFedavg).published, "), as it is"));
  c = Good(absl::StrCat(kRunBase,
                        "sync: {preset: fedavg, interval: 7, up: fp32}\n",
                        "outer: {lr: 0.5}\n"));
  CHECK(c.sync.interval == 7);
  CHECK(c.sync.up == Codec::kFp32);
  CHECK(c.outer.lr == 0.5);
  CHECK(absl::EndsWith(
      PresetText(c),
      "; the file has sync.interval 7 instead of 100, sync.up fp32 instead of "
      "fp16, outer.lr 0.5 instead of 1"));
  // The rule sgd has no momentum, whatever the preset says.
  c = Good(absl::StrCat(kRunBase, "outer: {rule: sgd}\n"));
  CHECK(c.outer.momentum == 0.0);
  c = Good(
      absl::StrCat(kRunBase, "outer: {rule: nesterov, lr: 1, momentum: 0}\n"));
  CHECK(c.outer.momentum == 0.0);
}

TEST_CASE("codecs of updates, their error feedback and rounding") {
  const auto settings = [](const char* sync) {
    const RunConfig c = Good(absl::StrCat(kRunBase, "sync: {", sync, "}\n"));
    CHECK(MakePolicy(c).codec_up == c.sync.up);
    return MakeRunSettings(c, *BuildLayout(ModelTensors(c.model), 1));
  };
  for (Codec codec : kCodecs) {
    const RunSettings s =
        settings(absl::StrCat("up: ", CodecName(codec)).c_str());
    CHECK(s.codec_up == codec);
    CHECK(s.error_feedback ==
          (codec == Codec::kInt8 || codec == Codec::kInt8Buckets));
    CHECK_FALSE(s.stochastic_rounding);
  }
  CHECK(settings("up: e3m0, error_feedback: on").error_feedback);
  CHECK(settings("up: fp16, error_feedback: on").error_feedback);
  CHECK_FALSE(settings("up: int8, error_feedback: off").error_feedback);
  CHECK(settings("up: e3m0, rounding: stochastic").stochastic_rounding);
  for (const char* sync :
       {"up: fp32, error_feedback: on", "rounding: stochastic",
        "up: int8_buckets, rounding: stochastic", "error_feedback: 1",
        "rounding: up"}) {
    INFO(sync);
    CHECK_FALSE(Parse(absl::StrCat(kRunBase, "sync: {", sync, "}\n")).ok());
  }
}

TEST_CASE("fragments: what the file leaves open follows from it") {
  const auto sync = [](absl::string_view keys) {
    return Good(absl::StrCat(kRunBase, "sync: {", keys, "}\n")).sync;
  };
  // Of the two layers of this model.
  RunConfig::Sync s = sync("preset: streaming");
  CHECK(s.fragments == Fragmentation{FragmentPattern::kStrided, 2, {}});
  CHECK(s.interval == 100);
  CHECK(s.overlap == 2);
  CHECK(s.merge == MergeMode::kExact);
  CHECK(s.mix == 0.5);
  CHECK(s.up == Codec::kE3m0);
  s = sync("preset: streaming, fragments: 3, overlap: 0, mix: 0");
  CHECK(s.fragments == Fragmentation{FragmentPattern::kStrided, 3, {}});
  CHECK(s.overlap == 0);
  CHECK(s.mix == 0);
  CHECK(sync("interval: 5").fragments == Fragmentation());
  CHECK(sync("fragments: 5, pattern: balanced, interval: 5").fragments ==
        Fragmentation{FragmentPattern::kBalanced, 5, {}});
  s = sync("fragment_names: [\"*embed*\", \"*\"], merge: slip");
  CHECK(s.fragments ==
        Fragmentation{FragmentPattern::kNames, 2, {"*embed*", "*"}});
  CHECK(s.merge == MergeMode::kSlip);

  const RunConfig c =
      Good(absl::StrCat(kRunBase, "sync: {preset: streaming}\n"));
  const auto layout = ModelLayout(c.model, c.sync.fragments);
  REQUIRE(layout.ok());
  const RunSettings settings = MakeRunSettings(c, *layout);
  CHECK(settings.fragments == c.sync.fragments);
  CHECK(settings.overlap == 2);
  CHECK(settings.mix == 0.5);
  CHECK(settings.layout_digest !=
        BuildLayout(ModelTensors(c.model), 1)->ComputeDigest());
}

TEST_CASE("impossible fragments and overlaps: rule, range and place") {
  struct Case {
    const char* keys;
    const char* key;
    const char* words;
  };
  const Case cases[] = {
      {"fragments: 0", "sync.fragments", "from 1 to 100000"},
      {"fragments: 4", "sync.fragments", "expected from 2 to 3"},
      {"fragments: 3, pattern: sequential", "sync.fragments",
       "it has 2 layers; expected from 1 to 2"},
      {"fragments: 2, pattern: whole", "sync.fragments", "expected 1"},
      {"fragments: 90, pattern: balanced", "sync.fragments",
       "tensors; expected from 1 to"},
      {"fragments: 3, interval: 2", "sync.fragments",
       "3 fragments with sync.interval 2"},
      {"fragments: 3, interval: 9, interval_first: 2, rounds_first: 1",
       "sync.fragments", "sync.interval_first 2"},
      {"overlap: 100", "sync.overlap", "expected 0 to 99"},
      {"overlap: 5, interval: 9, interval_first: 5, rounds_first: 1",
       "sync.overlap", "expected 0 to 4"},
      {"overlap: -1", "sync.overlap", "expected"},
      {"mix: 1.5", "sync.mix", "expected a number from 0 to 1"},
      {"mix: -0.1", "sync.mix", "expected a number from 0 to 1"},
      {"merge: later", "sync.merge", "one of exact, slip"},
      {"pattern: names", "sync.fragment_names", "needs it"},
      {"fragments: 2, pattern: balanced, fragment_names: [\"*\", \"a\"]",
       "sync.fragment_names", "but sync.pattern is balanced"},
      {"fragments: 3, fragment_names: [\"*embed*\", \"*\"]",
       "sync.fragment_names", "expected 2"},
      {"fragment_names: [\"*embed*\"]", "sync.fragment_names",
       "no pattern matches"},
      {"fragment_names: []", "sync.fragment_names", "the list is empty"},
  };
  for (const Case& c : cases) {
    INFO(c.keys);
    const std::vector<std::string> errors =
        RunErrors(absl::StrCat(kRunBase, "sync: {", c.keys, "}\n"));
    REQUIRE(errors.size() == 1);
    CAPTURE(errors[0]);
    CHECK(absl::StartsWith(errors[0], "run.yaml:5:"));
    CHECK(absl::StrContains(errors[0], absl::StrCat(c.key, ": ")));
    CHECK(absl::StrContains(errors[0], c.words));
  }
}

TEST_CASE("quorum and grace are counts, durations or shares") {
  const auto policy = [](absl::string_view keys) {
    return MakePolicy(Good(absl::StrCat(kRunBase, "sync: {", keys, "}\n")));
  };
  Policy p = policy("interval: 100");
  CHECK(p.quorum == 0);
  CHECK(p.quorum_share == 0);
  CHECK_FALSE(p.steps_by_speed);
  p = policy("quorum: 90%, steps: by_speed");
  CHECK(p.quorum_share == 0.9);
  CHECK(p.grace_share == 0.05);
  CHECK(p.steps_by_speed);
  p = policy("quorum: 3, grace: 10s");
  CHECK(p.quorum == 3);
  CHECK(p.grace == absl::Seconds(10));
  CHECK(p.grace_share == 0);
  p = policy("quorum: 3, grace: 12.5%");
  CHECK(p.grace_share == 0.125);
  CHECK(p.grace == absl::ZeroDuration());
}

TEST_CASE("what this build does not have is refused by name") {
  struct Case {
    const char* line;
    const char* words;
  };
  const Case cases[] = {
      {"sync: {preset: decoupled}",
       "sync.preset: got decoupled: it is not available yet"},
      {"sync: {preset: async}", "not available yet"},
      {"sync: {preset: sparse}", "not available yet"},
      {"sync: {preset: eager}", "not available yet"},
      {"sync: {preset: dilico}", "one of diloco, fedavg, streaming"},
      {"sync: {quorum: 0.9}", "up to 100%"},
      {"sync: {quorum: 0}", "it is out of bounds"},
      {"sync: {quorum: 101%}", "it is out of bounds"},
      {"sync: {quorum: 300}", "expected 1 to 256"},
      {"sync: {grace: 5}", "sync.grace: got 5"},
      {"sync: {steps: fast}", "equal, by_speed"},
      {"sync: {up: topk2}", "not available yet"},
      {"sync: {down: fp16}", "not available yet"},
      {"sync: {late: discount}", "not available yet"},
      {"prices: {gpu_hour: -1}",
       "prices.gpu_hour: got -1: it is out of bounds"},
      {"sync: {deadline: 90}", "needs a unit"},
      {"sync: {min_updates: 300}", "more than join.max_workers 256"},
      {"join: {wait_for: 300}", "more than join.max_workers 256"},
      {"sync: {rounds_first: 10}", "go together"},
      {"outer: {rule: sgd, momentum: 0.5}", "has no momentum"},
      {"outer: {momentum: 1}", "outer.momentum: got 1: it is out of bounds"},
      {"eval: {shard: gone.bin}", "eval.shard: "},
  };
  for (const Case& c : cases) {
    INFO(c.line);
    const std::vector<std::string> errors =
        RunErrors(absl::StrCat(kRunBase, c.line, "\n"));
    REQUIRE(errors.size() == 1);
    CAPTURE(errors[0]);
    CHECK(absl::StartsWith(errors[0], "run.yaml:5:"));
    CHECK(absl::StrContains(errors[0], c.words));
  }
  const auto with = [](const char* from, const char* to) {
    return RunErrors(absl::StrReplaceAll(kRunBase, {{from, to}}));
  };
  CHECK(absl::StrContains(
      with("seq_len: 64", "seq_len: 64, assignment: leased")[0],
      "run.yaml:3:33: data.assignment: got leased: it is not available yet"));
  CHECK(absl::StrContains(with("512}", "512, precision: bf16}")[1],
                          "bf16: it is not available yet"));
}

TEST_CASE("cross-checks name both sides") {
  const auto one = [](const char* from, const char* to) {
    const std::vector<std::string> errors =
        RunErrors(absl::StrReplaceAll(kRunBase, {{from, to}}));
    CAPTURE(absl::StrCat(from, " -> ", to), errors);
    REQUIRE(errors.size() == 1);
    return errors[0];
  };
  CHECK(one("batch_tokens: 512", "batch_tokens: 500") ==
        "run.yaml:4:23: train.batch_tokens: 500 is no multiple of data.seq_len "
        "64");
  CHECK(absl::StrContains(one("100M", "100"), "100 is less than one step"));
  CHECK(absl::StrContains(one("heads: 4", "heads: 5"),
                          "model.hidden: 64 is no multiple of model.heads 5"));
  CHECK(absl::StrContains(one("heads: 4", "heads: 4, kv_heads: 3"),
                          "kv_heads 3 does not divide heads 4"));
  CHECK(absl::StrContains(one("heads: 4", "heads: 4, head_dim: 15"), "odd"));
  CHECK(absl::StrContains(one("heads: 4", "heads: 4, max_positions: 32"),
                          "64 is more than the model's 32 positions"));
  CHECK(absl::StrContains(
      one("batch_tokens: 512",
          "batch_tokens: 512, schedule: {warmup_tokens: 101M}"),
      "more than train.tokens"));
  CHECK(absl::StrContains(
      one("batch_tokens: 512",
          "batch_tokens: 512, schedule: {warmup_tokens: 90M}"),
      "longer than the run"));
  CHECK(absl::StrContains(one("layers: 2, ", ""),
                          "model.layers: required key is missing"));
  CHECK(absl::StrContains(one("data: {seq_len: 64}", "data: {manifest: none}"),
                          "data.seq_len: required key is missing"));
}

TEST_CASE("C4.1 to C4.4 a file full of mistakes reports them all at once") {
  const std::vector<std::string> errors =
      RunErrors(R"(run: {name: null, seed: -1}
model: {layers: 010, hidden: 64, heads: 4, ffn: 172, vocab: 5e2, tied: y}
data: {seq_len: "64"}
train:
  tokens: 1,000
  batch_tokens:
  optimizer: {lr: 1e-400, betas: [0.9, .nan], clip: .inf}
sync:
  intervall: 3
  up: fp16
  up: fp32
)");
  REQUIRE(errors.size() == 13);
  int line = 0;
  for (const std::string& error : errors) {
    CAPTURE(error);
    const std::vector<std::string> parts = absl::StrSplit(error, ':');
    REQUIRE(parts.size() > 4);
    REQUIRE(std::stoi(parts[1]) >= line);
    line = std::stoi(parts[1]);
  }
}

TEST_CASE("a momentum of 0.9 in a short run warns") {
  const auto warnings = [](const std::string& text) {
    const auto loaded = Parse(text);
    REQUIRE(loaded.ok());
    return loaded->warnings;
  };
  CHECK(warnings(kRunBase).empty());
  const std::string brief = absl::StrReplaceAll(kRunBase, {{"100M", "1M"}});
  REQUIRE(warnings(brief).size() == 1);
  CHECK(absl::StrContains(
      warnings(brief)[0],
      "outer.momentum: momentum 0.9 in a run of about 19 outer steps"));
  CHECK(warnings(brief + "outer: {momentum: 0.5}\n").empty());
  CHECK(warnings(brief + "sync: {interval: 5}\n").empty());
}

TEST_CASE("keys without effect in this build are accepted with a warning") {
  const auto loaded = Parse(absl::StrCat(
      kRunBase,
      "export: {every: 50, keep: 3}\n"
      "guard: {eval_rise: 0.3, action: pause}\neval: {every: 1 round}\n"));
  REQUIRE(loaded.ok());
  REQUIRE(loaded->warnings.size() == 4);
  CHECK(loaded->warnings[0] ==
        "run.yaml:5:10: export.every: set, but it has no effect in this build");
  for (const char* key : {"eval.every: set", "guard.eval_rise: set"}) {
    INFO(key);
    CHECK(std::any_of(loaded->warnings.begin(), loaded->warnings.end(),
                      [key](const std::string& warning) {
                        return absl::StrContains(warning, key) &&
                               absl::StrContains(
                                   warning,
                                   "nothing is evaluated without eval.shard");
                      }));
  }
}

TEST_CASE(
    "files that the run file names are read, checked and part of the digest") {
  FaultFileSystem fs;
  Put(&fs, "conf/val.bin", std::string(2 * 200, '\1'));  // Id 257.
  Put(&fs, "conf/tok/tokenizer.model", "model bytes");
  Put(&fs, "conf/tok/vocab.json", "{}");
  Put(&fs, "conf/tok/unrelated.txt", "x");
  const std::string manifest = kManifest;
  Put(&fs, "conf/dataset.json", manifest);
  const std::string text = absl::StrCat(
      absl::StrReplaceAll(
          kRunBase, {{"seq_len: 64",
                      "seq_len: 64, tokenizer: tok, manifest: dataset.json"}}),
      "eval: {shard: val.bin, every: 2 rounds, tokens: 130}\nstate: {dir: "
      "st}\n");
  const auto loaded = ParseRunConfig(&fs, "conf/run.yaml", text);
  CAPTURE(loaded.status().ToString());
  REQUIRE(loaded.ok());
  const RunConfig& c = loaded->config;
  REQUIRE(c.data.tokenizer_files.size() == 2);
  CHECK(c.data.tokenizer_files[0].path == "conf/tok/tokenizer.model");
  CHECK(c.data.manifest->path == "conf/dataset.json");
  CHECK(c.data.bytes_per_token == 3.5);
  CHECK(loaded->warnings.empty());
  CHECK(c.state.dir == "conf/st");
  CHECK(c.eval.shard_ids == 200);
  const Policy policy = MakePolicy(c);
  CHECK(policy.eval_every == 2);
  CHECK(policy.eval_windows == 2);

  const Digest before = SettingsDigest(c);
  const auto moved = ParseRunConfig(
      &fs, "conf/other.yaml",
      text + "keep: {last: 9}\nlisten: {control: \"localhost:0\"}\n");
  REQUIRE(moved.ok());
  CHECK(SettingsDigest(moved->config) == before);
  const auto digest_after = [&](const std::string& path,
                                const std::string& bytes) {
    const std::string old = *ReadFile(&fs, path);
    Put(&fs, path, bytes);
    const auto again = ParseRunConfig(&fs, "conf/run.yaml", text);
    Put(&fs, path, old);
    REQUIRE(again.ok());
    return SettingsDigest(again->config);
  };
  CHECK(digest_after("conf/tok/tokenizer.model", "other") != before);
  CHECK(digest_after("conf/dataset.json", manifest + " ") != before);
  CHECK(digest_after("conf/val.bin", std::string(2 * 200, '\0')) != before);
  CHECK(digest_after("conf/tok/vocab.json", "{}") == before);

  struct Case {
    std::string bytes;
    const char* words;
  };
  const Case cases[] = {
      {std::string(399, '\1'), "399 bytes: an odd number"},
      {std::string(2 * 64, '\1'), "has 64 ids; a window needs 65"},
      {std::string(398, '\1') + std::string("\x00\x02", 2),
       "id 512 at index 199 is not below the vocabulary of 512"},
      {"", "0 ids"},
  };
  for (const Case& bad : cases) {
    Put(&fs, "conf/val.bin", bad.bytes);
    const auto refused = ParseRunConfig(&fs, "conf/run.yaml", text);
    CAPTURE(refused.status().ToString());
    REQUIRE_FALSE(refused.ok());
    CHECK(absl::StrContains(refused.status().message(),
                            "conf/run.yaml:5:8: eval.shard: "));
    CHECK(absl::StrContains(refused.status().message(), bad.words));
  }
}

TEST_CASE(
    "a manifest that is not as tokenize writes it is an error, no crash") {
  struct Case {
    const char* from;
    const char* to;
    const char* words;
  };
  const Case cases[] = {
      {"\"val.bin\"", "7", "shards[0]: file: not a string"},
      {"\"tokens\": 200", "\"tokens\": \"200\"", "shards[0]: tokens: "},
      {"\"tokens\": 200", "\"tokens\": 1.5", "shards[0]: tokens: "},
      {"\"text_bytes\": 700", "\"text_bytes\": null",
       "shards[0]: text_bytes: "},
      {"\"text_bytes\": 700, ", "", "missing key text_bytes"},
      {"\"format\": 1", "\"format\": 9", "format 9"},
      {"{", "", "not valid JSON"},
  };
  for (const Case& bad : cases) {
    FaultFileSystem fs;
    std::string manifest = kManifest;
    manifest.replace(manifest.find(bad.from), std::strlen(bad.from), bad.to);
    Put(&fs, "dataset.json", manifest);
    const auto refused = ParseRunConfig(
        &fs, "run.yaml",
        absl::StrReplaceAll(
            kRunBase,
            {{"seq_len: 64", "seq_len: 64, manifest: dataset.json"}}));
    CAPTURE(refused.status().ToString());
    REQUIRE_FALSE(refused.ok());
    CHECK(absl::StrContains(refused.status().message(),
                            "data.manifest: dataset.json"));
    CHECK(absl::StrContains(refused.status().message(), bad.words));
  }
}

TEST_CASE("a tokenizer file whose name an export could not have is refused") {
  for (const char* name :
       {"my tokenizer.json", ".hidden.json", "a\xc3\xa9.json"}) {
    FaultFileSystem fs;
    Put(&fs, name, "{}");
    const auto refused = ParseRunConfig(
        &fs, "run.yaml",
        absl::StrReplaceAll(
            kRunBase,
            {{"seq_len: 64",
              absl::StrCat("seq_len: 64, tokenizer: \"", name, "\"")}}));
    CAPTURE(refused.status().ToString());
    REQUIRE_FALSE(refused.ok());
    CHECK(absl::StrContains(refused.status().message(), "data.tokenizer: "));
    CHECK(absl::StrContains(refused.status().message(), "rename it"));
  }
}

TEST_CASE("the settings are text with a line for each key of the run") {
  const std::string text = SettingsText(Good(kRunBase));
  CHECK(absl::StrContains(text, "sync.interval = 100\n"));
  CHECK(absl::StrContains(text, "model.vocab = 512\n"));
  CHECK_FALSE(absl::StrContains(text, "listen."));
  CHECK_FALSE(absl::StrContains(text, "state."));
  CHECK_FALSE(absl::StrContains(text, "keep."));
  CHECK(SettingsDigest(Good(kRunBase)) == Sha256(text));
}

TEST_CASE("a tokenizer with more ids than the model has rows is refused") {
  FaultFileSystem fs;
  // Three SentencePiece pieces: a, b, c.
  Put(&fs, "t.model",
      "\n\x03\n\x01"
      "a"
      "\n\x03\n\x01"
      "b"
      "\n\x03\n\x01"
      "c");
  const std::string text = absl::StrReplaceAll(
      kRunBase,
      {{"vocab: 512", "vocab: 2"}, {"64}\n", "64, tokenizer: t.model}\n"}});
  const auto refused = ParseRunConfig(&fs, "run.yaml", text);
  CAPTURE(refused.status().ToString());
  REQUIRE_FALSE(refused.ok());
  CHECK(absl::StrContains(
      refused.status().message(),
      "data.tokenizer: t.model has 3 pieces, the model's vocabulary only 2"));
  CHECK(ParseRunConfig(&fs, "run.yaml",
                       absl::StrReplaceAll(text, {{"vocab: 2", "vocab: 3"}}))
            .ok());
}

TEST_CASE("each setting of the run moves the digest, local ones do not") {
  const Digest base = SettingsDigest(Good(kRunBase));
  for (const char* line :
       {"sync: {interval: 99}", "outer: {lr: 0.6}", "outer: {momentum: 0.8}",
        "sync: {up: fp32}", "sync: {error_feedback: on}",
        "sync: {up: e3m0, rounding: stochastic}", "sync: {weight: uniform}",
        "sync: {late: reject}", "sync: {deadline: 5m}", "join: {ramp_steps: 3}",
        "join: {wait_for: 2}", "guard: {eval_rise: 0.1}"}) {
    INFO(line);
    CHECK(SettingsDigest(Good(absl::StrCat(kRunBase, line, "\n"))) != base);
  }
  for (const char* line : {"keep: {last: 7}", "listen: {control: \"h:1\"}",
                           "state: {dir: x}", "export: {every: 9}"}) {
    INFO(line);
    CHECK(SettingsDigest(Good(absl::StrCat(kRunBase, line, "\n"))) == base);
  }
  CHECK(SettingsDigest(Good(
            absl::StrReplaceAll(kRunBase, {{"100M", "100000k"}}))) == base);
  CHECK(SettingsDigest(Good(absl::StrReplaceAll(
            kRunBase, {{"ffn: 172", "ffn: 173"}}))) != base);
}

TEST_CASE("printing the effective values reads back to the same run") {
  const RunConfig c =
      Good(absl::StrCat(kRunBase,
                        "sync: {preset: fedavg, deadline: 90s, interval_first: "
                        "10, rounds_first: 10}\n"));
  const std::string printed = PrintRunConfig(c);
  CHECK(absl::StrContains(printed, "  eps: 1.0e-08\n"));
  CHECK(absl::StrContains(printed, "  deadline: 90s\n"));
  const auto again = Parse(printed);
  CAPTURE(printed, again.status().ToString());
  REQUIRE(again.ok());
  CHECK(PrintRunConfig(again->config) == printed);
  CHECK(SettingsDigest(again->config) == SettingsDigest(c));
}

TEST_CASE("policy and run settings carry the file's values") {
  const RunConfig c = Good(absl::StrCat(
      kRunBase,
      "sync: {interval: 25, interval_first: 10, rounds_first: 3, "
      "min_updates: 2, short_round: fold, late: reject, weight: uniform, "
      "deadline: 2m, up: fp32}\njoin: {wait_for: 2, lease: 7s}\n"
      "outer: {lr: 0.5, momentum: 0.25}\n"));
  const Policy p = MakePolicy(c);
  CHECK(p.train_tokens == 100'000'000);
  CHECK(p.batch_tokens == 512);
  CHECK(p.interval == 25);
  CHECK(p.interval_first == 10);
  CHECK(p.rounds_first == 3);
  CHECK(p.min_updates == 2);
  CHECK(p.short_round == ShortRound::kFold);
  CHECK(p.late == LatePolicy::kReject);
  CHECK(p.weighting == Weighting::kUniform);
  CHECK(p.deadline == absl::Minutes(2));
  CHECK(p.wait_for == 2);
  CHECK(p.lease == absl::Seconds(7));
  CHECK(p.suspect_after == absl::Seconds(5));
  CHECK(p.outer_lr == 0.5);
  CHECK(p.outer_momentum == 0.25);
  CHECK(p.codec_up == Codec::kFp32);
  CHECK(p.eval_every == 0);
  const auto layout = BuildLayout(ModelTensors(c.model), 1);
  REQUIRE(layout.ok());
  const RunSettings s = MakeRunSettings(c, *layout);
  CHECK(s.run == "kjv");
  CHECK(s.model == c.model);
  CHECK(s.train == c.train);
  CHECK(s.fragments == Fragmentation());
  CHECK(s.layout_digest == layout->ComputeDigest());
}

TEST_CASE("merge rule, outer schedule and screens: values and defaults") {
  const Policy standard = MakePolicy(Good(kRunBase));
  CHECK(standard.merge == MergeRule::kMean);
  CHECK(standard.outer_schedule == OuterSchedule());
  CHECK(standard.screen_norm == 20);
  CHECK(standard.screen_replay);
  const RunConfig c = Good(
      absl::StrCat(kRunBase,
                   "sync: {merge_rule: radial_directional}\n"
                   "outer:\n  rule: heavy_ball\n  schedule: {shape: cosine, "
                   "warmup_rounds: 5, decay_rounds: 100, min_lr: 0.4}\n"
                   "screen: {norm: never, replay: false}\n"));
  const Policy p = MakePolicy(c);
  CHECK(p.merge == MergeRule::kRadialDirectional);
  CHECK_FALSE(p.nesterov);
  CHECK(p.outer_momentum == 0.9);
  CHECK(p.outer_schedule == OuterSchedule{OuterShape::kCosine, 5, 100, 0.4});
  CHECK(p.screen_norm == 0);
  CHECK_FALSE(p.screen_replay);
  CHECK(p.inner_lr == c.train.lr);
  const auto again = Parse(PrintRunConfig(c));
  REQUIRE(again.ok());
  CHECK(MakePolicy(again->config).outer_schedule == p.outer_schedule);
}

TEST_CASE("merge rule, outer schedule and screens: what is refused") {
  const auto error = [](const std::string& text) {
    return std::string(Parse(absl::StrCat(kRunBase, text)).status().message());
  };
  CHECK(absl::StrContains(error("sync: {merge_rule: median}\n"),
                          "sync.merge_rule"));
  CHECK(absl::StrContains(error("outer: {schedule: {shape: linear}}\n"),
                          "outer.schedule.decay_rounds: the shape linear or "
                          "cosine needs it"));
  CHECK(absl::StrContains(
      error("outer: {schedule: {shape: linear, decay_rounds: 5, min_lr: 2}}\n"),
      "outer.schedule.min_lr"));
  CHECK(absl::StrContains(error("screen: {norm: 1}\n"), "screen.norm"));
  CHECK(absl::StrContains(error("screen: {norms: 5}\n"), "screen.norms"));
  const auto idle =
      Parse(absl::StrCat(kRunBase, "outer: {schedule: {decay_rounds: 7}}\n"));
  REQUIRE(idle.ok());
  CHECK(idle->warnings.size() == 1);
}

TEST_CASE("C4.5 files that cannot be read are errors that name them") {
  FileSystem* fs = FileSystem::Posix();
  for (const char* path : {"/nonexistent/run.yaml", "/tmp"}) {
    INFO(path);
    const auto loaded = LoadRunConfig(fs, path);
    REQUIRE_FALSE(loaded.ok());
    CHECK(absl::StrContains(loaded.status().message(), path));
  }
}

TEST_CASE("a Hugging Face directory gives the model's shape") {
  FaultFileSystem fs;
  Put(&fs, "base/config.json",
      R"({"model_type": "llama", "num_hidden_layers": 2,
      "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128,
      "vocab_size": 300, "max_position_embeddings": 64})");
  const std::string text = absl::StrReplaceAll(
      kRunBase,
      {{"model: {layers: 2, hidden: 64, heads: 4, ffn: 172, vocab: 512}",
        "model: {from: base, z_loss: 1e-4}"}});
  const auto loaded = ParseRunConfig(&fs, "run.yaml", text);
  CAPTURE(loaded.status().ToString());
  REQUIRE(loaded.ok());
  CHECK(loaded->config.model_dir == "base");
  CHECK(loaded->config.model.vocab == 300);
  CHECK(loaded->config.model.z_loss == 1e-4);
  const auto again =
      ParseRunConfig(&fs, "run.yaml", PrintRunConfig(loaded->config));
  REQUIRE(again.ok());
  CHECK(SettingsDigest(again->config) == SettingsDigest(loaded->config));

  const auto both = ParseRunConfig(
      &fs, "run.yaml",
      absl::StrReplaceAll(text, {{"from: base", "from: base, layers: 2"}}));
  REQUIRE_FALSE(both.ok());
  CHECK(absl::StrContains(both.status().message(),
                          "model.layers: comes from base/config.json"));
  const auto gone =
      ParseRunConfig(&fs, "run.yaml",
                     absl::StrReplaceAll(text, {{"from: base", "from: gone"}}));
  REQUIRE_FALSE(gone.ok());
  CHECK(
      absl::StrContains(gone.status().message(), "run.yaml:2:9: model.from: "));
  CHECK(absl::StrContains(gone.status().message(), "gone/config.json"));
}

}  // namespace
}  // namespace diloco
