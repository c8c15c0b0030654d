#include "common/data/token_format.h"

#include "absl/strings/str_cat.h"

namespace diloco {

const char* TokenFormatName(TokenFormat format) {
  switch (format) {
    case TokenFormat::kUint16:
      return "uint16";
    case TokenFormat::kUint32:
      return "uint32";
    case TokenFormat::kLlmC:
      return "llm.c";
  }
  return "?";
}

absl::StatusOr<TokenFormat> ParseTokenFormat(absl::string_view name) {
  for (TokenFormat format :
       {TokenFormat::kUint16, TokenFormat::kUint32, TokenFormat::kLlmC}) {
    if (name == TokenFormatName(format)) return format;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", name, "\" is no token format; known: uint16, uint32, llm.c"));
}

}  // namespace diloco
