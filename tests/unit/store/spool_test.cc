#include "coordinator/store/spool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/sample_update.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

// Two whole frames and a short one.
constexpr int64_t kElements = 2 * kFrameElements + 1000;
constexpr uint64_t kChunk = 100'000;

class Uploading {
 public:
  Uploading()
      : bytes(PartBytes(Codec::kFp16, SampleValues(kElements, 1))),
        value(ValueOf(bytes)) {}

  absl::Status Open() {
    upload.reset();
    auto opened =
        store.Open(0, 7, "a", value, {Codec::kFp16, /*fragment=*/0, kElements});
    if (!opened.ok()) return opened.status();
    upload = *std::move(opened);
    return absl::OkStatus();
  }
  // Sends from offset() up to `end`, in chunks.
  absl::Status Send(uint64_t end) { return Send(end, bytes); }
  absl::Status Send(uint64_t end, const std::string& from) {
    while (upload->offset() < end) {
      const uint64_t at = upload->offset();
      const absl::Status status = upload->Write(
          at, absl::string_view(from).substr(at, std::min(kChunk, end - at)));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  uint64_t FrameBegin(int frame) const {
    return PartPrefixBytes(kElements) +
           static_cast<uint64_t>(frame) *
               EncodedBytes(Codec::kFp16, kFrameElements);
  }
  std::string Path(const std::string& suffix) const {
    return "spool/f00-r000007/a." + value.digest.ToHex().substr(0, 16) + suffix;
  }
  std::string complete() const { return Path(".upd"); }
  std::string part() const { return Path(".part"); }
  std::string Disk(const std::string& path) {
    auto content = ReadFile(&fs, path);
    return content.ok() ? *content : content.status().ToString();
  }

  FaultFileSystem fs;
  SpoolStore store{&fs, "spool"};
  std::string bytes;
  UpdateValue value;
  std::unique_ptr<UploadSpool> upload;
};

TEST_CASE("an update that came whole is kept, durable, and can be folded") {
  Uploading u;
  REQUIRE(u.Open().ok());
  REQUIRE(u.upload->offset() == 0);
  REQUIRE(u.Send(u.bytes.size()).ok());
  const auto verified = u.upload->Finish();
  REQUIRE(verified.ok());

  float max_abs = 0;
  double squares = 0;
  for (float exact : SampleValues(kElements, 1)) {
    const float v = FloatFromFp16(Fp16FromFloat(exact));
    max_abs = std::max(max_abs, std::abs(v));
    squares += static_cast<double>(v) * v;
  }
  REQUIRE(verified->max_abs == max_abs);
  REQUIRE(verified->norm == Approx(std::sqrt(squares)));
  REQUIRE(u.upload->Finish()->norm == verified->norm);
  REQUIRE(u.upload->offset() == u.bytes.size());

  u.fs.Crash();
  REQUIRE(u.Disk(u.complete()) == u.bytes);
  REQUIRE_FALSE(u.fs.Exists(u.part()));
  const auto reader = u.store.OpenComplete(0, 7, "a", u.value.digest);
  REQUIRE(reader.ok());
  REQUIRE(reader->header().elements == kElements);
}

TEST_CASE("an upload goes on where it was after a restart, at any offset") {
  const Uploading some;
  for (uint64_t stop :
       {uint64_t{1}, uint64_t{63}, uint64_t{64}, some.FrameBegin(0),
        some.FrameBegin(0) + 5, some.FrameBegin(1), some.FrameBegin(2) - 1,
        some.FrameBegin(2) + 77, some.bytes.size() - 1, some.bytes.size()}) {
    INFO("stopped at " << stop);
    Uploading u;
    REQUIRE(u.Open().ok());
    REQUIRE(u.upload->offset() == 0);
    REQUIRE(u.Send(stop).ok());
    u.fs.KillProcess();
    REQUIRE(u.Open().ok());
    REQUIRE(u.upload->offset() == stop);
    REQUIRE(u.Send(u.bytes.size()).ok());
    REQUIRE(u.upload->Finish().ok());
    REQUIRE(u.Disk(u.complete()) == u.bytes);
  }
}

TEST_CASE("what a power cut took is noticed and sent again") {
  const Uploading some;
  for (uint64_t keep : {uint64_t{0}, uint64_t{10}, some.FrameBegin(0) + 1,
                        some.FrameBegin(1) + 1000}) {
    INFO("kept " << keep);
    Uploading u;
    REQUIRE(u.Open().ok());
    // The directory entry is on disk, the data only in part.
    REQUIRE(u.fs.SyncDir("spool/f00-r000007").ok());
    REQUIRE(u.Send(u.FrameBegin(2) + 10).ok());
    u.fs.CrashKeeping(keep);
    REQUIRE(u.Open().ok());
    REQUIRE(u.upload->offset() == keep);
    REQUIRE(u.Send(u.bytes.size()).ok());
    REQUIRE(u.upload->Finish().ok());
    REQUIRE(u.Disk(u.complete()) == u.bytes);
  }
}

TEST_CASE("damage in the kept part sends only from that frame on") {
  Uploading u;
  REQUIRE(u.Open().ok());
  REQUIRE(u.Send(u.FrameBegin(2)).ok());
  u.fs.KillProcess();
  SECTION("in a frame") {
    u.fs.FlipBit(u.part(), u.FrameBegin(1) + 17, 3);
    REQUIRE(u.Open().ok());
    REQUIRE(u.upload->offset() == u.FrameBegin(1));
  }
  SECTION("in the header") {
    u.fs.FlipBit(u.part(), 20, 3);
    REQUIRE(u.Open().ok());
    REQUIRE(u.upload->offset() == 0);
  }
  REQUIRE(u.Send(u.bytes.size()).ok());
  REQUIRE(u.upload->Finish().ok());
  REQUIRE(u.Disk(u.complete()) == u.bytes);
}

TEST_CASE("a frame that arrives damaged is asked for again") {
  Uploading u;
  std::string damaged = u.bytes;
  damaged[u.FrameBegin(1) + 12345] ^= 4;
  REQUIRE(u.Open().ok());
  const absl::Status status = u.Send(damaged.size(), damaged);
  REQUIRE(status.code() == Code::kDataLoss);
  REQUIRE(status.message().find("frame 1") != std::string::npos);
  REQUIRE(u.upload->offset() == u.FrameBegin(1));
  REQUIRE(u.Send(u.bytes.size()).ok());
  REQUIRE(u.upload->Finish().ok());
  REQUIRE(u.Disk(u.complete()) == u.bytes);
}

TEST_CASE(
    "C6.6 an update with a NaN is unusable for good and kept as evidence") {
  Uploading u;
  std::vector<float> values = SampleValues(kElements, 1);
  values.back() = std::numeric_limits<float>::quiet_NaN();
  u.bytes = PartBytes(Codec::kFp16, values);
  u.value = ValueOf(u.bytes);
  REQUIRE(u.Open().ok());
  const absl::Status status = u.Send(u.bytes.size());
  REQUIRE(status.code() == Code::kInvalidArgument);
  REQUIRE(status.message().find("element 525287") != std::string::npos);
  REQUIRE(u.upload->Finish().status() == status);
  REQUIRE(u.store.Quarantine(0, 7, "a", u.value.digest).ok());
  REQUIRE(u.fs.Exists(u.Path(".refused")));
  REQUIRE_FALSE(u.fs.Exists(u.part()));
  REQUIRE(u.store.Quarantine(0, 7, "a", u.value.digest).ok());
}

TEST_CASE("a wrong offset is ABORTED and names the right one") {
  Uploading u;
  REQUIRE(u.Open().ok());
  REQUIRE(u.Send(500).ok());
  for (uint64_t wrong : {uint64_t{0}, uint64_t{499}, uint64_t{501}}) {
    const absl::Status status = u.upload->Write(wrong, "x");
    REQUIRE(status.code() == Code::kAborted);
    REQUIRE(status.message().find("offset 500") != std::string::npos);
  }
  REQUIRE(u.Send(u.bytes.size()).ok());
  REQUIRE(u.upload->Finish().ok());
}

TEST_CASE("finishing too early names the offset; too many bytes are refused") {
  Uploading u;
  REQUIRE(u.Open().ok());
  REQUIRE(u.Send(500).ok());
  REQUIRE(u.upload->Finish().status().code() == Code::kFailedPrecondition);
  REQUIRE(u.Send(u.bytes.size()).ok());
  REQUIRE(u.upload->Write(u.bytes.size(), "x").code() ==
          Code::kInvalidArgument);
}

TEST_CASE("another digest than announced starts the upload again") {
  Uploading u;
  u.value.digest = Sha256("something else");
  REQUIRE(u.Open().ok());
  REQUIRE(u.Send(u.bytes.size()).ok());
  REQUIRE(u.upload->Finish().status().code() == Code::kDataLoss);
  REQUIRE(u.upload->offset() == 0);
  REQUIRE_FALSE(u.fs.Exists(u.complete()));
}

TEST_CASE("a size that does not fit the fragment is refused at once") {
  Uploading u;
  u.value.bytes -= 1;
  REQUIRE(u.Open().code() == Code::kInvalidArgument);
}

TEST_CASE("a complete update is found again and verified again") {
  Uploading u;
  REQUIRE(u.Open().ok());
  REQUIRE(u.Send(u.bytes.size()).ok());
  const double norm = u.upload->Finish()->norm;
  u.fs.KillProcess();
  SECTION("as it was") {
    REQUIRE(u.Open().ok());
    REQUIRE(u.upload->offset() == u.bytes.size());
    REQUIRE(u.upload->Finish()->norm == norm);
  }
  SECTION("damaged since: from that frame on") {
    u.fs.FlipBit(u.complete(), u.FrameBegin(1) + 2, 0);
    REQUIRE(u.Open().ok());
    REQUIRE(u.upload->offset() == u.FrameBegin(1));
    REQUIRE_FALSE(u.fs.Exists(u.complete()));
    REQUIRE(u.Send(u.bytes.size()).ok());
    REQUIRE(u.upload->Finish()->norm == norm);
  }
}

TEST_CASE("C7.1 a full disk is an error, and the upload goes on with room") {
  Uploading u;
  SECTION("when it begins") {
    u.fs.set_space(1000);
    REQUIRE(u.Open().code() == Code::kResourceExhausted);
    u.fs.set_space(UINT64_MAX);
    REQUIRE(u.Open().ok());
  }
  SECTION("under way") {
    REQUIRE(u.Open().ok());
    u.fs.set_space(u.fs.bytes_used() + 700'000);
    REQUIRE(u.Send(u.bytes.size()).code() == Code::kResourceExhausted);
    REQUIRE(u.upload->offset() <= 700'000);
    REQUIRE(u.upload->offset() > 500'000);
    u.fs.set_space(UINT64_MAX);
  }
  REQUIRE(u.Send(u.bytes.size()).ok());
  REQUIRE(u.upload->Finish().ok());
  REQUIRE(u.Disk(u.complete()) == u.bytes);
}

TEST_CASE("C7.1 a file that failed is given up; it begins again at 0") {
  Uploading u;
  REQUIRE(u.Open().ok());
  REQUIRE(u.Send(1000).ok());
  u.fs.FailWrite(1, 10);
  REQUIRE(u.Send(u.bytes.size()).code() == Code::kInternal);
  const absl::Status first = u.upload->Finish().status();
  REQUIRE(first.code() == Code::kInternal);
  REQUIRE(u.upload->Finish().status() == first);
  REQUIRE_FALSE(u.upload->sync_failed());
  u.upload.reset();
  REQUIRE(u.store.Discard(0, 7, "a", u.value.digest).ok());
  REQUIRE(u.Open().ok());
  REQUIRE(u.upload->offset() == 0);
  REQUIRE(u.Send(u.bytes.size()).ok());
  REQUIRE(u.upload->Finish().ok());
  REQUIRE(u.Disk(u.complete()) == u.bytes);
}

TEST_CASE("C7.1 a failed fsync says so, and the file is not believed again") {
  const int which = GENERATE(1, 2);  // Of the file, of the directory.
  Uploading u;
  REQUIRE(u.Open().ok());
  REQUIRE(u.Send(u.bytes.size()).ok());
  u.fs.FailSync(which);
  const absl::Status first = u.upload->Finish().status();
  REQUIRE(first.code() == Code::kInternal);
  REQUIRE(u.upload->sync_failed());
  REQUIRE(u.upload->Finish().status() == first);
  // The next process sees none of it, though the page cache had it all.
  u.fs.KillProcess();
  REQUIRE_FALSE(u.fs.Exists(u.part()));
  REQUIRE_FALSE(u.fs.Exists(u.complete()));
  REQUIRE(u.Open().ok());
  REQUIRE(u.upload->offset() == 0);
  REQUIRE(u.Send(u.bytes.size()).ok());
  REQUIRE(u.upload->Finish().ok());
  u.fs.Crash();
  REQUIRE(u.Disk(u.complete()) == u.bytes);
}

TEST_CASE("another update under the key leaves a complete one alone") {
  Uploading u;
  REQUIRE(u.Open().ok());
  REQUIRE(u.Send(u.bytes.size()).ok());
  REQUIRE(u.upload->Finish().ok());
  Uploading other;
  other.value.digest = Sha256("other");
  const PartScreen::Expect expect = {Codec::kFp16, /*fragment=*/0, kElements};
  // One of another worker, whose name begins alike.
  const auto third = u.store.Open(0, 7, "a.b", u.value, expect);
  REQUIRE(third.ok());
  for (const char* announced : {"other", "yet another"}) {
    other.value.digest = Sha256(announced);
    const auto opened = u.store.Open(0, 7, "a", other.value, expect);
    REQUIRE(opened.ok());
    REQUIRE((*opened)->offset() == 0);
    REQUIRE((*opened)->Write(0, u.bytes.substr(0, 100)).ok());
  }
  REQUIRE(u.Disk(u.complete()) == u.bytes);
  // Of the unfinished ones of the key the last is kept.
  const auto names = u.fs.List("spool/f00-r000007");
  REQUIRE(names->size() == 3);
  REQUIRE(u.fs.Exists(other.part()));
}

TEST_CASE("C7.1 an end at any moment never leaves a wrong complete update") {
  for (int step = 1; step < 40; ++step) {
    INFO("ended at step " << step);
    Uploading u;
    u.fs.StopAfter(step);
    bool finished = false;
    if (u.Open().ok() && u.Send(u.bytes.size()).ok()) {
      finished = u.upload->Finish().ok();
    }
    u.fs.Crash();
    if (finished) REQUIRE(u.Disk(u.complete()) == u.bytes);
    REQUIRE(u.Open().ok());
    REQUIRE(u.Send(u.bytes.size()).ok());
    REQUIRE(u.upload->Finish().ok());
    REQUIRE(u.Disk(u.complete()) == u.bytes);
  }
}

TEST_CASE("pruning removes the rounds of one fragment up to one") {
  Uploading u;
  REQUIRE(u.store.Prune(0, 100).ok());
  for (uint64_t round : {1, 7, 8}) {
    for (uint32_t fragment : {0, 1}) {
      REQUIRE(u.store
                  .Open(fragment, round, "a", u.value,
                        {Codec::kFp16, fragment, kElements})
                  .ok());
    }
  }
  REQUIRE(u.fs.CreateDirs("spool/f00-rubbish").ok());
  REQUIRE(u.store.Prune(0, 7).ok());
  REQUIRE(*u.fs.List("spool") ==
          std::vector<std::string>{"f00-r000008", "f00-rubbish", "f01-r000001",
                                   "f01-r000007", "f01-r000008"});
}

TEST_CASE("of refused updates the newest outlast their rounds") {
  Uploading u;
  for (uint64_t round : {3, 5, 9}) {
    for (const char* worker : {"a", "b"}) {
      REQUIRE(u.store
                  .Open(0, round, worker, u.value,
                        {Codec::kFp16, /*fragment=*/0, kElements})
                  .ok());
    }
    REQUIRE(u.store.Quarantine(0, round, "b", u.value.digest).ok());
  }
  const auto files = [&](const std::string& dir) {
    return *u.fs.List(JoinPath("spool", dir));
  };
  REQUIRE(u.store.Prune(0, 5, /*evidence=*/2).ok());
  REQUIRE(u.fs.List("spool")->size() == 3);
  CHECK(files("f00-r000003").size() == 1);
  CHECK(files("f00-r000005").size() == 1);
  CHECK(files("f00-r000009").size() == 2);
  // Newest rounds first.
  REQUIRE(u.store.Prune(0, 9, 2).ok());
  REQUIRE(*u.fs.List("spool") ==
          std::vector<std::string>{"f00-r000005", "f00-r000009"});
  CHECK(files("f00-r000009") ==
        std::vector<std::string>{absl::StrCat(
            "b.", u.value.digest.ToHex().substr(0, 16), ".refused")});
  REQUIRE(u.store.Prune(0, 9).ok());
  REQUIRE(u.fs.List("spool")->empty());
}

TEST_CASE("a worker's name cannot lead out of the spool") {
  Uploading u;
  REQUIRE(u.store
              .Open(0, 7, "../../x", u.value,
                    {Codec::kFp16, /*fragment=*/0, kElements})
              .status()
              .code() == Code::kInvalidArgument);
  REQUIRE(
      u.store.OpenComplete(0, 7, "nobody", u.value.digest).status().code() ==
      Code::kNotFound);
}

}  // namespace
}  // namespace diloco
