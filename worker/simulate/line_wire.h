// Lines of a given bandwidth and latency on which nothing goes wrong: one for
// each worker and one for the coordinator, which all of them share; full
// duplex. On each, what is asked for first passes first.
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
  // The coordinator's latency counts for nothing.
  LineWire(FiberWorld* world, const std::vector<Line>& lines,
           const Line& coordinator);

  // Calls find nobody before.
  void set_server(std::shared_ptr<Server> server) {
    server_ = std::move(server);
  }
  absl::StatusOr<std::any> Send(const Client& client, const Call& call,
                                Handler handler) override;

 private:
  struct Direction {
    double bits_per_second = 0;
    Instant free = absl::ZeroDuration();  // What is sent now starts then.
  };
  struct Ends {
    absl::Duration latency;
    Direction up;
    Direction down;
  };
  static Ends EndsOf(const Line& line);
  // From now until the last of `bytes` has passed.
  absl::Duration Pass(Direction& direction, uint64_t bytes) const;

  FiberWorld* const world_;
  std::shared_ptr<Server> server_;
  std::vector<Ends> lines_;  // By worker.
  Ends coordinator_;
};

}  // namespace diloco::sim

#endif  // WORKER_SIMULATE_LINE_WIRE_H_
