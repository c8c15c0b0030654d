// Bytes on the wire. What is counted: each message's serialised bytes, gRPC's
// 5-byte prefix and HTTP/2's 9-byte header for every 16 KiB frame. What is not:
// header frames (about 100 bytes a call), window updates and pings, TCP/IP.
#ifndef COMMON_RPC_TRAFFIC_H_
#define COMMON_RPC_TRAFFIC_H_

#include <atomic>
#include <cstdint>

#include "google/protobuf/message_lite.h"

namespace diloco {

// Framing included, as above.
inline uint64_t WireBytes(uint64_t message_bytes) {
  constexpr uint64_t kPrefix = 5;
  constexpr uint64_t kFrame = 16384;
  constexpr uint64_t kFrameHeader = 9;
  const uint64_t payload = message_bytes + kPrefix;
  return payload + kFrameHeader * ((payload + kFrame - 1) / kFrame);
}
inline uint64_t WireBytes(const google::protobuf::MessageLite& message) {
  return WireBytes(message.ByteSizeLong());
}

// Thread-safe.
class TrafficCounter {
 public:
  void AddSent(uint64_t bytes) { sent_ += bytes; }
  void AddReceived(uint64_t bytes) { received_ += bytes; }
  uint64_t sent() const { return sent_; }
  uint64_t received() const { return received_; }

 private:
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> received_{0};
};

}  // namespace diloco

#endif  // COMMON_RPC_TRAFFIC_H_
