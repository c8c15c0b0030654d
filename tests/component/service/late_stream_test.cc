// Streams of an upload's earlier attempt that are still there in a later one.

#include "common/io/crc32c.h"
#include "common/rpc/message_codec.h"
#include "diloco/v1/blob.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "tests/component/service/service_fixture.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

// One Write call by hand.
class Stream {
 public:
  Stream(v1::Blob::Stub* stub, const JoinReply& joined)
      : writer_(stub->Write(&context_, &response_)) {
    chunk_.set_session(joined.session);
    EncodeFencing(joined.fencing, chunk_.mutable_fencing());
    chunk_.mutable_key()->set_run(joined.settings.run);
    chunk_.mutable_key()->set_round(FakeCoordinator::kRound);
  }
  bool Send(const std::string& all, uint64_t offset, size_t size) {
    chunk_.set_offset(offset);
    chunk_.set_data(all.substr(offset, size));
    chunk_.set_crc32c(Crc32c(chunk_.data()));
    chunk_.set_waits(true);
    const bool sent = writer_->Write(chunk_);
    chunk_.Clear();
    return sent;
  }
  grpc::Status Finish() {
    writer_->WritesDone();
    return writer_->Finish();
  }

 private:
  grpc::ClientContext context_;
  v1::WriteResponse response_;
  v1::WriteChunk chunk_;
  std::unique_ptr<grpc::ClientWriter<v1::WriteChunk>> writer_;
};

TEST_CASE("C5.5 a late stream of an attempt before ends none of the next one") {
  ServiceFixture fixture;
  const absl::StatusOr<JoinReply> joined = fixture.Join();
  REQUIRE(joined.ok());
  const auto stub = v1::Blob::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", fixture.server->port()),
                          grpc::InsecureChannelCredentials()));
  const std::string bytes = SampleBytes(5000);
  Stream front(stub.get(), *joined), behind(stub.get(), *joined);
  REQUIRE(front.Send(bytes, 0, 1000));
  REQUIRE(fixture.fake.WaitForUploaded(1000));
  REQUIRE(behind.Send(bytes, 2000, 1000));  // It waits.
  // What came already, and what begins in it.
  Stream late(stub.get(), *joined), later(stub.get(), *joined);
  REQUIRE(late.Send(bytes, 0, 1000));
  CHECK(late.Finish().ok());
  REQUIRE(later.Send(bytes, 500, 1000));
  CHECK(later.Finish().ok());
  REQUIRE(fixture.fake.WaitForUploaded(1500));
  // The attempt goes on as if it were alone.
  REQUIRE(front.Send(bytes, 1000, 1000));
  REQUIRE(fixture.fake.WaitForUploaded(3000));
  REQUIRE(front.Send(bytes, 3000, 2000));
  CHECK(front.Finish().ok());
  CHECK(behind.Finish().ok());
  CHECK((fixture.fake.uploaded() == bytes));
}

}  // namespace
}  // namespace diloco
