// The bulk connections to one peer: made when first used, kept warm between
// transfers, since a fresh one takes a second to reach its rate over a long
// way.
#ifndef COMMON_RPC_BLOB_CONNECTIONS_H_
#define COMMON_RPC_BLOB_CONNECTIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "diloco/v1/blob.grpc.pb.h"

namespace diloco {

// Thread-safe.
class BlobConnections {
 public:
  // `target` is host:port.
  explicit BlobConnections(std::string target) : target_(std::move(target)) {}

  const std::string& target() const { return target_; }
  std::shared_ptr<v1::Blob::StubInterface> Get(size_t number);
  // Something on the way may swallow what is sent without closing: the next
  // Get opens new ones.
  void Renew();

 private:
  const std::string target_;
  Mutex mu_;
  std::vector<std::shared_ptr<v1::Blob::StubInterface>> stubs_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace diloco

#endif  // COMMON_RPC_BLOB_CONNECTIONS_H_
