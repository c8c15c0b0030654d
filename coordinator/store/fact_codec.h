// Facts as journal records and back: coordinator/core/facts.h in the wire form
// of proto/diloco/v1/journal.proto. Used by the sequencer, by recovery, by the
// operator's event stream and by offline tools.
//
//   EncodedFact record = EncodeFact(fact);
//   journal->Append(record.type, record.payload);
#ifndef COORDINATOR_STORE_FACT_CODEC_H_
#define COORDINATOR_STORE_FACT_CODEC_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/facts.h"

namespace diloco {

struct EncodedFact {
  uint32_t type = 0;    // Field number in the oneof of v1.Record.
  std::string payload;  // A serialised v1.Record with that field set.
};

// The same bytes for the same fact, always. Durations are kept in whole
// milliseconds; text that is not UTF-8 is kept with '?' in place of the bytes.
EncodedFact EncodeFact(const Fact& fact);

// FAILED_PRECONDITION: a type or format of a newer version. DATA_LOSS: bytes,
// an enum value or a digest that no version writes.
absl::StatusOr<Fact> DecodeFact(uint32_t type, absl::string_view payload);

// The name of the record type, e.g. "round_opened"; "" when unknown.
std::string FactTypeName(uint32_t type);

}  // namespace diloco

#endif  // COORDINATOR_STORE_FACT_CODEC_H_
