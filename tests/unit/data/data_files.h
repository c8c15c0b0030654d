// Token files for the data tests.
#ifndef TESTS_UNIT_DATA_DATA_FILES_H_
#define TESTS_UNIT_DATA_DATA_FILES_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/logging.h"
#include "common/io/file_system.h"
#include "tests/support/temp_dir.h"

namespace diloco::testing {

inline FileSystem* const kFs = FileSystem::Posix();

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

// 0, 1, 2 ... below `modulus`.
inline std::vector<uint16_t> Counting(size_t tokens, uint32_t modulus) {
  std::vector<uint16_t> ids(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    ids[i] = static_cast<uint16_t>(i % modulus);
  }
  return ids;
}

inline std::string LlmCHeader(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return Bytes(header);
}

}  // namespace diloco::testing

#endif  // TESTS_UNIT_DATA_DATA_FILES_H_
