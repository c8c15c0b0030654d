// CPU detection for the bulk loops.
#include "common/tensor/cpu_path.h"

namespace diloco {

const char* CpuPathName(CpuPath path) {
  switch (path) {
    case CpuPath::kPortable:
      return "portable";
    case CpuPath::kAvx2:
      return "avx2";
    case CpuPath::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool CpuHasPath(CpuPath path) {
#if defined(__x86_64__)
  switch (path) {
    case CpuPath::kPortable:
      return true;
    case CpuPath::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    case CpuPath::kAvx512:
      return CpuHasPath(CpuPath::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return path == CpuPath::kPortable;
#endif
}

CpuPath BestCpuPath() {
  static const CpuPath best = [] {
    if (CpuHasPath(CpuPath::kAvx512)) return CpuPath::kAvx512;
    if (CpuHasPath(CpuPath::kAvx2)) return CpuPath::kAvx2;
    return CpuPath::kPortable;
  }();
  return best;
}

}  // namespace diloco
