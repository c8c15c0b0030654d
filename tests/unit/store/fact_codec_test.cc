#include "coordinator/store/fact_codec.h"

#include <cstdlib>
#include <set>

#include "common/base/ids.h"
#include "coordinator/store/journal_format.h"
#include "tests/support/catch.h"
#include "tests/unit/store/sample_facts.h"

namespace diloco {
namespace {

using Code = absl::StatusCode;

TEST_CASE("every kind of fact survives the journal") {
  std::set<size_t> kinds;
  std::set<uint32_t> types;
  for (const Fact& fact : SampleFacts()) {
    const EncodedFact encoded = EncodeFact(fact);
    INFO(FactTypeName(encoded.type));
    REQUIRE_FALSE(FactTypeName(encoded.type).empty());
    const absl::StatusOr<Fact> decoded =
        DecodeFact(encoded.type, encoded.payload);
    REQUIRE(decoded.ok());
    REQUIRE(*decoded == fact);
    REQUIRE(EncodeFact(*decoded).payload == encoded.payload);
    kinds.insert(fact.index());
    types.insert(encoded.type);
  }
  REQUIRE(kinds.size() == std::variant_size_v<Fact>);
  REQUIRE(types.size() == std::variant_size_v<Fact>);
}

TEST_CASE("what facts say of several fragments survives the journal") {
  LineageStarted lineage;
  lineage.lineage = "fedcba9876543210";
  lineage.fragments.resize(2);
  lineage.fragments[1].folded_tokens = 77;
  for (const Fact& fact :
       {Fact(EvalOpened{9, {4, 5}, {{"a", 0, 4}}}), Fact(lineage)}) {
    const EncodedFact encoded = EncodeFact(fact);
    const auto decoded = DecodeFact(encoded.type, encoded.payload);
    REQUIRE(decoded.ok());
    CHECK(*decoded == fact);
  }
}

TEST_CASE("every departure has its own value") {
  for (Departure departure :
       {Departure::kLeft, Departure::kLost, Departure::kEvicted}) {
    const Fact fact = WorkerDeparted{"a", departure, ""};
    const EncodedFact encoded = EncodeFact(fact);
    REQUIRE(*DecodeFact(encoded.type, encoded.payload) == fact);
  }
}

TEST_CASE("C7.4 unknown types and enum values are errors, never defaults") {
  const absl::Status newer = DecodeFact(77, "").status();
  REQUIRE(newer.code() == Code::kFailedPrecondition);
  REQUIRE(newer.message().find("record type 77") != std::string::npos);

  EncodedFact departed =
      EncodeFact(WorkerDeparted{"a", static_cast<Departure>(99), ""});
  REQUIRE(DecodeFact(departed.type, departed.payload).status().code() ==
          Code::kDataLoss);

  RoundClosed closed;
  closed.merge = static_cast<MergeRule>(99);
  UpdateRefused refused;
  refused.screen = static_cast<Screen>(99);
  for (const Fact& fact : {Fact(closed), Fact(refused)}) {
    const EncodedFact encoded = EncodeFact(fact);
    REQUIRE(DecodeFact(encoded.type, encoded.payload).status().code() ==
            Code::kDataLoss);
  }

  UpdateCommitted committed;
  committed.value.codec = static_cast<Codec>(99);
  const EncodedFact update = EncodeFact(committed);
  REQUIRE(DecodeFact(update.type, update.payload).status().code() ==
          Code::kDataLoss);
}

TEST_CASE("C7.4 an unknown field is ignored") {
  EncodedFact drained = EncodeFact(DrainRequested{"b"});
  // Field 15, varint 1, inside the message: its length grows by two.
  const size_t length_at = 1;
  drained.payload[length_at] =
      static_cast<char>(drained.payload[length_at] + 2);
  drained.payload += "\x78\x01";
  REQUIRE(*DecodeFact(drained.type, drained.payload) ==
          Fact(DrainRequested{"b"}));
}

TEST_CASE("damaged payloads are refused") {
  for (const Fact& fact : SampleFacts()) {
    const EncodedFact encoded = EncodeFact(fact);
    INFO(FactTypeName(encoded.type));
    // Another type than the record says.
    const uint32_t other = encoded.type == 1 ? 2 : 1;
    REQUIRE(DecodeFact(other, encoded.payload).status().code() ==
            Code::kDataLoss);
    REQUIRE(DecodeFact(encoded.type, "").status().code() == Code::kDataLoss);
    // Cut anywhere: an error or, where a field ends, a shorter fact.
    for (size_t cut = 0; cut < encoded.payload.size(); ++cut) {
      DecodeFact(encoded.type,
                 absl::string_view(encoded.payload).substr(0, cut))
          .status()
          .IgnoreError();
    }
  }
}

TEST_CASE("text that is not UTF-8 does not make the journal unreadable") {
  const EncodedFact encoded = EncodeFact(
      DrainRequested{"a\xff\xce\xb8\xed\xa0\x80\xf0\x9f\x98\x80\xe2\x82"});
  const absl::StatusOr<Fact> decoded =
      DecodeFact(encoded.type, encoded.payload);
  REQUIRE(decoded.ok());
  REQUIRE(std::get<DrainRequested>(*decoded).worker ==
          "a?\xce\xb8???\xf0\x9f\x98\x80??");
}

// The journal as text: head file and a segment's header, then "type hex" of
// each whole record.
std::string JournalAsText() {
  std::string text =
      absl::StrCat("head ", ToHex(EncodeJournalHead(1)), "\nheader ",
                   ToHex(EncodeSegmentHeader({2, 345, 0x12345678})), "\n");
  uint64_t sequence = 0;
  for (const Fact& fact : SampleFacts()) {
    const EncodedFact encoded = EncodeFact(fact);
    std::string record;
    AppendRecord(encoded.type, ++sequence, encoded.payload, &record);
    absl::StrAppend(&text, FactTypeName(encoded.type), " ", ToHex(record),
                    "\n");
  }
  return text;
}

// DILOCO_WRITE_GOLDEN=1 writes the file anew, to be reviewed as a diff.
TEST_CASE("C7.4 the journal's bytes are those of the golden file") {
  FileSystem* fs = FileSystem::Posix();
  const std::string path =
      JoinPath(DILOCO_GOLDEN_DIR, "journal/every_fact.txt");
  if (std::getenv("DILOCO_WRITE_GOLDEN") != nullptr) {
    REQUIRE(WriteFileAtomic(fs, path, JournalAsText()).ok());
  }
  const absl::StatusOr<std::string> golden = ReadFile(fs, path);
  REQUIRE(golden.ok());
  REQUIRE(*golden == JournalAsText());
}

}  // namespace
}  // namespace diloco
