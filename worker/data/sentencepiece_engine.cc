// Loads the plug-in that holds the SentencePiece library and forwards to it.
#include "worker/data/sentencepiece_engine.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include "worker/data/sentencepiece/plugin.h"

namespace diloco {
namespace {

// Beside the program, as the build and an installation lay it.
std::string PluginPath() {
  char self[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof(self));
  const std::string program(self, n > 0 ? static_cast<size_t>(n) : 0);
  return program.substr(0, program.rfind('/') + 1) +
         "libdiloco_sentencepiece.so";
}

struct Loaded {
  const SentencePiecePlugin* plugin = nullptr;
  std::string error;
};

const Loaded& LoadPlugin() {
  static const Loaded loaded = [] {
    Loaded out;
    int flags = RTLD_NOW | RTLD_LOCAL;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    // Its symbols before ours: two protobuf runtimes live in this process. The
    // sanitizers do not allow it; their tests of it link no protobuf.
    flags |= RTLD_DEEPBIND;
#endif
    void* const library = ::dlopen(PluginPath().c_str(), flags);
    if (library == nullptr) {
      const char* const why = ::dlerror();
      out.error = "cannot load the SentencePiece plug-in: ";
      out.error += why == nullptr ? PluginPath() : why;
      return out;
    }
    const auto entry = reinterpret_cast<SentencePiecePluginEntry>(
        ::dlsym(library, kSentencePiecePluginSymbol));
    if (entry == nullptr) {
      out.error = PluginPath() + " is not this build's SentencePiece plug-in";
    } else {
      out.plugin = entry();
    }
    return out;
  }();
  return loaded;
}

}  // namespace

struct SentencePieceEngine::Impl {
  std::unique_ptr<SentencePiecePlugin::Processor> processor;
};

SentencePieceEngine::SentencePieceEngine() : impl_(std::make_unique<Impl>()) {
  if (LoadPlugin().plugin != nullptr)
    impl_->processor = LoadPlugin().plugin->NewProcessor();
}
SentencePieceEngine::~SentencePieceEngine() = default;

std::string SentencePieceEngine::Load(std::string_view serialized) {
  if (impl_->processor == nullptr) return LoadPlugin().error;
  return impl_->processor->Load(serialized);
}

std::string SentencePieceEngine::Encode(std::string_view text,
                                        std::vector<int32_t>* ids) const {
  if (impl_->processor == nullptr) return LoadPlugin().error;
  return impl_->processor->Encode(text, ids);
}

std::string SentencePieceEngine::Decode(const std::vector<int32_t>& ids,
                                        std::string* text) const {
  if (impl_->processor == nullptr) return LoadPlugin().error;
  return impl_->processor->Decode(ids, text);
}

int32_t SentencePieceEngine::size() const {
  return impl_->processor == nullptr ? 0 : impl_->processor->size();
}

int32_t SentencePieceEngine::eos_id() const {
  return impl_->processor == nullptr ? -1 : impl_->processor->eos_id();
}

std::string TrainSentencePiece(
    const std::unordered_map<std::string, std::string>& options,
    const std::function<bool(std::string*)>& next,
    std::string* serialized_model) {
  if (LoadPlugin().plugin == nullptr) return LoadPlugin().error;
  return LoadPlugin().plugin->Train(options, next, serialized_model);
}

}  // namespace diloco
