#include "worker/simulate/line_wire.h"

#include <algorithm>
#include <utility>

namespace diloco::sim {

LineWire::LineWire(FiberWorld* world, const std::vector<Line>& lines,
                   const Line& coordinator)
    : world_(world), coordinator_(EndsOf(coordinator)) {
  for (const Line& line : lines) lines_.push_back(EndsOf(line));
}

LineWire::Ends LineWire::EndsOf(const Line& line) {
  return {line.latency, {line.bits_per_second}, {line.bits_per_second}};
}

absl::Duration LineWire::Pass(Direction& direction, uint64_t bytes) const {
  if (bytes == 0 || direction.bits_per_second == 0) return absl::ZeroDuration();
  direction.free = std::max(direction.free, world_->Now()) +
                   absl::Seconds(8.0 * static_cast<double>(bytes) /
                                 direction.bits_per_second);
  return direction.free - world_->Now();
}

absl::StatusOr<std::any> LineWire::Send(const Client& client, const Call& call,
                                        Handler handler) {
  if (!MaySend(client)) return EndedByCaller();
  Ends* const line = &lines_[static_cast<size_t>(client.worker)];
  // Chunks are sent one after the other, without waiting for answers.
  const absl::Duration latency =
      call.message == Message::kWrite ? absl::ZeroDuration() : line->latency;
  auto answer = std::make_shared<Answer>(world_);
  world_->After(
      latency + std::max(Pass(line->up, call.bytes_out),
                         Pass(coordinator_.down, call.bytes_out)),
      [this, line, latency, answer, bytes_back = call.bytes_back,
       handler = std::move(handler)] {
        if (server_ == nullptr || !server_->alive) {
          return answer->Set(absl::UnavailableError("connection refused"));
        }
        handler(server_, /*damaged=*/false,
                [this, line, latency, answer,
                 bytes_back](absl::StatusOr<std::any> what) {
                  const absl::Duration back =
                      what.ok() ? std::max(Pass(line->down, bytes_back),
                                           Pass(coordinator_.up, bytes_back))
                                : absl::ZeroDuration();
                  world_->After(
                      latency + back,
                      [answer, what = std::move(what)] { answer->Set(what); });
                });
      });
  Call patient = call;
  // A slow line is no reason to send a file again.
  if (call.bytes_out + call.bytes_back > 0) {
    patient.deadline = absl::InfiniteDuration();
  }
  return answer->Await(client, patient);
}

}  // namespace diloco::sim
