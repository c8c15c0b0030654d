// Lines of a given bandwidth and latency on which nothing goes wrong: one for
// each worker, full duplex. The coordinator's own line is no bottleneck.
#ifndef WORKER_SIMULATE_LINE_WIRE_H_
#define WORKER_SIMULATE_LINE_WIRE_H_

#include <memory>
#include <utility>
#include <vector>

#include "worker/simulate/wire.h"

namespace diloco::sim {

struct Line {
  double bits_per_second = 0;  // Each way; 0: files take no time.
  absl::Duration latency;      // One way.
};

class LineWire final : public Wire {
 public:
  LineWire(FiberWorld* world, std::vector<Line> lines);

  // Calls find nobody before.
  void set_server(std::shared_ptr<Server> server) {
    server_ = std::move(server);
  }
  absl::StatusOr<std::any> Send(const Client& client, const Call& call,
                                Handler handler) override;

 private:
  struct Direction {
    Instant free = absl::ZeroDuration();  // What is sent now starts then.
  };
  struct State {
    Line line;
    Direction up;
    Direction down;
  };
  // From now until the last of `bytes` has left.
  absl::Duration Transfer(const Line& line, Direction& direction,
                          uint64_t bytes) const;

  FiberWorld* const world_;
  std::shared_ptr<Server> server_;
  std::vector<State> lines_;  // By worker.
};

}  // namespace diloco::sim

#endif  // WORKER_SIMULATE_LINE_WIRE_H_
