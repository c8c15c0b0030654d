#include "worker/update/residual.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/error_feedback.h"

namespace diloco {
namespace {

constexpr absl::string_view kBefore = "residual";
constexpr absl::string_view kAfter = "residual_after";

std::string NameOf(absl::string_view name, uint32_t fragment) {
  return fragment == 0 ? std::string(name) : absl::StrCat(name, ".", fragment);
}

}  // namespace

PartEncoding Residual::Begin(bool wanted, size_t elements, Rounding rounding) {
  PartEncoding encoding;
  encoding.rounding = rounding;
  after_.clear();
  if (!wanted && std::all_of(before_.begin(), before_.end(),
                             [](float value) { return value == 0; })) {
    before_.clear();
    return encoding;
  }
  if (before_.size() != elements) before_.assign(elements, 0.0f);
  after_.assign(elements, 0.0f);
  encoding.residual = before_;
  if (wanted) encoding.error = absl::MakeSpan(after_);
  return encoding;
}

void Residual::Accepted() {
  if (!pending()) return;
  before_ = std::move(after_);
  after_.clear();
}

absl::Status Residual::Refused(const PartReader& update) {
  if (!pending()) return absl::OkStatus();
  std::vector<float> decoded;
  for (int64_t i = 0; i < update.frames(); ++i) {
    decoded.resize(static_cast<size_t>(update.FrameElements(i)));
    const absl::Status read = update.ReadFrame(i, absl::MakeSpan(decoded));
    if (!read.ok()) {
      Late();
      return read;
    }
    GiveBack(decoded,
             absl::MakeSpan(after_).subspan(
                 static_cast<size_t>(i * kFrameElements), decoded.size()));
  }
  Accepted();
  return absl::OkStatus();
}

void Residual::Late() { after_.clear(); }

void Residual::Lost() {
  if (pending()) Clear();
}

void Residual::Clear() {
  before_.clear();
  after_.clear();
}

void Residual::Export(uint32_t fragment,
                      std::vector<NamedBuffer>* buffers) const {
  if (!before_.empty()) {
    buffers->push_back({NameOf(kBefore, fragment), before_});
  }
  if (!after_.empty()) buffers->push_back({NameOf(kAfter, fragment), after_});
}

bool Residual::Import(uint32_t fragment, const NamedBuffer& buffer) {
  const bool before = buffer.first == NameOf(kBefore, fragment);
  if (!before && buffer.first != NameOf(kAfter, fragment)) return false;
  (before ? before_ : after_) = buffer.second;
  return true;
}

}  // namespace diloco
