// Implements sample.h.
#include "worker/tools/sample.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/io/file_system.h"
#include "common/model/hf_directory.h"
#include "common/tensor/layout.h"
#include "worker/data/tokenizer.h"
#include "worker/limits.h"
#include "worker/tools/flags.h"
#include "worker/train/generator.h"

namespace diloco {
namespace {

// Far beyond what anybody reads; each one takes memory until the end.
constexpr uint64_t kMaxTokens = 1 << 20;

struct SampleSettings {
  std::string model;
  std::string prompt;
  std::string tokenizer;
  uint64_t threads = 1;
  SampleOptions options;
};

absl::StatusOr<std::string> Sample(FileSystem* fs,
                                   const SampleSettings& settings) {
  ASSIGN_OR_RETURN(const ModelConfig config, ReadHfConfig(fs, settings.model));
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(ModelTensors(config), 1));
  std::vector<float> theta(layout.elements);
  RETURN_IF_ERROR(
      ReadHfWeights(fs, settings.model, config, layout, absl::MakeSpan(theta)));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Tokenizer> tokenizer,
      OpenTokenizer(fs, settings.tokenizer.empty()
                            ? JoinPath(settings.model, "tokenizer.model")
                            : settings.tokenizer));
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                   tokenizer->Encode(settings.prompt));
  SampleOptions options = settings.options;
  options.stop_id = tokenizer->eos_id();
  if (prompt.empty()) {
    if (!options.stop_id.has_value()) {
      return absl::InvalidArgumentError(
          "--prompt is empty, and this tokenizer has no id that starts a text");
    }
    prompt.push_back(*options.stop_id);
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Generator> generator,
      MakeGenerator(config, layout, theta, static_cast<int>(settings.threads)));
  ASSIGN_OR_RETURN(const std::vector<int32_t> generated,
                   generator->Generate(prompt, options));
  // Decoded as one text: pieces at the seam share characters and spaces. The
  // model may have more rows than the tokenizer has ids.
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), generated.begin(), generated.end());
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](int32_t id) { return id >= tokenizer->size(); }),
            all.end());
  return tokenizer->Decode(all);
}

}  // namespace

int RunSample(int argc, char** argv) {
  SampleSettings settings;
  Flags flags("sample", "Continues a prompt with a trained model.");
  flags.Text("model", &settings.model, "Hugging Face directory");
  flags.Text("prompt", &settings.prompt, "the text to continue");
  flags.Text("tokenizer", &settings.tokenizer,
             "SentencePiece model, or bytes; default: MODEL/tokenizer.model");
  flags.Count("tokens", &settings.options.tokens, "new tokens at most", 1,
              kMaxTokens);
  flags.Real("temperature", &settings.options.temperature,
             "0: always the most likely token");
  flags.Real("top-p", &settings.options.top_p,
             "draw from the most likely tokens with this much probability");
  flags.Count("seed", &settings.options.seed, "the same seed, the same text");
  flags.Count("threads", &settings.threads, "of LibTorch", 1, kMaxThreads);
  flags.Require("model");
  if (const auto code = flags.Parse(argc, argv)) return *code;
  const absl::StatusOr<std::string> text =
      Sample(FileSystem::Posix(), settings);
  if (!text.ok()) {
    absl::FPrintF(stderr, "sample: %s\n", text.status().message());
    return ExitCodeOfTool(text.status());
  }
  absl::PrintF("%s\n", *text);
  return kExitOk;
}

}  // namespace diloco
