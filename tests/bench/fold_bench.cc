// Speed of the fold: its kernel beside STREAM triad in the same process, and
// the whole of Fold() from spool files on disk.
//
//   bench_fold [DIR] [PARAMETERS]     DIR: where the spool files lie (.)
//
// Bytes are counted as memory moves them, with the line fill that a store to a
// line not in the cache costs (write-allocate), for both in the same way:
//   triad   a[i] = b[i] + s * c[i] on doubles: 16 read, 8 filled, 8 written
//   kernel  2 read per fp16 update; momentum 4 read, 4 written (the read filled
//           its line); change 4 filled, 4 written
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/io/crc32c.h"
#include "coordinator/aggregate/fold.h"

namespace diloco {
namespace {

constexpr int kMembers = 8;
constexpr int kRepeats = 9;

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

void Line(const char* what, double seconds, double bytes, double elements) {
  std::printf("  %-34s %7.2f GB/s %8.3f G elements/s\n", what,
              bytes / seconds / 1e9, elements / seconds / 1e9);
}

// Small values with all mantissas, some subnormal in fp16.
void FillDelta(uint32_t seed, absl::Span<float> values) {
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = (static_cast<float>(seed >> 8) - 0x1p23f) * 0x1p-37f;
  }
}

__attribute__((noinline)) void Triad(const double* b, const double* c, size_t n,
                                     double* a) {
  for (size_t i = 0; i < n; ++i) a[i] = b[i] + 3.0 * c[i];
}

double BenchTriad(size_t n) {
  std::vector<double> a(n, 0.0), b(n, 1.0), c(n, 2.0);
  const double seconds = Best([&] { Triad(b.data(), c.data(), n, a.data()); });
  Line("STREAM triad", seconds, 32.0 * n, n);
  return 32.0 * n / seconds;
}

double BenchKernel(CpuPath path, size_t n) {
  std::vector<std::string> encoded(kMembers);
  std::vector<float> momentum(n, 0.0f), change(n, 0.0f);
  for (int m = 0; m < kMembers; ++m) {
    FillDelta(m + 1, absl::MakeSpan(change));
    encoded[m].resize(EncodedBytes(Codec::kFp16, n));
    Encode(Codec::kFp16, change, absl::MakeSpan(&encoded[m][0], 2 * n));
  }
  const double seconds = Best([&] {
    std::vector<FoldInput> inputs(kMembers);
    for (size_t first = 0; first < n; first += kFrameElements) {
      for (int m = 0; m < kMembers; ++m) {
        inputs[m].bytes =
            absl::MakeConstSpan(&encoded[m][2 * first], 2 * kFrameElements);
      }
      FoldTileOnPath(path, inputs, OuterSettings(),
                     absl::MakeSpan(&momentum[first], kFrameElements),
                     absl::MakeSpan(&change[first], kFrameElements));
    }
  });
  const double bytes = (2.0 * kMembers + 16) * n;
  Line(absl::StrCat("kernel, 8 fp16 updates, ", CpuPathName(path)).c_str(),
       seconds, bytes, n);
  return bytes / seconds;
}

absl::Status WriteSpools(const std::string& dir, int64_t n,
                         std::vector<std::string>* paths) {
  FileSystem* fs = FileSystem::Posix();
  std::vector<float> tile(kFrameElements);
  for (int m = 0; m < kMembers; ++m) {
    paths->push_back(JoinPath(dir, absl::StrCat("spool-", m, ".upd")));
    ASSIGN_OR_RETURN(auto file, fs->OpenForWrite(paths->back()));
    PartHeader header;
    header.codec = Codec::kFp16;
    header.elements = n;
    PartWriter writer(file.get(), header);
    FillDelta(m + 1, absl::MakeSpan(tile));
    for (int64_t f = 0; f < FrameCount(n); ++f) {
      RETURN_IF_ERROR(writer.Append(absl::MakeConstSpan(tile).first(
          std::min(kFrameElements, n - f * kFrameElements))));
    }
    RETURN_IF_ERROR(writer.Finish().status());
  }
  return absl::OkStatus();
}

absl::Status BenchScreen(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadFile(FileSystem::Posix(), path, uint64_t{1} << 40));
  ASSIGN_OR_RETURN(const PartHeader header, ParsePartHeader(bytes));
  absl::Status status;
  const double seconds = Best([&] {
    PartScreen screen({header.codec, header.fragment, header.elements});
    for (size_t at = 0; at < bytes.size(); at += 1 << 20) {
      status.Update(screen.Feed(absl::string_view(bytes).substr(at, 1 << 20)));
    }
    status.Update(screen.Finish());
  });
  RETURN_IF_ERROR(status);
  Line("screen of one update in 1 MiB chunks", seconds, bytes.size(),
       header.elements);
  uint32_t crc = 0;
  Line("  CRC-32C alone", Best([&] { crc ^= Crc32c(bytes); }), bytes.size(),
       header.elements);
  Line("  block digest alone", Best([&] { BlockDigest(bytes); }), bytes.size(),
       header.elements);
  return absl::OkStatus();
}

// Parameters a second, without the fsync.
absl::StatusOr<double> BenchFold(const std::string& dir, int64_t n) {
  FileSystem* fs = FileSystem::Posix();
  std::vector<std::string> paths;
  RETURN_IF_ERROR(WriteSpools(dir, n, &paths));
  RETURN_IF_ERROR(BenchScreen(paths[0]));
  std::vector<float> theta(n, 1.0f), momentum(n, 0.0f);
  const std::string blob_path = JoinPath(dir, "fold.blob");
  double written = 1e9;
  double synced = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    fs->Remove(blob_path).IgnoreError();
    const Instant start = Clock::Real()->Now();
    // As in a round: the spools are opened and mapped, the blob is new.
    std::vector<PartReader> readers;
    for (const std::string& path : paths) {
      ASSIGN_OR_RETURN(auto file, fs->OpenForRead(path));
      ASSIGN_OR_RETURN(PartReader reader,
                       PartReader::Open(std::move(file), path));
      readers.push_back(std::move(reader));
    }
    std::vector<FoldMember> members;
    for (PartReader& reader : readers) {
      members.push_back({"worker", 1, &reader, 1});
    }
    ASSIGN_OR_RETURN(const auto blob, fs->OpenForWrite(blob_path));
    FoldOutput output;
    output.blob = blob.get();
    RETURN_IF_ERROR(Fold(0, members, OuterSettings(), Codec::kFp32,
                         absl::MakeSpan(theta), absl::MakeSpan(momentum),
                         output)
                        .status());
    const auto since = [start] {
      return absl::ToDoubleSeconds(Clock::Real()->Now() - start);
    };
    written = std::min(written, since());
    RETURN_IF_ERROR(blob->Sync());
    synced = std::min(synced, since());
  }
  paths.push_back(blob_path);
  for (const std::string& path : paths) fs->Remove(path).IgnoreError();
  const double bytes = (2.0 * kMembers + 4) * n;
  Line("end to end, spools to blob", written, bytes, n);
  Line("  with the fsync of the blob", synced, bytes, n);
  return n / written;
}

// Prints a claim; whether it holds.
bool Judge(const char* what, double value, double required) {
  const bool holds = value >= required;
  std::printf("  %s: %.2f (required: %.2f) %s\n", what, value, required,
              holds ? "ok" : "UNDER");
  return holds;
}

int Main(int argc, char** argv) {
  const std::string dir = argc > 1 ? argv[1] : ".";
  const int64_t parameters = argc > 2 ? std::atoll(argv[2]) : 100'000'000;
  const size_t n = size_t{32} << 20;
  std::printf("one thread, %zu elements:\n", n);
  const double triad = BenchTriad(n);
  double best = 0;
  for (CpuPath path : kCpuPaths) {
    if (CpuHasPath(path)) best = std::max(best, BenchKernel(path, n));
  }
  const bool kernel_holds = Judge("kernel / triad", best / triad, 0.7);
  std::printf("%lld parameters, %d fp16 updates in %s:\n",
              static_cast<long long>(parameters), kMembers, dir.c_str());
  const absl::StatusOr<double> rate = BenchFold(dir, parameters);
  if (!rate.ok()) {
    std::fprintf(stderr, "%s\n", rate.status().ToString().c_str());
    return 1;
  }
  const bool fold_holds = Judge("end to end, G parameters/s", *rate / 1e9, 0.2);
  return kernel_holds && fold_holds ? 0 : 1;
}

}  // namespace
}  // namespace diloco

int main(int argc, char** argv) { return diloco::Main(argc, argv); }
