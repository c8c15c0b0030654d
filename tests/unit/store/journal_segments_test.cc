// The journal over several files, and one of format 1.
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/store/fact_codec.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/state_dir.h"
#include "tests/support/catch.h"
#include "tests/unit/store/journal_files.h"
#include "tests/unit/store/sample_facts.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

constexpr uint64_t kSmall = 130;  // Three records.
constexpr int kRecords = 20;

std::string Segment(uint32_t number) {
  return JoinPath(kJournalDir, SegmentName(number));
}

std::map<std::string, std::string> Files(FileSystem* fs) {
  std::map<std::string, std::string> files;
  const std::vector<std::string> names = fs->List(kJournalDir).value();
  for (const std::string& name : names) {
    files[name] = *ReadFile(fs, JoinPath(kJournalDir, name));
  }
  return files;
}

Journal::Scanned Scan(FileSystem* fs) {
  const auto scanned = Journal::Scan(
      fs, kJournalDir, [](const Journal::Record&) { return absl::OkStatus(); });
  INFO(scanned.status());
  REQUIRE(scanned.ok());
  return *scanned;
}

// Refused by Open and by Scan, with these words, and nothing is changed.
void RequireRefused(FaultFileSystem& fs, Code code,
                    const std::vector<std::string>& words) {
  const auto before = Files(&fs);
  const OpenedJournal opened = OpenJournal(&fs, kSmall);
  INFO(opened.journal.status());
  REQUIRE(opened.journal.status().code() == code);
  for (const std::string& word : words) {
    INFO(word);
    CHECK(absl::StrContains(opened.journal.status().message(), word));
  }
  CHECK(Journal::Scan(&fs, kJournalDir, [](const Journal::Record&) {
          return absl::OkStatus();
        }).status() == opened.journal.status());
  CHECK(Files(&fs) == before);
}

TEST_CASE("the journal goes on in another segment at a commit") {
  FaultFileSystem fs;
  GrowJournal(&fs, kRecords, kSmall);
  const Journal::Scanned scanned = Scan(&fs);
  CHECK(scanned.records == kRecords);
  REQUIRE(scanned.segments.size() > 4);
  uint64_t bytes = 0;
  for (const Journal::Segment& segment : scanned.segments) {
    const std::string content =
        *ReadFile(&fs, JoinPath(kJournalDir, segment.name));
    CHECK(content.size() == segment.good_bytes);
    CHECK(content.size() < 2 * kSmall);
    bytes += content.size();
  }
  CHECK(scanned.good_bytes == bytes);
  CHECK(scanned.head == scanned.segments.size());
  // Opened with another size it goes on where it was.
  GrowJournal(&fs, 3);
  CHECK(Scan(&fs).segments.size() == scanned.segments.size());
  CHECK(OpenJournal(&fs).payloads.size() == kRecords + 3);
  // A group stays together.
  {
    OpenedJournal opened = OpenJournal(&fs, kSmall);
    for (int i = 0; i < 30; ++i) AppendSample(**opened.journal);
    REQUIRE((*opened.journal)->Commit().ok());
  }
  CHECK(Scan(&fs).segments.size() == scanned.segments.size() + 1);
  CHECK(OpenJournal(&fs).payloads.size() == kRecords + 33);
}

TEST_CASE("C7.2 a segment that is missing is noticed, the newest one too") {
  FaultFileSystem fs;
  GrowJournal(&fs, kRecords, kSmall);
  const auto newest = static_cast<uint32_t>(Scan(&fs).segments.size());
  for (uint32_t number = 1; number <= newest; ++number) {
    INFO(number);
    const std::string content = *ReadFile(&fs, Segment(number));
    REQUIRE(fs.Remove(Segment(number)).ok());
    RequireRefused(
        fs, Code::kDataLoss,
        {absl::StrCat(Segment(number), " is missing"), "record ", "backup"});
    REQUIRE(WriteFileAtomic(&fs, Segment(number), content).ok());
  }
  // All of them.
  for (uint32_t number = 1; number <= newest; ++number) {
    REQUIRE(fs.Remove(Segment(number)).ok());
  }
  RequireRefused(fs, Code::kDataLoss, {Segment(1) + " is missing"});
}

TEST_CASE("C7.2 a segment of 0 bytes or with a damaged header is noticed") {
  FaultFileSystem fs;
  GrowJournal(&fs, kRecords, kSmall);
  const auto newest = static_cast<uint32_t>(Scan(&fs).segments.size());
  for (const uint32_t number : {1u, 2u, newest}) {
    const std::string content = *ReadFile(&fs, Segment(number));
    for (size_t bytes = 0; bytes < kSegmentHeaderBytes; ++bytes) {
      INFO(number << " with " << bytes << " bytes");
      REQUIRE(
          WriteFileAtomic(&fs, Segment(number), content.substr(0, bytes)).ok());
      RequireRefused(fs, Code::kDataLoss, {Segment(number), "restore the"});
    }
    for (uint64_t byte = 12; byte < 36; ++byte) {
      INFO(number << " with a bit flipped in byte " << byte);
      REQUIRE(WriteFileAtomic(&fs, Segment(number), content).ok());
      fs.FlipBit(Segment(number), byte, 3);
      RequireRefused(fs, Code::kDataLoss, {Segment(number), "checksum"});
    }
    REQUIRE(WriteFileAtomic(&fs, Segment(number), content).ok());
  }
  CHECK(OpenJournal(&fs).payloads.size() == kRecords);
}

TEST_CASE("C7.2 only the newest segment can have a torn tail") {
  FaultFileSystem fs;
  GrowJournal(&fs, kRecords, kSmall);
  const Journal::Scanned scanned = Scan(&fs);
  const std::string second = *ReadFile(&fs, Segment(2));
  SECTION("damage in its last record, cut in it, zeros behind it") {
    REQUIRE(WriteFileAtomic(&fs, Segment(2),
                            GENERATE_COPY(second.substr(0, second.size() - 1),
                                          second + std::string(64, '\0')))
                .ok());
    RequireRefused(
        fs, Code::kDataLoss,
        {Segment(2), "record ", "at offset ", "is damaged", SegmentName(3)});
  }
  SECTION("a whole record less") {
    REQUIRE(
        WriteFileAtomic(&fs, Segment(2), second.substr(0, kSegmentHeaderBytes))
            .ok());
    RequireRefused(fs, Code::kDataLoss, {Segment(3), "does not go on from"});
  }
  SECTION("the newest") {
    const std::string& name = scanned.segments.back().name;
    const std::string good = *ReadFile(&fs, JoinPath(kJournalDir, name));
    REQUIRE(WriteFileAtomic(&fs, JoinPath(kJournalDir, name),
                            good + std::string(64, '\0'))
                .ok());
    CHECK(Scan(&fs).tail_bytes == 64);
    CHECK(OpenJournal(&fs, kSmall).payloads.size() == kRecords);
    CHECK(*ReadFile(&fs, JoinPath(kJournalDir, name)) == good);
  }
}

TEST_CASE("C7.2 swapped and foreign segments are noticed") {
  FaultFileSystem fs;
  GrowJournal(&fs, kRecords, kSmall);
  SECTION("swapped") {
    const std::string two = *ReadFile(&fs, Segment(2));
    const std::string three = *ReadFile(&fs, Segment(3));
    REQUIRE(WriteFileAtomic(&fs, Segment(2), three).ok());
    REQUIRE(WriteFileAtomic(&fs, Segment(3), two).ok());
    RequireRefused(fs, Code::kDataLoss,
                   {Segment(2), SegmentName(3) + " under another name"});
  }
  SECTION("of another journal with the same numbers") {
    FaultFileSystem other;
    {
      OpenedJournal opened = OpenJournal(&other, kSmall);
      for (int i = 1; i <= kRecords; ++i) {
        (*opened.journal)
            ->Append(static_cast<uint32_t>(100 + i),
                     "P" + SamplePayload(i).substr(1));
        REQUIRE((*opened.journal)->Commit().ok());
      }
    }
    const uint32_t number = GENERATE(1, 2, 3);
    const std::string foreign = *ReadFile(&other, Segment(number));
    REQUIRE(foreign.size() == ReadFile(&fs, Segment(number))->size());
    REQUIRE(WriteFileAtomic(&fs, Segment(number), foreign).ok());
    RequireRefused(fs, Code::kDataLoss,
                   {Segment(number == 1 ? 2 : number), "does not go on from",
                    "another journal"});
  }
}

TEST_CASE("C7.2 a damaged or newer head stops the start") {
  FaultFileSystem fs;
  GrowJournal(&fs, 3);
  const std::string path = JoinPath(kJournalDir, kJournalHead);
  SECTION("damaged") {
    fs.FlipBit(path, 12, 0);
    RequireRefused(fs, Code::kDataLoss, {path, "damaged", "backup"});
  }
  SECTION("newer") {
    fs.FlipBit(path, 8, 1);
    RequireRefused(fs, Code::kFailedPrecondition, {path, "format 3"});
  }
  SECTION("gone: what is there is the journal") {
    REQUIRE(fs.Remove(path).ok());
    CHECK(OpenJournal(&fs).payloads.size() == 3);
    CHECK(Scan(&fs).head == 1);
  }
}

TEST_CASE("C7.1 the change of segments survives an end at any moment") {
  const bool power_cut = GENERATE(false, true);
  for (int step = 1; step < 60; ++step) {
    INFO("ended at step " << step);
    FaultFileSystem fs;
    GrowJournal(&fs, 2, kSmall);
    uint64_t committed = 2;
    {
      OpenedJournal opened = OpenJournal(&fs, kSmall);
      fs.StopAfter(step);
      for (int i = 0; i < 10; ++i) {
        AppendSample(**opened.journal);
        if (!(*opened.journal)->Commit().ok()) break;
        ++committed;
      }
    }
    if (power_cut) {
      fs.Crash();
    } else {
      fs.KillProcess();
    }
    const OpenedJournal after = OpenJournal(&fs, kSmall);
    INFO(after.journal.status());
    REQUIRE(after.journal.ok());
    CHECK(after.payloads.size() >= committed);
    CHECK(after.payloads.size() <= committed + 1);
  }
}

TEST_CASE("C7.1 what an opening has read is durable, in whatever segment") {
  for (int step = 1; step < 60; ++step) {
    INFO("ended at step " << step);
    FaultFileSystem fs;
    GrowJournal(&fs, 2, kSmall);
    {
      OpenedJournal opened = OpenJournal(&fs, kSmall);
      fs.StopAfter(step);
      for (int i = 0; i < 10; ++i) {
        AppendSample(**opened.journal);
        if (!(*opened.journal)->Commit().ok()) break;
      }
    }
    // The process ended, perhaps between a write and its fsync; the machine
    // does so only after the next process has read what was written.
    fs.KillProcess();
    size_t read = 0;
    {
      OpenedJournal opened = OpenJournal(&fs, kSmall);
      REQUIRE(opened.journal.ok());
      read = opened.payloads.size();
      if (step % 2 == 0) {
        AppendSample(**opened.journal);
        REQUIRE((*opened.journal)->Commit().ok());
        ++read;
      }
    }
    fs.Crash();
    const OpenedJournal after = OpenJournal(&fs, kSmall);
    INFO(after.journal.status());
    REQUIRE(after.journal.ok());
    CHECK(after.payloads.size() == read);
  }
}

TEST_CASE("C7.1 without space for another segment the journal waits") {
  // The new segment, its head, or the records behind them do not fit.
  const uint64_t space =
      GENERATE(0, 10, kSegmentHeaderBytes, kSegmentHeaderBytes + 10,
               kSegmentHeaderBytes + 30);
  FaultFileSystem fs;
  GrowJournal(&fs, 3, kSmall);
  OpenedJournal opened = OpenJournal(&fs, kSmall);
  AppendSample(**opened.journal);
  AppendSample(**opened.journal);
  fs.set_space(fs.bytes_used() + space);
  for (int attempt = 0; attempt < 3; ++attempt) {
    REQUIRE((*opened.journal)->Commit().code() == Code::kResourceExhausted);
  }
  AppendSample(**opened.journal);
  fs.set_space(UINT64_MAX);
  REQUIRE((*opened.journal)->Commit().ok());
  fs.Crash();
  CHECK(OpenJournal(&fs, kSmall).payloads.size() == 6);
  CHECK(Scan(&fs).segments.size() == 2);
}

std::string FormatOne() {
  const auto bytes = ReadFile(
      FileSystem::Posix(), JoinPath(DILOCO_GOLDEN_DIR, "journal/format_1.log"));
  REQUIRE(bytes.ok());
  return *bytes;
}

// What that file holds: those kinds that there were.
std::vector<Fact> FactsOfFormatOne() {
  std::vector<Fact> facts = SampleFacts();
  facts.resize(21);
  return facts;
}

TEST_CASE("C7.4 a journal of format 1 is read, and goes on in that of today") {
  FaultFileSystem fs;
  REQUIRE(fs.CreateDirs(kJournalDir).ok());
  const std::string torn = GENERATE("", "torn tail");
  const std::string old = FormatOne() + torn;
  REQUIRE(WriteFileAtomic(&fs, kFirstSegment, old).ok());
  const std::vector<Fact> facts = FactsOfFormatOne();
  uint64_t visited = 0;
  const auto visit = [&](const Journal::Record& record) {
    const EncodedFact expected = EncodeFact(facts[record.sequence - 1]);
    CHECK(record.type == expected.type);
    CHECK(record.payload == expected.payload);
    ++visited;
    return absl::OkStatus();
  };
  // Reading changes nothing.
  const auto scanned = Journal::Scan(&fs, kJournalDir, visit);
  INFO(scanned.status());
  REQUIRE(scanned.ok());
  CHECK(scanned->segments[0].format == 1);
  CHECK(scanned->tail_bytes == torn.size());
  CHECK(visited == facts.size());
  CHECK(*ReadFile(&fs, kFirstSegment) == old);
  {
    auto journal = Journal::Open(&fs, kJournalDir, visit);
    INFO(journal.status());
    REQUIRE(journal.ok());
    CHECK(visited == 2 * facts.size());
    CHECK((*journal)->Append(7, "more") == facts.size() + 1);
    REQUIRE((*journal)->Commit().ok());
  }
  // A version that knows format 1 only does not take it for its own.
  const auto parsed = ParseSegmentHeader(*ReadFile(&fs, kFirstSegment));
  REQUIRE(parsed.ok());
  CHECK(parsed->format == 2);
  CHECK(Scan(&fs).records == facts.size() + 1);
  CHECK(Scan(&fs).head == 1);
}

TEST_CASE("C7.1 a change of format survives an end at any moment") {
  const std::string old = FormatOne();
  const uint64_t records = FactsOfFormatOne().size();
  for (int step = 1; step < 12; ++step) {
    INFO("ended at step " << step);
    FaultFileSystem fs;
    REQUIRE(fs.CreateDirs(kJournalDir).ok());
    REQUIRE(WriteFileAtomic(&fs, kFirstSegment, old).ok());
    const auto open = [&fs] {
      return Journal::Open(
                 &fs, kJournalDir,
                 [](const Journal::Record&) { return absl::OkStatus(); })
          .status();
    };
    fs.StopAfter(step);
    open().IgnoreError();
    fs.Crash();
    CHECK(Scan(&fs).records == records);
    REQUIRE(open().ok());
    CHECK(Scan(&fs).segments[0].format == 2);
  }
}

}  // namespace
}  // namespace diloco
