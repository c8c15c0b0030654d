#include "tests/sim/network.h"

#include <algorithm>
#include <utility>

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
  for (const auto& weak : std::exchange(waiting_, {})) {
    if (weak.expired()) continue;
    world_->After(absl::Milliseconds(50), [weak] {
      if (const auto answer = weak.lock()) {
        answer->Set(absl::UnavailableError("the connection was reset"));
      }
    });
  }
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

absl::StatusOr<std::any> Network::Send(const Client& client, const Call& call,
                                       Handler handler) {
  if (!MaySend(client)) return EndedByCaller();
  ++calls_;
  if (waiting_.size() > 256) {
    std::erase_if(waiting_, [](const auto& weak) { return weak.expired(); });
  }
  const int worker = client.worker;
  const Trip trip = DrawTrip(worker, call.message);
  auto answer = std::make_shared<Answer>(world_);
  const auto arrive = [this, worker, trip, answer, handler](bool first) {
    if (IsCut(worker)) return;
    const std::shared_ptr<Server> server = server_;
    if (server == nullptr || !server->alive) {
      if (first) {
        world_->After(trip.back, [answer] {
          answer->Set(absl::UnavailableError("connection refused"));
        });
      }
      return;
    }
    if (first) waiting_.push_back(answer);
    handler(server, first && trip.corrupt,
            [this, worker, trip, answer, server,
             first](absl::StatusOr<std::any> what) {
              // What a process decided and did not live to say was not said;
              // the answer to a repeated call goes nowhere.
              if (!server->alive || !first) return;
              world_->After(trip.back, [this, worker, trip, answer,
                                        what = std::move(what)] {
                if (IsCut(worker)) return;
                if (trip.lose_reply) {
                  return answer->Set(
                      absl::UnavailableError("the connection was lost"));
                }
                answer->Set(what);
              });
            });
  };
  if (trip.lose_request) {
    world_->After(trip.out, [answer] {
      answer->Set(absl::UnavailableError("the connection was lost"));
    });
  } else {
    world_->After(trip.out, [arrive] { arrive(true); });
  }
  if (trip.again.has_value()) {
    world_->After(trip.out + *trip.again, [arrive] { arrive(false); });
  }
  return answer->Await(client, call);
}

}  // namespace diloco::sim
