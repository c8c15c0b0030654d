// The fold in blocks of two cache lines: the sums of a block stay in registers
// over all members and become the outer step at once, so that every byte moves
// through the caches one time.
#include "coordinator/aggregate/fold_kernel.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/base/logging.h"
#include "common/tensor/half_math.h"

namespace diloco {
namespace {

constexpr size_t kBlock = 32;
// Of the sum of squares: value i of a tile goes to lane i mod 16.
constexpr size_t kLanes = 16;
// How far ahead of its use a line is asked for, in bytes. The processor's own
// prefetcher loses the many streams at every page.
constexpr size_t kAhead = 1024;

// What all values of a tile have in common.
struct Job {
  Job(absl::Span<const FoldInput> all, const OuterSettings& outer,
      uint64_t total_weight)
      : inputs(all),
        divisor(1.0 / static_cast<double>(total_weight)),
        lr(outer.lr),
        mu(outer.momentum),
        mean_share(outer.nesterov ? 1.0f : 0.0f),
        momentum_share(outer.nesterov ? outer.momentum : 1.0f) {}

  const absl::Span<const FoldInput> inputs;
  const double divisor;
  const float lr, mu;
  // One formula for both kinds of momentum, so that the loop has no branch:
  // Nesterov takes the mean plus mu times m, the plain kind m itself.
  const float mean_share, momentum_share;
};

// `n` is a multiple of kBlock.
using FoldBlocksLoop = void (*)(const Job& job, size_t n, float* momentum,
                                float* change, double* lanes);
struct Loops {
  FoldBlocksLoop fold_fp32, fold_fp16, fold_bf16;
  void (*apply)(const float* change, size_t n, float* theta);
};

__attribute__((always_inline)) inline void PrefetchForWrite(
    const float* block) {
  const char* ahead = reinterpret_cast<const char*>(block) + kAhead;
  __builtin_prefetch(ahead, 1);
  __builtin_prefetch(ahead + 64, 1);
}

namespace portable {
using TwoFloats [[gnu::vector_size(8)]] = float;
TwoFloats LoadTwoFp16(const char* bytes) {
  const half_math::Unaligned16* half =
      reinterpret_cast<const half_math::Unaligned16*>(bytes);
  return TwoFloats{half_math::FloatFromFp16(half[0]),
                   half_math::FloatFromFp16(half[1])};
}
#define FOLD_TARGET
#define FOLD_VECTOR_BYTES 16
#define FOLD_WIDEN(floats) __builtin_convertvector(floats, Doubles)
#define FOLD_LOAD_FP16(bytes) LoadTwoFp16(bytes)
#include "coordinator/aggregate/fold_kernel_path.inc"
#undef FOLD_TARGET
#undef FOLD_VECTOR_BYTES
#undef FOLD_WIDEN
#undef FOLD_LOAD_FP16
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
#define FOLD_TARGET DILOCO_TARGET_AVX2
#define FOLD_VECTOR_BYTES 32
#define FOLD_WIDEN(floats) _mm256_cvtps_pd(floats)
#define FOLD_LOAD_FP16(bytes) \
  _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)))
#include "coordinator/aggregate/fold_kernel_path.inc"
#undef FOLD_TARGET
#undef FOLD_VECTOR_BYTES
#undef FOLD_WIDEN
#undef FOLD_LOAD_FP16
}  // namespace avx2

namespace avx512 {
#define FOLD_TARGET DILOCO_TARGET_AVX512
#define FOLD_VECTOR_BYTES 64
// g++ 12 makes several instructions of __builtin_convertvector here, and warns
// without cause about the form that has no mask.
#define FOLD_WIDEN(floats) _mm512_maskz_cvtps_pd(0xff, floats)
#define FOLD_LOAD_FP16(bytes) \
  _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)))
#include "coordinator/aggregate/fold_kernel_path.inc"
#undef FOLD_TARGET
#undef FOLD_VECTOR_BYTES
#undef FOLD_WIDEN
#undef FOLD_LOAD_FP16
}  // namespace avx512

constexpr Loops kLoops[] = {portable::kLoops, avx2::kLoops, avx512::kLoops};
#else
constexpr Loops kLoops[] = {portable::kLoops};
#endif

FoldBlocksLoop LoopFor(const Loops& loops, Codec codec) {
  if (codec == Codec::kFp32) return loops.fold_fp32;
  if (codec == Codec::kFp16) return loops.fold_fp16;
  DILOCO_CHECK(codec == Codec::kBf16) << CodecName(codec);
  return loops.fold_bf16;
}

// The values behind the last whole block, one by one.
void FoldRest(const Job& job, size_t first, absl::Span<float> momentum,
              absl::Span<float> change, double* lanes) {
  for (size_t i = first; i < momentum.size(); ++i) {
    double sum = 0;
    for (const FoldInput& input : job.inputs) {
      const size_t bytes = EncodedBytes(input.codec, 1);
      float value;
      Decode(input.codec, input.bytes.subspan(i * bytes, bytes),
             absl::MakeSpan(&value, 1));
      sum += static_cast<double>(input.weight) * input.factor * value;
    }
    const float mean = static_cast<float>(sum * job.divisor);
    lanes[i % kLanes] += static_cast<double>(mean) * mean;
    momentum[i] = job.mu * momentum[i] + mean;
    change[i] =
        -(job.lr * (job.mean_share * mean + job.momentum_share * momentum[i]));
  }
}

}  // namespace

double FoldTileOnPath(CpuPath path, absl::Span<const FoldInput> inputs,
                      const OuterSettings& outer, absl::Span<float> momentum,
                      absl::Span<float> change) {
  DILOCO_CHECK(change.size() == momentum.size())
      << change.size() << " and " << momentum.size();
  DILOCO_CHECK(!inputs.empty());
  uint64_t total = 0;
  for (const FoldInput& input : inputs) {
    DILOCO_CHECK(input.codec == inputs[0].codec);
    DILOCO_CHECK(input.bytes.size() ==
                 EncodedBytes(input.codec, momentum.size()))
        << input.bytes.size() << " bytes for " << momentum.size();
    DILOCO_CHECK(!__builtin_add_overflow(total, input.weight, &total));
  }
  DILOCO_CHECK(total > 0) << inputs.size() << " inputs";
  const Job job(inputs, outer, total);
  const size_t whole = momentum.size() / kBlock * kBlock;
  double lanes[kLanes] = {};
  LoopFor(kLoops[PathIndex(path)], inputs[0].codec)(job, whole, momentum.data(),
                                                    change.data(), lanes);
  FoldRest(job, whole, momentum, change, lanes);
  double squares = 0;
  for (double lane : lanes) squares += lane;
  return squares;
}

double FoldTile(absl::Span<const FoldInput> inputs, const OuterSettings& outer,
                absl::Span<float> momentum, absl::Span<float> change) {
  return FoldTileOnPath(BestCpuPath(), inputs, outer, momentum, change);
}

void ApplyChangeOnPath(CpuPath path, absl::Span<const float> change,
                       absl::Span<float> theta) {
  DILOCO_CHECK(change.size() == theta.size())
      << change.size() << " and " << theta.size();
  kLoops[PathIndex(path)].apply(change.data(), change.size(), theta.data());
}

void ApplyChange(absl::Span<const float> change, absl::Span<float> theta) {
  ApplyChangeOnPath(BestCpuPath(), change, theta);
}

}  // namespace diloco
