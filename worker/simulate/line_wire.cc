#include "worker/simulate/line_wire.h"

#include <algorithm>
#include <utility>

namespace diloco::sim {

LineWire::LineWire(FiberWorld* world, std::vector<Line> lines) : world_(world) {
  for (const Line& line : lines) lines_.push_back({line, {}, {}});
}

absl::Duration LineWire::Transfer(const Line& line, Direction& direction,
                                  uint64_t bytes) const {
  if (bytes == 0 || line.bits_per_second == 0) return absl::ZeroDuration();
  direction.free =
      std::max(direction.free, world_->Now()) +
      absl::Seconds(8.0 * static_cast<double>(bytes) / line.bits_per_second);
  return direction.free - world_->Now();
}

absl::StatusOr<std::any> LineWire::Send(const Client& client, const Call& call,
                                        Handler handler) {
  if (!MaySend(client)) return EndedByCaller();
  State* const state = &lines_[static_cast<size_t>(client.worker)];
  // Chunks are sent one after the other, without waiting for answers.
  const absl::Duration latency = call.message == Message::kWrite
                                     ? absl::ZeroDuration()
                                     : state->line.latency;
  auto answer = std::make_shared<Answer>(world_);
  world_->After(
      latency + Transfer(state->line, state->up, call.bytes_out),
      [this, state, latency, answer, bytes_back = call.bytes_back,
       handler = std::move(handler)] {
        if (server_ == nullptr || !server_->alive) {
          return answer->Set(absl::UnavailableError("connection refused"));
        }
        handler(server_, /*damaged=*/false,
                [this, state, latency, answer,
                 bytes_back](absl::StatusOr<std::any> what) {
                  const absl::Duration back =
                      what.ok() ? Transfer(state->line, state->down, bytes_back)
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
