// Ends this process's connections by force, where gRPC would wait for a peer.
#ifndef COMMON_RPC_CUT_CONNECTIONS_H_
#define COMMON_RPC_CUT_CONNECTIONS_H_

namespace diloco {

// Shuts down every connected TCP socket of this process whose own port is
// `port`: whoever reads or writes there gets an error. The sockets stay open,
// for their owner to close.
void CutConnections(int port);

}  // namespace diloco

#endif  // COMMON_RPC_CUT_CONNECTIONS_H_
