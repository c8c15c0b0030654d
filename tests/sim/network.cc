#include "tests/sim/network.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace diloco::sim {

Network::Network(FiberWorld* world, uint64_t seed, int workers)
    : world_(world),
      armed_(static_cast<size_t>(workers * kMessages)),
      cut_until_(static_cast<size_t>(workers)) {
  for (int worker = 0; worker < workers; ++worker) {
    for (int message = 0; message < kMessages; ++message) {
      streams_.emplace_back(
          seed, absl::StrCat("link ", worker, " ",
                             MessageName(static_cast<Message>(message))));
    }
  }
}

void Network::ServerEnded(Server& server) {
  server.alive = false;
  for (const auto& weak : server.on_end) {
    if (const auto tell = weak.lock()) {
      world_->After(absl::Milliseconds(50), [tell] { (*tell)(); });
    }
  }
  server.on_end.clear();
}

void Network::Cut(int worker, absl::Duration lasts) {
  Instant& until = cut_until_[static_cast<size_t>(worker)];
  until = std::max(until, world_->Now() + lasts);
}

bool Network::IsCut(int worker) const {
  return world_->Now() < cut_until_[static_cast<size_t>(worker)];
}

void Network::Arm(const Fault& fault) {
  const Message message =
      fault.kind == FaultKind::kCorrupted ? Message::kWrite : fault.message;
  Armed& armed = armed_[static_cast<size_t>(fault.worker * kMessages) +
                        static_cast<size_t>(message)];
  switch (fault.kind) {
    case FaultKind::kLostRequest:
      armed.lose_request = true;
      break;
    case FaultKind::kLostReply:
      armed.lose_reply = true;
      break;
    case FaultKind::kLateRequest:
      armed.late = fault.lasts;
      break;
    case FaultKind::kRepeated:
      armed.again = fault.lasts;
      break;
    case FaultKind::kCorrupted:
      armed.corrupt = true;
      break;
    default:
      break;
  }
}

Network::Trip Network::DrawTrip(int worker, Message message) {
  // Ends of processes are told to those that still wait.
  if (server_ != nullptr && server_->on_end.size() > 256) {
    std::erase_if(server_->on_end,
                  [](const auto& weak) { return weak.expired(); });
  }
  Stream& stream = StreamFor(worker, message);
  const auto draw = [&stream] {
    return kMeanTrip / 12 +
           absl::Microseconds(static_cast<int64_t>(stream.Exponential(
               absl::ToDoubleMicroseconds(kMeanTrip) * 5 / 12)));
  };
  Trip trip;
  trip.out = draw();
  trip.back = draw();
  Armed& armed = armed_[static_cast<size_t>(worker * kMessages) +
                        static_cast<size_t>(message)];
  static_cast<Armed&>(trip) = std::exchange(armed, Armed());
  if (trip.late.has_value()) trip.out += *trip.late;
  return trip;
}

}  // namespace diloco::sim
