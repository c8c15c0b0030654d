// A directory that is removed, with all that is in it, with its object.
//
//   const TempDir dir;
//   const std::string path = dir.Write("a.txt", "text");  // dir.File("a.txt")
#ifndef TESTS_SUPPORT_TEMP_DIR_H_
#define TESTS_SUPPORT_TEMP_DIR_H_

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/string_view.h"
#include "common/base/logging.h"
#include "common/io/file_system.h"

namespace diloco {

class TempDir {
 public:
  TempDir()
      : path_((std::filesystem::temp_directory_path() / "diloco-test-XXXXXX")
                  .string()) {
    DILOCO_CHECK(mkdtemp(path_.data()) != nullptr) << path_;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  // The path of what is, or will be, in it under `name`.
  std::string File(const std::string& name) const {
    return JoinPath(path_, name);
  }
  // Returns the path.
  std::string Write(const std::string& name, absl::string_view content) const {
    const absl::Status written =
        WriteFileAtomic(FileSystem::Posix(), File(name), content);
    DILOCO_CHECK(written.ok()) << written.ToString();
    return File(name);
  }

 private:
  std::string path_;
};

}  // namespace diloco

#endif  // TESTS_SUPPORT_TEMP_DIR_H_
