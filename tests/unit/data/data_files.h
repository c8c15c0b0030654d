// A temporary directory and token files for the data tests.
#ifndef TESTS_UNIT_DATA_DATA_FILES_H_
#define TESTS_UNIT_DATA_DATA_FILES_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/logging.h"
#include "common/io/file_system.h"

namespace diloco::testing {

inline FileSystem* const kFs = FileSystem::Posix();

class TempDir {
 public:
  TempDir() {
    std::string name =
        (std::filesystem::temp_directory_path() / "diloco-data-test-XXXXXX")
            .string();
    DILOCO_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

  // Returns the path.
  std::string Write(const std::string& name, absl::string_view bytes) const {
    auto file = FileSystem::Posix()->OpenForWrite(File(name));
    DILOCO_CHECK(file.ok()) << file.status().ToString();
    const absl::Status written = (*file)->WriteAt(0, bytes);
    DILOCO_CHECK(written.ok()) << written.ToString();
    return File(name);
  }

 private:
  std::string path_;
};

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
