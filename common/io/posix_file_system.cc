// FileSystem over POSIX calls: what the daemons and tools run on.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/io/file_system.h"

namespace diloco {
namespace {

absl::StatusCode CodeFromErrno(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EINVAL:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case EIO:
      return absl::StatusCode::kDataLoss;
    default:
      // Also what permissions forbid and a directory in a file's place:
      // PERMISSION_DENIED and FAILED_PRECONDITION are answers of a peer.
      return absl::StatusCode::kInternal;
  }
}

std::string ErrorText(int error) {
  char buffer[128];
  const std::string text = strerror_r(error, buffer, sizeof(buffer));
  if (error != ENOSPC && error != EDQUOT) return text;
  return absl::StrCat(text, ": make room on that disk and try again");
}

absl::Status Failure(absl::string_view what, const std::string& path,
                     int error) {
  return absl::Status(
      CodeFromErrno(error),
      absl::StrCat("cannot ", what, " ", path, ": ", ErrorText(error)));
}

// The next try of a call that a signal interrupted.
template <typename Call>
auto Retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::StatusOr<uint64_t> SizeOf(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Failure("examine", path, errno);
  return static_cast<uint64_t>(info.st_size);
}

class PosixReadableFile : public ReadableFile {
 public:
  PosixReadableFile(int fd, std::string path)
      : fd_(fd), path_(std::move(path)) {}
  ~PosixReadableFile() override {
    if (!map_.empty()) munmap(const_cast<char*>(map_.data()), map_.size());
  }

  absl::Status ReadAt(uint64_t offset, absl::Span<char> out) const override {
    while (!out.empty()) {
      const ssize_t got = Retry(
          [&] { return pread(fd_.get(), out.data(), out.size(), offset); });
      if (got < 0) {
        return absl::DataLossError(
            absl::StrCat("cannot read ", out.size(), " bytes at offset ",
                         offset, " of ", path_, ": ", ErrorText(errno)));
      }
      if (got == 0) {
        return absl::OutOfRangeError(absl::StrCat(path_, " ends at byte ",
                                                  offset, ", ", out.size(),
                                                  " more bytes were expected"));
      }
      offset += got;
      out.remove_prefix(got);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Size() const override {
    return SizeOf(fd_.get(), path_);
  }

  absl::StatusOr<absl::Span<const char>> Map() override {
    MutexLock lock(&mu_);
    if (map_.empty()) {
      ASSIGN_OR_RETURN(const uint64_t size, Size());
      if (size == 0) return absl::Span<const char>();
      void* address =
          mmap(nullptr, size, PROT_READ, MAP_SHARED, fd_.get(), /*offset=*/0);
      if (address == MAP_FAILED) return Failure("map", path_, errno);
      map_ = absl::MakeConstSpan(static_cast<const char*>(address), size);
    }
    return map_;
  }

 private:
  const Descriptor fd_;
  const std::string path_;
  Mutex mu_;
  absl::Span<const char> map_;  // Written under mu_ once, then constant.
};

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(int fd, std::string path)
      : fd_(fd), path_(std::move(path)) {}

  absl::Status WriteAt(uint64_t offset, absl::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t put = Retry([&] {
        return pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
      });
      if (put < 0) {
        return Failure(absl::StrCat("write ", bytes.size(), " bytes at offset ",
                                    offset, " of"),
                       path_, errno);
      }
      offset += put;
      bytes.remove_prefix(put);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (Retry([&] { return fdatasync(fd_.get()); }) != 0) {
      // Also for a full disk: what the kernel dropped is gone, and a second
      // fsync would report success.
      return absl::DataLossError(absl::StrCat("cannot sync ", path_, ": ",
                                              ErrorText(errno),
                                              "; its content is unknown now"));
    }
    return absl::OkStatus();
  }

  void StartWriteBack() override {
    // Only a hint; a failure shows at Sync.
    sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  }

  absl::Status Truncate(uint64_t size) override {
    if (Retry([&] { return ftruncate(fd_.get(), size); }) != 0) {
      return Failure(absl::StrCat("cut to ", size, " bytes"), path_, errno);
    }
    return absl::OkStatus();
  }

  absl::Status Reserve(uint64_t size) override {
    if (size == 0) return absl::OkStatus();
    if (Retry([&] {
          return fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, size);
        }) == 0) {
      return absl::OkStatus();
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      return Failure(absl::StrCat("reserve ", size, " bytes for"), path_,
                     errno);
    }
    return CheckFreeSpace(size);
  }

  absl::StatusOr<uint64_t> Size() const override {
    return SizeOf(fd_.get(), path_);
  }

 private:
  // The best there is on a file system without fallocate.
  absl::Status CheckFreeSpace(uint64_t size) const {
    struct stat info;
    struct statvfs space;
    if (fstat(fd_.get(), &info) != 0 || fstatvfs(fd_.get(), &space) != 0) {
      return Failure("examine the space for", path_, errno);
    }
    const uint64_t present = static_cast<uint64_t>(info.st_blocks) * 512;
    const uint64_t free =
        static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
    if (size > present && size - present > free) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot reserve ", size, " bytes for ", path_, ": only ",
                       free, " bytes are free"));
    }
    return absl::OkStatus();
  }

  const Descriptor fd_;
  const std::string path_;
};

class PosixFileLock : public FileLock {
 public:
  explicit PosixFileLock(int fd) : fd_(fd) {}

 private:
  const Descriptor fd_;  // Closing it gives the lock up.
};

class PosixFileSystem : public FileSystem {
 public:
  PosixFileSystem() {
    // A file size limit is an error to report, not a reason to die.
    std::signal(SIGXFSZ, SIG_IGN);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(
      const std::string& path) override {
    // Without O_NONBLOCK a pipe without a writer would hang here.
    const int fd = Retry(
        [&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
    if (fd < 0) return Failure("open", path, errno);
    auto file = std::make_unique<PosixReadableFile>(fd, path);
    struct stat info;
    if (fstat(fd, &info) != 0) return Failure("examine", path, errno);
    if (!S_ISREG(info.st_mode)) {
      return absl::InternalError(absl::StrCat(
          "cannot read ", path, ": it is ",
          S_ISDIR(info.st_mode) ? "a directory" : "no regular file"));
    }
    return file;
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(
      const std::string& path) override {
    const int fd = Retry(
        [&] { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644); });
    if (fd < 0) return Failure("open for writing", path, errno);
    return std::make_unique<PosixWritableFile>(fd, path);
  }

  bool Exists(const std::string& path) override {
    return access(path.c_str(), F_OK) == 0;
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    struct stat old;
    if (lstat(to.c_str(), &old) == 0 && !S_ISREG(old.st_mode) &&
        !S_ISDIR(old.st_mode) && !S_ISLNK(old.st_mode)) {
      return absl::InternalError(absl::StrCat(
          to, " is a device, pipe or socket and is not replaced: name a file"));
    }
    if (rename(from.c_str(), to.c_str()) != 0) {
      return Failure(absl::StrCat("rename ", from, " to"), to, errno);
    }
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path) override {
    if (std::remove(path.c_str()) != 0) return Failure("remove", path, errno);
    return absl::OkStatus();
  }

  absl::Status CreateDirs(const std::string& path) override {
    if (mkdir(path.c_str(), 0755) == 0) return SyncDir(DirName(path));
    if (errno == ENOENT && DirName(path) != path) {
      RETURN_IF_ERROR(CreateDirs(DirName(path)));
      if (mkdir(path.c_str(), 0755) == 0) return SyncDir(DirName(path));
    }
    const int error = errno;
    struct stat info;
    if (error == EEXIST && stat(path.c_str(), &info) == 0 &&
        S_ISDIR(info.st_mode)) {
      return absl::OkStatus();
    }
    return Failure("create directory", path, error == EEXIST ? ENOTDIR : error);
  }

  absl::StatusOr<std::string> FollowLinks(const std::string& path) override {
    std::string at = path;
    // As many as the kernel follows.
    for (int links = 0; links < 40; ++links) {
      char target[PATH_MAX];
      const ssize_t length = readlink(at.c_str(), target, sizeof(target));
      // No link (EINVAL) or nothing yet; what else is wrong shows on opening.
      if (length < 0) return at;
      const std::string to(target, static_cast<size_t>(length));
      at = to[0] == '/' ? to : JoinPath(DirName(at), to);
    }
    return Failure("follow", path, ELOOP);
  }

  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    DIR* dir = opendir(path.c_str());
    if (dir == nullptr) return Failure("list", path, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(dir)) {
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    const int error = errno;
    closedir(dir);
    if (error != 0) return Failure("list", path, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status SyncDir(const std::string& path) override {
    const Descriptor fd(Retry([&] {
      return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }));
    if (fd.get() < 0) return Failure("open directory", path, errno);
    if (Retry([&] { return fsync(fd.get()); }) != 0) {
      return absl::DataLossError(
          absl::StrCat("cannot sync directory ", path, ": ", ErrorText(errno)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override {
    struct statvfs space;
    if (statvfs(path.c_str(), &space) != 0) {
      return Failure("examine the space at", path, errno);
    }
    return static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  }

  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) override {
    const int fd = Retry(
        [&] { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644); });
    if (fd < 0) return Failure("open the lock file", path, errno);
    auto lock = std::make_unique<PosixFileLock>(fd);
    if (Retry([&] { return flock(fd, LOCK_EX | LOCK_NB); }) != 0) {
      if (errno != EWOULDBLOCK) return Failure("lock", path, errno);
      char pid[32] = {};
      const ssize_t length = pread(fd, pid, sizeof(pid) - 1, 0);
      const absl::string_view holder = absl::StripAsciiWhitespace(
          absl::string_view(pid, length > 0 ? length : 0));
      return absl::FailedPreconditionError(absl::StrCat(
          path, " is locked by process ", holder.empty() ? "(unknown)" : holder,
          ": stop that process or use another directory"));
    }
    // The lock is the flock; the number is only for the message above.
    const std::string pid = absl::StrCat(getpid(), "\n");
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) !=
                                     static_cast<ssize_t>(pid.size())) {
      return Failure("write the lock file", path, errno);
    }
    return lock;
  }
};

}  // namespace

FileSystem* FileSystem::Posix() {
  static PosixFileSystem* const posix = new PosixFileSystem;
  return posix;
}

}  // namespace diloco
