#include "coordinator/cli/message_json.h"

#include "coordinator/cli/event_text.h"
#include "coordinator/cli/format.h"
#include "diloco/v1/admin.pb.h"
#include "tests/support/catch.h"

namespace diloco {
namespace {

TEST_CASE("JSON has every field, bytes in hexadecimal and short enum names") {
  v1::StatusResponse status;
  status.set_run("kjv");
  status.set_phase(v1::PHASE_RUNNING);
  status.mutable_fencing()->set_lineage(std::string("\x00\xff", 2));
  status.set_folded_tokens(1234567890123);
  const auto json = MessageToJson(status);
  CHECK(json["run"] == "kjv");
  CHECK(json["phase"] == "running");
  CHECK(json["fencing"]["lineage"] == "00ff");
  CHECK(json["folded_tokens"] == 1234567890123);
  CHECK(json["workers"].is_array());
  CHECK(json["ready"] == false);
}

TEST_CASE("text that is not UTF-8 does not break the JSON") {
  nlohmann::ordered_json json;
  json["reason"] = "\xff";
  CHECK_NOTHROW(JsonLine(json));
}

TEST_CASE("an enum's name loses the prefix of its type") {
  v1::WorkerDepartedFact fact;
  fact.set_departure(v1::DEPARTURE_KIND_LOST);
  CHECK(MessageToJson(fact)["departure"] == "lost");
}

TEST_CASE("every kind of fact has words of its own") {
  const auto* descriptor = v1::Record::descriptor();
  const std::string unknown = EventText(v1::Record());
  for (int i = 0; i < descriptor->field_count(); ++i) {
    v1::Record record;
    record.GetReflection()->MutableMessage(&record, descriptor->field(i));
    INFO(descriptor->field(i)->name());
    CHECK(EventText(record) != unknown);
    CHECK(EventText(record).find('\n') == std::string::npos);
  }
}

TEST_CASE("numbers are short and keep three digits") {
  CHECK(FormatCount(999) == "999");
  CHECK(FormatCount(1000) == "1.00k");
  CHECK(FormatCount(12345) == "12.3k");
  CHECK(FormatCount(999999) == "1.00M");
  CHECK(FormatCount(1800000) == "1.80M");
  CHECK(FormatBytes(0) == "0 B");
  CHECK(FormatBytes(2100000) == "2.10 MB");
  CHECK(FormatSeconds(0.44) == "0.4 s");
  CHECK(FormatSeconds(192) == "3m12s");
  CHECK(FormatSeconds(7500) == "2h05m");
  CHECK(FormatWallTime(1) == "1970-01-01T00:00:00.001Z");
  CHECK(FormatWallTime(0) == "-");
}

}  // namespace
}  // namespace diloco
