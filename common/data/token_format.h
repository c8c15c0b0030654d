// How token ids lie in a file. Used by the files' readers and writers and by
// dataset.json.
#ifndef COMMON_DATA_TOKEN_FORMAT_H_
#define COMMON_DATA_TOKEN_FORMAT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace diloco {

enum class TokenFormat {
  kUint16,  // No header.
  kUint32,  // No header.
  kLlmC,    // llm.c's header says which width (GPT-2 16, Llama-3 32 bit).
};

const char* TokenFormatName(TokenFormat format);
// "uint16", "uint32", "llm.c"; INVALID_ARGUMENT lists them.
absl::StatusOr<TokenFormat> ParseTokenFormat(absl::string_view name);

}  // namespace diloco

#endif  // COMMON_DATA_TOKEN_FORMAT_H_
