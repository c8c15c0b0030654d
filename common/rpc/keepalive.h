// Pings of both sides, declared together: a client that pings more often than
// the server allows loses its connection (GOAWAY, too_many_pings).
#ifndef COMMON_RPC_KEEPALIVE_H_
#define COMMON_RPC_KEEPALIVE_H_

namespace diloco {

// The client keeps address translators from forgetting an idle connection and
// finds a dead one within interval + timeout.
inline constexpr int kClientPingMs = 30000;
inline constexpr int kPingTimeoutMs = 20000;
inline constexpr int kServerPingMs = 60000;
// What the server allows an idle client.
inline constexpr int kServerMinPingMs = 15000;

static_assert(kServerMinPingMs <= kClientPingMs / 2,
              "the server must allow our clients' pings, with room for jitter");

}  // namespace diloco

#endif  // COMMON_RPC_KEEPALIVE_H_
