// Which instruction set the bulk loops of this library and of the fold use.
// Each loop is written once, in plain C++, as an always-inlined body and
// compiled for every path below; the paths give the same bits and differ in
// speed only. An explicit table instead of target_clones, so that tests can
// call each path, and because the sanitizers cannot run ifunc resolvers.
//
//   DILOCO_INLINE_BODY void ScaleBody(float* x, size_t n) { ... }
//   DILOCO_DEFINE_PATHS(Scale, (float* x, size_t n), (x, n))
//   ScalePaths[PathIndex(BestCpuPath())](x, n);
#ifndef COMMON_TENSOR_CPU_PATH_H_
#define COMMON_TENSOR_CPU_PATH_H_

#include <cstddef>

namespace diloco {

// kAvx2 includes F16C, kAvx512 is F, BW, DQ and VL besides.
enum class CpuPath { kPortable = 0, kAvx2 = 1, kAvx512 = 2 };

inline constexpr CpuPath kCpuPaths[] = {CpuPath::kPortable, CpuPath::kAvx2,
                                        CpuPath::kAvx512};

const char* CpuPathName(CpuPath path);  // "portable", "avx2", "avx512"
bool CpuHasPath(CpuPath path);
// The fastest path that this CPU has.
CpuPath BestCpuPath();

inline size_t PathIndex(CpuPath path) { return static_cast<size_t>(path); }

}  // namespace diloco

#define DILOCO_INLINE_BODY static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define DILOCO_TARGET_AVX2 __attribute__((target("avx2,f16c")))
#define DILOCO_TARGET_AVX512 \
  __attribute__((target(     \
      "f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#else
#define DILOCO_TARGET_AVX2
#define DILOCO_TARGET_AVX512
#endif

// Defines the table `name##Paths` of the functions that inline `name##Body`.
#define DILOCO_DEFINE_PATHS(name, parameters, arguments)          \
  static void name##Portable parameters { name##Body arguments; } \
  DILOCO_TARGET_AVX2 static void name##Avx2 parameters {          \
    name##Body arguments;                                         \
  }                                                               \
  DILOCO_TARGET_AVX512 static void name##Avx512 parameters {      \
    name##Body arguments;                                         \
  }                                                               \
  static constexpr void(*name##Paths[])                           \
      parameters = {name##Portable, name##Avx2, name##Avx512};

#endif  // COMMON_TENSOR_CPU_PATH_H_
