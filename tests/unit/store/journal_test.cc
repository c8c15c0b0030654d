#include "coordinator/store/journal.h"

#include "absl/strings/str_cat.h"
#include "common/io/crc32c.h"
#include "coordinator/store/journal_format.h"
#include "tests/support/catch.h"
#include "tests/unit/store/journal_files.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

// A journal of `records` committed records, closed again; its bytes.
std::string MakeJournal(FaultFileSystem& fs, int records) {
  GrowJournal(&fs, records);
  return *ReadFile(&fs, kFirstSegment);
}

void PutFile(FaultFileSystem& fs, const std::string& bytes) {
  REQUIRE(fs.CreateDirs(kJournalDir).ok());
  REQUIRE(WriteFileAtomic(&fs, kFirstSegment, bytes).ok());
}

void RequireRefused(FaultFileSystem& fs, Code code, const std::string& text) {
  const std::string before = *ReadFile(&fs, kFirstSegment);
  const OpenedJournal opened = OpenJournal(&fs);
  INFO(opened.journal.status().ToString());
  REQUIRE(opened.journal.status().code() == code);
  const std::string message(opened.journal.status().message());
  REQUIRE(message.find(kFirstSegment) != std::string::npos);
  REQUIRE(message.find(text) != std::string::npos);
  REQUIRE(*ReadFile(&fs, kFirstSegment) == before);
}

TEST_CASE("records come back in order, over restarts") {
  FaultFileSystem fs;
  MakeJournal(fs, 5);
  OpenedJournal again = OpenJournal(&fs);
  REQUIRE(again.payloads.size() == 5);
  REQUIRE(again.payloads[4] == SamplePayload(5));
  REQUIRE(again.offsets[0] == kSegmentHeaderBytes);
  REQUIRE((*again.journal)->last_sequence() == 5);
  AppendSample(**again.journal);
  AppendSample(**again.journal);
  REQUIRE((*again.journal)->Commit().ok());
  REQUIRE(OpenJournal(&fs).payloads.size() == 7);
}

TEST_CASE(
    "a commit is one write and one fsync; what was not committed is not") {
  FaultFileSystem fs;
  OpenedJournal opened = OpenJournal(&fs);
  for (int i = 0; i < 3; ++i) AppendSample(**opened.journal);
  const int syncs = fs.syncs();
  REQUIRE((*opened.journal)->Commit().ok());
  REQUIRE(fs.syncs() == syncs + 1);
  REQUIRE((*opened.journal)->Commit().ok());
  REQUIRE(fs.syncs() == syncs + 1);
  AppendSample(**opened.journal);
  fs.Crash();
  REQUIRE(OpenJournal(&fs).payloads.size() == 3);
}

TEST_CASE("C7.2 a journal cut anywhere in its last record loses only that") {
  FaultFileSystem fs;
  const std::string nineteen = MakeJournal(fs, 19);
  FaultFileSystem other;
  const std::string twenty = MakeJournal(other, 20);
  for (size_t cut = nineteen.size(); cut < twenty.size(); ++cut) {
    INFO("cut at " << cut);
    PutFile(fs, twenty.substr(0, cut));
    OpenedJournal opened = OpenJournal(&fs);
    REQUIRE(opened.journal.ok());
    REQUIRE(opened.payloads.size() == 19);
    REQUIRE(*ReadFile(&fs, kFirstSegment) == nineteen);
    AppendSample(**opened.journal);
    REQUIRE((*opened.journal)->Commit().ok());
    REQUIRE(*ReadFile(&fs, kFirstSegment) == twenty);
  }
}

TEST_CASE("C7.2 a zero tail is cut, whatever its length") {
  FaultFileSystem fs;
  const std::string good = MakeJournal(fs, 20);
  for (size_t zeros : {size_t{1}, size_t{7}, size_t{4096}, size_t{4} << 20}) {
    PutFile(fs, good + std::string(zeros, '\0'));
    const OpenedJournal opened = OpenJournal(&fs);
    REQUIRE(opened.journal.ok());
    REQUIRE(opened.payloads.size() == 20);
    REQUIRE(*ReadFile(&fs, kFirstSegment) == good);
  }
}

TEST_CASE("C7.2 any bit flipped before a good record stops the start") {
  FaultFileSystem fs;
  const std::string good = MakeJournal(fs, 20);
  const OpenedJournal opened = OpenJournal(&fs);
  const size_t begin = opened.offsets[9];
  const size_t end = opened.offsets[10];
  for (size_t byte = begin; byte < end; ++byte) {
    for (int bit : {0, 7}) {
      INFO("byte " << byte << " bit " << bit);
      std::string damaged = good;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      PutFile(fs, damaged);
      RequireRefused(
          fs, Code::kDataLoss,
          absl::StrCat("record 10 at offset ", begin, " is damaged"));
    }
  }
}

TEST_CASE("C7.2 swapped, repeated and missing records stop the start") {
  FaultFileSystem fs;
  const std::string good = MakeJournal(fs, 20);
  const std::vector<uint64_t> at = OpenJournal(&fs).offsets;
  const auto record = [&](size_t i) {
    return good.substr(at[i], (i == 19 ? good.size() : at[i + 1]) - at[i]);
  };
  SECTION("swapped") {
    PutFile(fs,
            good.substr(0, at[4]) + record(5) + record(4) + good.substr(at[6]));
  }
  SECTION("missing") {
    PutFile(fs, good.substr(0, at[4]) + good.substr(at[5]));
  }
  SECTION("repeated") {
    PutFile(fs, good.substr(0, at[4]) + record(3) + good.substr(at[4]));
  }
  RequireRefused(fs, Code::kDataLoss, "record 5 at offset");
}

TEST_CASE("C7.2 an empty or short file is not taken for a new journal") {
  FaultFileSystem fs;
  const std::string good = MakeJournal(fs, 1);
  for (size_t bytes = 0; bytes < kSegmentHeaderBytes; ++bytes) {
    PutFile(fs, good.substr(0, bytes));
    RequireRefused(fs, Code::kDataLoss, "restore the");
  }
}

TEST_CASE("C7.4 a foreign, damaged or newer header is refused untouched") {
  FaultFileSystem fs;
  const std::string good = MakeJournal(fs, 2);
  SECTION("foreign") {
    PutFile(fs, "SQLite format 3" + good.substr(15));
    RequireRefused(fs, Code::kFailedPrecondition, "no journal");
  }
  SECTION("damaged") {
    std::string damaged = good;
    damaged[9] = 1;
    PutFile(fs, damaged);
    RequireRefused(fs, Code::kDataLoss, "checksum");
  }
  SECTION("newer") {
    // Format 3 with its right checksum.
    std::string newer = good.substr(0, 8) + std::string("\x03\0\0\0", 4);
    const uint32_t crc = Crc32c(newer);
    for (int i = 0; i < 4; ++i) newer += static_cast<char>(crc >> (8 * i));
    PutFile(fs, newer + good.substr(16));
    RequireRefused(fs, Code::kFailedPrecondition, "format 3");
  }
}

TEST_CASE("a visitor's error stops the start and names the record") {
  FaultFileSystem fs;
  MakeJournal(fs, 3);
  const auto journal =
      Journal::Open(&fs, kJournalDir, [](const Journal::Record& record) {
        return record.sequence == 2 ? absl::DataLossError("bad fact")
                                    : absl::OkStatus();
      });
  REQUIRE(journal.status().code() == Code::kDataLoss);
  REQUIRE(journal.status().message().find("record 2 at offset") !=
          std::string::npos);
}

TEST_CASE("C7.2 Scan reads the same and changes nothing") {
  FaultFileSystem fs;
  const std::string good = MakeJournal(fs, 3);
  PutFile(fs, good + "torn");
  int records = 0;
  const auto scanned =
      Journal::Scan(&fs, kJournalDir, [&](const Journal::Record&) {
        ++records;
        return absl::OkStatus();
      });
  REQUIRE(scanned.ok());
  REQUIRE(records == 3);
  REQUIRE(scanned->records == 3);
  REQUIRE(scanned->good_bytes == good.size());
  REQUIRE(scanned->tail_bytes == 4);
  REQUIRE(*ReadFile(&fs, kFirstSegment) == good + "torn");
}

TEST_CASE("C7.1 a full disk keeps what was there and a later commit works") {
  FaultFileSystem fs;
  const std::string good = MakeJournal(fs, 3);
  OpenedJournal opened = OpenJournal(&fs);
  AppendSample(**opened.journal);
  AppendSample(**opened.journal);
  fs.set_space(fs.bytes_used() + 10);
  for (int attempt = 0; attempt < 3; ++attempt) {
    REQUIRE((*opened.journal)->Commit().code() == Code::kResourceExhausted);
    REQUIRE(*ReadFile(&fs, kFirstSegment) == good);
  }
  AppendSample(**opened.journal);
  fs.set_space(UINT64_MAX);
  REQUIRE((*opened.journal)->Commit().ok());
  fs.Crash();
  REQUIRE(OpenJournal(&fs).payloads.size() == 6);
}

TEST_CASE("C7.1 a failed fsync or write is final and is never tried again") {
  FaultFileSystem fs;
  MakeJournal(fs, 3);
  OpenedJournal opened = OpenJournal(&fs);
  AppendSample(**opened.journal);
  SECTION("fsync") { fs.FailSync(1); }
  SECTION("write") { fs.FailWrite(1, 5); }
  const absl::Status first = (*opened.journal)->Commit();
  REQUIRE(first.code() == Code::kDataLoss);
  REQUIRE(first.message().find("failed for good") != std::string::npos);
  const int syncs = fs.syncs();
  AppendSample(**opened.journal);
  REQUIRE((*opened.journal)->Commit() == first);
  REQUIRE(fs.syncs() == syncs);
  fs.Crash();
  REQUIRE(OpenJournal(&fs).payloads.size() == 3);
}

TEST_CASE("C7.1 a power cut keeps every committed record, whatever is torn") {
  for (uint64_t keep = 0; keep < 120; ++keep) {
    FaultFileSystem fs;
    MakeJournal(fs, 3);
    OpenedJournal opened = OpenJournal(&fs);
    for (int i = 0; i < 3; ++i) AppendSample(**opened.journal);
    fs.FailSync(1);
    REQUIRE_FALSE((*opened.journal)->Commit().ok());
    fs.CrashKeeping(keep);
    const OpenedJournal after = OpenJournal(&fs);
    REQUIRE(after.journal.ok());
    REQUIRE(after.payloads.size() >= 3);
    REQUIRE(after.payloads.size() <= 6);
    for (size_t i = 0; i < after.payloads.size(); ++i) {
      REQUIRE(after.payloads[i] == SamplePayload(i + 1));
    }
  }
}

TEST_CASE("C7.1 creation survives an end at any moment") {
  for (int step = 1; step < 20; ++step) {
    FaultFileSystem fs;
    fs.StopAfter(step);
    {
      OpenedJournal opened = OpenJournal(&fs);
      if (opened.journal.ok()) {
        AppendSample(**opened.journal);
        (*opened.journal)->Commit().IgnoreError();
      }
    }
    fs.Crash();
    REQUIRE(OpenJournal(&fs).journal.ok());
  }
}

}  // namespace
}  // namespace diloco
