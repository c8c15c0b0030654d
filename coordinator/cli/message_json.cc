#include "coordinator/cli/message_json.h"

#include <string>

#include "absl/strings/ascii.h"
#include "common/base/ids.h"
#include "google/protobuf/descriptor.h"

namespace diloco {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

// PHASE_RUNNING of enum Phase is "running".
std::string EnumName(const EnumValueDescriptor* value) {
  std::string prefix;
  for (const char c : value->type()->name()) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(c);
  }
  prefix += '_';
  std::string name = value->name();
  if (name.compare(0, prefix.size(), prefix) == 0) {
    name = name.substr(prefix.size());
  }
  absl::AsciiStrToLower(&name);
  return name;
}

std::string TextOf(const FieldDescriptor* field, const std::string& value) {
  return field->type() == FieldDescriptor::TYPE_BYTES ? ToHex(value) : value;
}

Json SingleValue(const Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(reflection->GetEnum(message, field));
    case FieldDescriptor::CPPTYPE_STRING:
      return TextOf(field, reflection->GetString(message, field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(reflection->GetMessage(message, field));
  }
  return nullptr;
}

// Repeated fields of this protocol are messages or strings.
Json RepeatedValue(const Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  Json values = Json::array();
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      values.push_back(
          MessageToJson(reflection->GetRepeatedMessage(message, field, i)));
    } else {
      values.push_back(
          TextOf(field, reflection->GetRepeatedString(message, field, i)));
    }
  }
  return values;
}

}  // namespace

Json MessageToJson(const Message& message) {
  Json json = Json::object();
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->is_repeated()) {
      json[field->name()] = RepeatedValue(message, field);
    } else if (!field->has_presence() ||
               message.GetReflection()->HasField(message, field)) {
      json[field->name()] = SingleValue(message, field);
    }
  }
  return json;
}

std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace diloco
