#include "common/rpc/blob_connections.h"

#include "common/rpc/channel.h"

namespace diloco {

std::shared_ptr<v1::Blob::StubInterface> BlobConnections::Get(size_t number) {
  MutexLock lock(&mu_);
  if (stubs_.size() <= number) stubs_.resize(number + 1);
  if (stubs_[number] == nullptr) {
    stubs_[number] =
        v1::Blob::NewStub(MakeChannel(target_, ChannelKind::kBulk));
  }
  return stubs_[number];
}

void BlobConnections::Renew() {
  std::vector<std::shared_ptr<v1::Blob::StubInterface>> old;
  MutexLock lock(&mu_);
  old.swap(stubs_);
}

}  // namespace diloco
