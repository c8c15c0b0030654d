// A run whose workers are fakes: a model of a given size, its run file, the
// update that all of them send, and a worker that speaks the real protocol.
#ifndef TESTS_BENCH_FAKE_RUN_H_
#define TESTS_BENCH_FAKE_RUN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/io/digest.h"
#include "common/io/file_system.h"
#include "common/model/model_config.h"
#include "worker/transport/coordinator_port.h"

namespace diloco {

// The shape with `parameters` parameters, or a few more: what the blocks lack
// is embedding.
ModelConfig FakeModel(int64_t parameters);

// Listens on a free port of 127.0.0.1; no round ends before its deadline of an
// hour unless all `workers` have delivered.
std::string FakeRunFile(const ModelConfig& model, int workers,
                        int64_t image_every, const std::string& up = "fp16");

// A part file of a fragment with `elements` elements.
struct FakeUpdate {
  std::unique_ptr<ReadableFile> file;
  uint64_t bytes = 0;
  Codec codec = Codec::kFp16;
  Digest digest;
};
absl::StatusOr<FakeUpdate> MakeFakeUpdate(const std::string& path,
                                          int64_t elements,
                                          Codec codec = Codec::kFp16);

// The worker's own port without a trainer behind it. One thread.
class FakeWorker {
 public:
  // Joins the coordinator at 127.0.0.1:`port`. `update` and `cancel`, which
  // ends everything under way, outlive it.
  static absl::StatusOr<FakeWorker> Join(const std::string& name, int port,
                                         const FakeUpdate* update,
                                         const CancelFlag* cancel);

  // Until a round waits for this worker's update.
  absl::StatusOr<RunView::Lease> WaitForLease();
  // Another thread may.
  absl::Status Beat();
  // Until it is accepted.
  absl::Status Upload(const RunView::Lease& lease);
  // Until fragment 0 has a version above `version`.
  absl::Status WaitForVersionAfter(uint64_t version);
  // Downloads what leads from `version` to the newest one, through `path`.
  absl::Status Fetch(uint64_t version, const std::string& path);

 private:
  FakeWorker(std::unique_ptr<CoordinatorPort> port, const FakeUpdate* update,
             const CancelFlag* cancel)
      : port_(std::move(port)), update_(update), cancel_(cancel) {}

  template <typename Done>
  absl::StatusOr<RunView> WatchUntil(Done done);

  std::unique_ptr<CoordinatorPort> port_;
  const FakeUpdate* update_;
  const CancelFlag* cancel_;
};

}  // namespace diloco

#endif  // TESTS_BENCH_FAKE_RUN_H_
