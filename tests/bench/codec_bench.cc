// Speed of the codecs, one thread, each path of this CPU, as a share of
// memcpy's bytes/s in the same process.
//
//   bench_codec [VALUES]
//
// Bytes are those of the fp32 side, for memcpy those it copies. The bounds are
// for the best path: fp32 to fp16 and fp16 added to fp32 0.60, fp32 to int8
// 0.50, fp32 to E3M0 0.25.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/tensor/codec.h"
#include "common/tensor/part_file.h"

namespace diloco {
namespace {

constexpr int kRepeats = 7;
// Added up at a time: what is decoded stays in the first-level cache.
constexpr size_t kPiece = 4096;

// The best of kRepeats, in seconds.
double Best(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const Instant start = Clock::Real()->Now();
    work();
    best = std::min(best, absl::ToDoubleSeconds(Clock::Real()->Now() - start));
  }
  return best;
}

class Bench {
 public:
  explicit Bench(size_t n) : values_(n), sums_(n, 0.0f), bytes_(4 * n, '\1') {
    uint32_t seed = 1;
    for (float& value : values_) {
      seed = seed * 1664525 + 1013904223;
      value = (static_cast<float>(seed >> 8) - 0x1p23f) * 0x1p-37f;
    }
    memcpy_seconds_ = Best(
        [&] { std::memcpy(&bytes_[0], values_.data(), 4 * values_.size()); });
    std::printf("memcpy %.2f GB/s\n", 4.0 * n / memcpy_seconds_ / 1e9);
  }

  // Frame by frame, as part files are made of.
  double Encoding(CpuPath path, Codec codec, bool stochastic) {
    return Share(
        absl::StrCat(CodecName(codec), stochastic ? " stochastic" : "",
                     " encode ", CpuPathName(path)),
        [&] {
          EachFrame(
              codec, [&](absl::Span<float> values, absl::Span<char> bytes) {
                EncodeOnPath(path, codec, values, bytes, {stochastic, 1, 2});
              });
        });
  }

  // Of what Encoding left.
  double Adding(CpuPath path, Codec codec) {
    return Share(
        absl::StrCat(CodecName(codec), " decode and add ", CpuPathName(path)),
        [&] {
          EachFrame(
              codec, [&](absl::Span<float> values, absl::Span<char> bytes) {
                float* sums = sums_.data() + (values.data() - values_.data());
                float piece[kPiece];
                for (size_t i = 0; i < values.size(); i += kPiece) {
                  const size_t n = std::min(kPiece, values.size() - i);
                  DecodeRangeOnPath(path, codec, bytes, values.size(), i,
                                    absl::MakeSpan(piece, n));
                  for (size_t k = 0; k < n; ++k) sums[i + k] += piece[k];
                }
              });
        });
  }

 private:
  template <typename F>
  void EachFrame(Codec codec, const F& body) {
    size_t at = 0;
    for (size_t i = 0; i < values_.size(); i += kFrameElements) {
      const absl::Span<float> values =
          absl::MakeSpan(values_).subspan(i, kFrameElements);
      const size_t size = EncodedBytes(codec, values.size());
      body(values, absl::MakeSpan(&bytes_[at], size));
      at += size;
    }
  }

  double Share(const std::string& what, const std::function<void()>& work) {
    const double seconds = Best(work);
    const double share = memcpy_seconds_ / seconds;
    std::printf("  %-40s %7.2f GB/s  %.2f of memcpy\n", what.c_str(),
                4.0 * values_.size() / seconds / 1e9, share);
    return share;
  }

  std::vector<float> values_;
  std::vector<float> sums_;
  std::string bytes_;
  double memcpy_seconds_ = 0;
};

double Bound(Codec codec) {
  switch (codec) {
    case Codec::kFp16:
      return 0.60;
    case Codec::kInt8:
      return 0.50;
    case Codec::kE3m0:
      return 0.25;
    case Codec::kFp32:
    case Codec::kBf16:
    case Codec::kInt8Buckets:
      return 0;
  }
  return 0;
}

int Main(int argc, char** argv) {
  const size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 64 << 20;
  Bench bench(n);
  bool kept = true;
  for (Codec codec : kCodecs) {
    for (CpuPath path : kCpuPaths) {
      if (!CpuHasPath(path)) continue;
      const double encoding = bench.Encoding(path, codec, false);
      const double adding = bench.Adding(path, codec);
      if (path == BestCpuPath()) {
        kept = kept && encoding >= Bound(codec) &&
               (codec != Codec::kFp16 || adding >= Bound(codec));
      }
      if (codec == Codec::kInt8 || codec == Codec::kE3m0) {
        bench.Encoding(path, codec, true);
      }
    }
    const double fp32 = static_cast<double>(PartFileBytes(Codec::kFp32, n));
    std::printf("  %s: %.3f times fewer bytes than fp32, headers included\n",
                CodecName(codec),
                fp32 / static_cast<double>(PartFileBytes(codec, n)));
  }
  std::printf(kept ? "all bounds are kept\n" : "a bound is NOT kept\n");
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace diloco

int main(int argc, char** argv) { return diloco::Main(argc, argv); }
