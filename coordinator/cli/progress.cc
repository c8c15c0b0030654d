#include "coordinator/cli/progress.h"

#include <unistd.h>

#include <cstdio>

#include "coordinator/cli/format.h"

namespace diloco {

CopyProgress::CopyProgress() : show_(isatty(STDERR_FILENO) != 0) {}

CopyProgress::~CopyProgress() {
  if (show_) std::fprintf(stderr, "\r%30s\r", "");
}

std::function<void(uint64_t)> CopyProgress::callback() const {
  return [show = show_](uint64_t bytes) {
    if (!show) return;
    std::fprintf(stderr, "\rcopied %s ",
                 FormatBytes(static_cast<double>(bytes)).c_str());
  };
}

}  // namespace diloco
