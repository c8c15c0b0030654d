// Protobuf messages as JSON for --json: field names as in the .proto, bytes in
// hexadecimal, enum values by their short lower-case name, every field present.
#ifndef COORDINATOR_CLI_MESSAGE_JSON_H_
#define COORDINATOR_CLI_MESSAGE_JSON_H_

#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace diloco {

nlohmann::ordered_json MessageToJson(const google::protobuf::Message& message);

// One line of JSON; text that is not UTF-8 is replaced, never an exception.
std::string JsonLine(const nlohmann::ordered_json& json);

}  // namespace diloco

#endif  // COORDINATOR_CLI_MESSAGE_JSON_H_
