#include "coordinator/store/version_store.h"

#include "common/base/logging.h"
#include "tests/support/catch.h"
#include "tests/support/fault_file_system.h"
#include "tests/support/sample_update.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

constexpr int64_t kThetaElements = 1000;
constexpr Instant kNow = absl::Hours(1);

struct Written {
  FileRef blob;
  FileRef theta;
  FileRef momentum;
};

class Versions {
 public:
  Versions() { SetLogLevel(LogLevel::kError); }

  static FileRef RefOf(const std::string& bytes) {
    return FileRef{BlockDigest(bytes), bytes.size()};
  }
  static Digest FragmentDigest(uint64_t version) {
    return Sha256(absl::StrCat("fragment ", version));
  }

  static Fact FactOf(uint64_t version, const Written& files) {
    if (version == 0) {
      RunCreated created;
      created.fragments = {{FragmentDigest(0), files.theta, files.momentum}};
      return created;
    }
    VersionPublished published;
    published.version = version;
    published.digest = FragmentDigest(version);
    published.blob = files.blob;
    published.theta_image = files.theta;
    published.momentum_image = files.momentum;
    return published;
  }

  // Writes and registers a version; its images hold SampleValues(version) and
  // SampleValues(1000 + version).
  absl::Status Add(uint64_t version, bool with_blob, bool with_image) {
    auto pending = store.Create(0, version, with_blob, with_image);
    if (!pending.ok()) return pending.status();
    Written files;
    const int seed = static_cast<int>(version);
    const std::pair<WritableFile*, std::pair<FileRef*, int>> wanted[] = {
        {pending->blob.get(), {&files.blob, 2000 + seed}},
        {pending->theta_image.get(), {&files.theta, seed}},
        {pending->momentum_image.get(), {&files.momentum, 1000 + seed}}};
    for (const auto& [file, what] : wanted) {
      if (file == nullptr) continue;
      const std::string bytes =
          PartBytes(Codec::kFp32, SampleValues(kThetaElements, what.second));
      if (absl::Status status = file->WriteAt(0, bytes); !status.ok()) {
        return status;
      }
      *what.first = RefOf(bytes);
    }
    if (absl::Status status = store.Commit(*std::move(pending)); !status.ok()) {
      return status;
    }
    store.Learn(FactOf(version, files));
    written[version] = files;
    return absl::OkStatus();
  }
  // Version 0 and `last` more, with an image at each multiple of four.
  void AddUpTo(uint64_t last) {
    for (uint64_t v = 0; v <= last; ++v) {
      REQUIRE(Add(v, /*with_blob=*/v > 0, /*with_image=*/v % 4 == 0).ok());
    }
  }
  absl::StatusOr<uint64_t> Load(uint64_t at_most) {
    theta.assign(kThetaElements, 0);
    momentum.assign(kThetaElements, 0);
    return store.LoadNewestImage(0, at_most, absl::MakeSpan(theta),
                                 absl::MakeSpan(momentum));
  }
  void RequireLoaded(uint64_t version) {
    const int seed = static_cast<int>(version);
    REQUIRE(theta == SampleValues(kThetaElements, seed));
    REQUIRE(momentum == SampleValues(kThetaElements, 1000 + seed));
  }

  FaultFileSystem fs;
  VersionStore store{&fs, "state"};
  std::map<uint64_t, Written> written;
  std::vector<float> theta, momentum;
};

std::vector<std::pair<bool, uint64_t>> Shape(
    const absl::StatusOr<std::vector<VersionStore::Step>>& steps) {
  REQUIRE(steps.ok());
  std::vector<std::pair<bool, uint64_t>> shape;
  for (const VersionStore::Step& step : *steps) {
    shape.emplace_back(step.image, step.version);
    REQUIRE(step.result_digest == Versions::FragmentDigest(step.version));
  }
  return shape;
}

using Chain = std::vector<std::pair<bool, uint64_t>>;

TEST_CASE("committed files are durable and found by digest") {
  Versions v;
  v.AddUpTo(4);
  v.fs.Crash();
  const auto blob = v.store.Find(v.written[3].blob.digest);
  REQUIRE(blob->path == "state/blobs/f00-v000003.blob");
  REQUIRE(blob->bytes == v.written[3].blob.bytes);
  REQUIRE(BlockDigest(*ReadFile(&v.fs, blob->path)) ==
          v.written[3].blob.digest);
  REQUIRE(v.store.Find(v.written[4].momentum.digest)->path ==
          "state/images/f00-v000004.momentum");
  REQUIRE_FALSE(v.store.Find(Sha256("other")).has_value());
  REQUIRE_FALSE(v.store.Find(Digest{}).has_value());
}

TEST_CASE("the cheaper way to a version is a chain of changes or an image") {
  Versions v;
  v.AddUpTo(6);
  REQUIRE(Shape(v.store.Resolve(0, 6, 6, kNow)) == Chain{});
  REQUIRE(Shape(v.store.Resolve(0, 5, 6, kNow)) == Chain{{false, 6}});
  REQUIRE(Shape(v.store.Resolve(0, 4, 6, kNow)) ==
          Chain{{false, 5}, {false, 6}});
  // As many bytes as by image 4: the chain keeps what the worker has.
  REQUIRE(Shape(v.store.Resolve(0, 3, 6, kNow)) ==
          Chain{{false, 4}, {false, 5}, {false, 6}});
  REQUIRE(Shape(v.store.Resolve(0, 1, 6, kNow)) ==
          Chain{{true, 4}, {false, 5}, {false, 6}});
  REQUIRE(Shape(v.store.Resolve(0, std::nullopt, 6, kNow)) ==
          Chain{{true, 4}, {false, 5}, {false, 6}});
  REQUIRE(Shape(v.store.Resolve(0, std::nullopt, 3, kNow)) ==
          Chain{{true, 0}, {false, 1}, {false, 2}, {false, 3}});
  // A version that is not published yet leads nowhere.
  REQUIRE(Shape(v.store.Resolve(0, 99, 4, kNow)) == Chain{{true, 4}});
  REQUIRE(v.store.Resolve(0, 6, 7, kNow).status().code() == Code::kNotFound);
  REQUIRE(v.store.Resolve(1, std::nullopt, 0, kNow).status().code() ==
          Code::kNotFound);
  const auto steps = v.store.Resolve(0, 5, 6, kNow);
  REQUIRE((*steps)[0].file == v.written[6].blob);
}

TEST_CASE("the newest image that is not too new is loaded") {
  Versions v;
  v.AddUpTo(9);
  REQUIRE(*v.Load(9) == 8);
  v.RequireLoaded(8);
  REQUIRE(*v.Load(7) == 4);
  v.RequireLoaded(4);
}

TEST_CASE("C7.1 a damaged image gives way to the one before, and is kept") {
  Versions v;
  v.AddUpTo(9);
  const std::string path =
      GENERATE(std::string("state/images/f00-v000008.theta"),
               std::string("state/images/f00-v000008.momentum"));
  SECTION("a flipped bit") {
    v.fs.FlipBit(path, GENERATE(0u, 70u, 3000u), 3);
    REQUIRE(*v.Load(9) == 4);
    REQUIRE(v.fs.Exists(path + ".broken"));
  }
  SECTION("cut short") {
    REQUIRE((*v.fs.OpenForWrite(path))->Truncate(100).ok());
    REQUIRE(*v.Load(9) == 4);
    REQUIRE(v.fs.Exists(path + ".broken"));
  }
  SECTION("gone") {
    REQUIRE(v.fs.Remove(path).ok());
    REQUIRE(*v.Load(9) == 4);
  }
  v.RequireLoaded(4);
  // It is not handed out any more either.
  if (path.find("theta") != std::string::npos) {
    REQUIRE(Shape(v.store.Resolve(0, std::nullopt, 8, kNow)).front() ==
            std::make_pair(true, uint64_t{4}));
  }
  // A fold of that round writes it again.
  REQUIRE(v.Add(8, true, true).ok());
  REQUIRE(*v.Load(9) == 8);
  v.RequireLoaded(8);
}

TEST_CASE("C7.1 a read error is not taken for damage") {
  Versions v;
  v.AddUpTo(4);
  v.fs.FailRead(1);
  REQUIRE(*v.Load(4) == 0);
  REQUIRE_FALSE(v.fs.Exists("state/images/f00-v000004.theta.broken"));
  REQUIRE(*v.Load(4) == 4);
}

TEST_CASE("without a good image loading fails and says what to do") {
  Versions v;
  v.AddUpTo(0);
  v.fs.FlipBit("state/images/f00-v000000.theta", 100, 0);
  const auto loaded = v.Load(0);
  REQUIRE(loaded.status().code() == Code::kDataLoss);
  REQUIRE(loaded.status().message().find("backup") != std::string::npos);
}

TEST_CASE("an image of another size is refused") {
  Versions v;
  v.AddUpTo(0);
  v.theta.assign(kThetaElements + 1, 0);
  v.momentum.assign(kThetaElements + 1, 0);
  REQUIRE(v.store
              .LoadNewestImage(0, 0, absl::MakeSpan(v.theta),
                               absl::MakeSpan(v.momentum))
              .status()
              .code() == Code::kDataLoss);
}

TEST_CASE("retention keeps the newest images, what follows them, and marks") {
  Versions v;
  v.AddUpTo(14);
  REQUIRE(*v.store.Prune(0, /*keep_images=*/2, KeptImages{100, 4}, kNow) == 8);
  REQUIRE(*v.fs.List("state/images") ==
          std::vector<std::string>{"f00-v000000.momentum", "f00-v000000.theta",
                                   "f00-v000008.momentum", "f00-v000008.theta",
                                   "f00-v000012.momentum",
                                   "f00-v000012.theta"});
  REQUIRE(*v.fs.List("state/blobs") ==
          std::vector<std::string>{"f00-v000009.blob", "f00-v000010.blob",
                                   "f00-v000011.blob", "f00-v000012.blob",
                                   "f00-v000013.blob", "f00-v000014.blob"});
  REQUIRE_FALSE(v.store.Find(v.written[5].blob.digest).has_value());
  REQUIRE(Shape(v.store.Resolve(0, 5, 14, kNow)) ==
          Chain{{true, 12}, {false, 13}, {false, 14}});
  REQUIRE(v.store.Resolve(0, 5, 7, kNow).status().code() == Code::kNotFound);
  REQUIRE(*v.Load(14) == 12);
  REQUIRE(*v.store.Prune(0, 2, KeptImages{100, 4}, kNow) == 8);

  // A restart registers everything that ever was.
  for (const auto& [version, files] : v.written) {
    v.store.Learn(Versions::FactOf(version, files));
  }
  REQUIRE_FALSE(v.store.Find(v.written[4].theta.digest).has_value());
  REQUIRE(*v.Load(7) == 0);
  REQUIRE(*v.store.Prune(0, 2, {}, kNow) == 8);
  REQUIRE_FALSE(v.fs.Exists("state/images/f00-v000000.theta"));
}

TEST_CASE("of each stretch of versions the first image stays") {
  Versions v;
  v.AddUpTo(30);
  // Images at 0, 4, ... 28: those at or after 0, 10 and 20.
  REQUIRE(*v.store.Prune(0, 1, KeptImages{10, 4}, kNow) == 28);
  REQUIRE(*v.fs.List("state/images") ==
          std::vector<std::string>{"f00-v000000.momentum", "f00-v000000.theta",
                                   "f00-v000012.momentum", "f00-v000012.theta",
                                   "f00-v000020.momentum", "f00-v000020.theta",
                                   "f00-v000028.momentum",
                                   "f00-v000028.theta"});
}

TEST_CASE("retention never removes the only image and counts fragments apart") {
  Versions v;
  v.AddUpTo(3);
  REQUIRE(*v.store.Prune(0, 2, {}, kNow) == 0);
  REQUIRE(v.fs.Exists("state/images/f00-v000000.theta"));
  REQUIRE(v.fs.Exists("state/blobs/f00-v000001.blob"));
  REQUIRE(v.store.Prune(1, 2, {}, kNow).status().code() == Code::kNotFound);
}

TEST_CASE("a reader goes on when retention removes its file") {
  Versions v;
  v.AddUpTo(12);
  const auto file = v.fs.OpenForRead("state/blobs/f00-v000002.blob");
  REQUIRE(v.store.Prune(0, 1, {}, kNow).ok());
  REQUIRE_FALSE(v.fs.Exists("state/blobs/f00-v000002.blob"));
  std::string bytes(v.written[2].blob.bytes, '\0');
  REQUIRE((*file)->ReadAt(0, absl::MakeSpan(&bytes[0], bytes.size())).ok());
  REQUIRE(BlockDigest(bytes) == v.written[2].blob.digest);
}

TEST_CASE("retention leaves alone what a reader is at, for its time") {
  Versions v;
  v.AddUpTo(12);
  const Instant until = kNow + absl::Minutes(10);
  // A chain that was resolved, a blob and one half of an image.
  REQUIRE(v.store.Resolve(0, 1, 3, until).ok());
  REQUIRE(v.store.FindAndPin(v.written[5].blob.digest, until).has_value());
  REQUIRE(v.store.FindAndPin(v.written[4].momentum.digest, until).has_value());
  REQUIRE_FALSE(v.store.FindAndPin(Sha256("nothing"), until).has_value());
  const std::vector<std::string> pinned = {
      "blobs/f00-v000002.blob", "blobs/f00-v000003.blob",
      "blobs/f00-v000005.blob", "images/f00-v000004.theta",
      "images/f00-v000004.momentum"};
  REQUIRE(*v.store.Prune(0, 1, {}, until - absl::Nanoseconds(1)) == 12);
  for (const std::string& file : pinned) {
    INFO(file);
    CHECK(v.fs.Exists(JoinPath("state", file)));
  }
  CHECK(v.store.Find(v.written[3].blob.digest).has_value());
  CHECK_FALSE(v.fs.Exists("state/blobs/f00-v000001.blob"));
  CHECK_FALSE(v.fs.Exists("state/images/f00-v000008.theta"));
  // It reads on, and then goes away.
  REQUIRE(v.store.FindAndPin(v.written[5].blob.digest, until + absl::Minutes(1))
              .has_value());
  REQUIRE(*v.store.Prune(0, 1, {}, until) == 12);
  for (const std::string& file : pinned) {
    INFO(file);
    CHECK(v.fs.Exists(JoinPath("state", file)) ==
          (file == "blobs/f00-v000005.blob"));
  }
  REQUIRE(*v.store.Prune(0, 1, {}, until + absl::Minutes(1)) == 12);
  CHECK_FALSE(v.fs.Exists("state/blobs/f00-v000005.blob"));
}

TEST_CASE("for space the oldest images go, down to those of a start") {
  Versions v;
  v.AddUpTo(18);
  REQUIRE(*v.store.Prune(0, 3, KeptImages{4, 4}, kNow) == 8);
  // 4 has a reader.
  REQUIRE(v.store.FindAndPin(v.written[4].theta.digest, kNow + absl::Hours(1))
              .has_value());
  using Dropped = std::optional<uint64_t>;
  CHECK(*v.store.DropOldestImage(0, 2, {}, kNow) == Dropped(0));
  CHECK_FALSE(v.fs.Exists("state/images/f00-v000000.theta"));
  CHECK(v.fs.Exists("state/blobs/f00-v000009.blob"));
  CHECK(*v.store.DropOldestImage(0, 2, {}, kNow) == Dropped(8));
  CHECK_FALSE(v.fs.Exists("state/blobs/f00-v000009.blob"));
  CHECK_FALSE(v.fs.Exists("state/blobs/f00-v000012.blob"));
  CHECK(v.fs.Exists("state/blobs/f00-v000013.blob"));
  CHECK(*v.store.DropOldestImage(0, 2, {}, kNow) == Dropped());
  CHECK(*v.store.DropOldestImage(0, 2, {}, kNow + absl::Hours(1)) ==
        Dropped(4));
  CHECK(*v.store.DropOldestImage(0, 2, {}, kNow + absl::Hours(1)) == Dropped());
  REQUIRE(*v.Load(18) == 16);
  v.fs.FlipBit("state/images/f00-v000016.theta", 70, 3);
  REQUIRE(*v.Load(18) == 12);
}

TEST_CASE("for space the images of keep.every can be spared") {
  Versions v;
  v.AddUpTo(18);
  REQUIRE(*v.store.Prune(0, 3, KeptImages{4, 4}, kNow) == 8);
  using Dropped = std::optional<uint64_t>;
  // Of 0, 4, 8, 12 and 16.
  CHECK(*v.store.DropOldestImage(0, 2, KeptImages{8, 4}, kNow) == Dropped(4));
  CHECK(*v.store.DropOldestImage(0, 2, KeptImages{8, 4}, kNow) == Dropped());
  CHECK(v.fs.Exists("state/images/f00-v000000.theta"));
  CHECK(v.fs.Exists("state/images/f00-v000008.theta"));
  CHECK(*v.store.DropOldestImage(0, 2, {}, kNow) == Dropped(0));
}

TEST_CASE("C7.1 an end at any moment of a save leaves the one before intact") {
  for (int step = 1; step < 20; ++step) {
    INFO("ended at step " << step);
    Versions v;
    v.AddUpTo(4);
    v.fs.StopAfter(step);
    const bool saved = v.Add(8, true, true).ok();
    v.fs.Crash();
    if (!saved) {
      // Its record never reached the journal; a fold of the round comes next.
      REQUIRE(*v.Load(8) == 4);
      v.RequireLoaded(4);
      REQUIRE(v.Add(8, true, true).ok());
    }
    REQUIRE(*v.Load(8) == 8);
    v.RequireLoaded(8);
  }
}

TEST_CASE("C7.1 a full disk or a failed fsync while saving is reported") {
  Versions v;
  v.AddUpTo(4);
  SECTION("full disk") {
    v.fs.set_space(v.fs.bytes_used() + 5000);
    REQUIRE(v.Add(8, true, true).code() == Code::kResourceExhausted);
    v.fs.set_space(UINT64_MAX);
    REQUIRE(*v.Load(8) == 4);
    REQUIRE(v.Add(8, true, true).ok());
    REQUIRE(*v.Load(8) == 8);
  }
  SECTION("failed fsync") {
    v.fs.FailSync(GENERATE(1, 2, 3, 4, 5));
    REQUIRE(v.Add(8, true, true).code() == Code::kDataLoss);
    v.fs.Crash();
    REQUIRE(*v.Load(8) == 4);
  }
}

}  // namespace
}  // namespace diloco
