// Content and directory entries are kept twice: as programs see them and as a
// disk would hold them after a power cut.
#include "tests/support/fault_file_system.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace diloco {
namespace {

// "./a//b/" and "a/b" are one path.
std::string Clean(const std::string& path) {
  std::string clean = absl::StartsWith(path, "/") ? "/" : "";
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    if (!part.empty() && part != ".") clean = JoinPath(clean, part);
    begin = end + 1;
  }
  return clean.empty() ? "." : clean;
}

absl::Status NotFound(absl::string_view what, const std::string& path) {
  return absl::NotFoundError(
      absl::StrCat("cannot ", what, " ", path, ": no such file or directory"));
}

absl::Status Dead(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat(path, ": opened by a process that has ended"));
}

}  // namespace

class FaultFileSystem::Readable : public ReadableFile {
 public:
  Readable(FaultFileSystem* fs, std::string path, std::shared_ptr<Inode> inode,
           uint64_t process)
      : fs_(fs),
        path_(std::move(path)),
        inode_(std::move(inode)),
        process_(process) {}

  absl::Status ReadAt(uint64_t offset, absl::Span<char> out) const override {
    MutexLock lock(&fs_->mu_);
    RETURN_IF_ERROR(Check());
    const std::string& content = inode_->content;
    if (offset > content.size() || content.size() - offset < out.size()) {
      return absl::OutOfRangeError(
          absl::StrCat(path_, " ends at byte ", content.size(), ", ",
                       out.size(), " bytes at ", offset, " were expected"));
    }
    std::copy_n(content.begin() + offset, out.size(), out.begin());
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Size() const override {
    MutexLock lock(&fs_->mu_);
    return inode_->content.size();
  }

  absl::StatusOr<absl::Span<const char>> Map() override {
    MutexLock lock(&fs_->mu_);
    RETURN_IF_ERROR(Check());
    if (map_.empty()) map_ = inode_->content;
    return absl::MakeConstSpan(map_.data(), map_.size());
  }

 private:
  absl::Status Check() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(fs_->mu_) {
    if (process_ != fs_->process_) return Dead(path_);
    if (Fires(&fs_->fail_read_)) {
      return absl::DataLossError(
          absl::StrCat("cannot read ", path_, ": planted fault"));
    }
    return absl::OkStatus();
  }

  FaultFileSystem* const fs_;
  const std::string path_;
  const std::shared_ptr<Inode> inode_;
  const uint64_t process_;
  std::string map_;
};

class FaultFileSystem::Writable : public WritableFile {
 public:
  Writable(FaultFileSystem* fs, std::string path, std::shared_ptr<Inode> inode,
           uint64_t process)
      : fs_(fs),
        path_(std::move(path)),
        inode_(std::move(inode)),
        process_(process) {}

  absl::Status WriteAt(uint64_t offset, absl::string_view bytes) override {
    MutexLock lock(&fs_->mu_);
    RETURN_IF_ERROR(CheckAlive());
    return fs_->WriteLocked(inode_.get(), path_, offset, bytes);
  }

  absl::Status Sync() override {
    MutexLock lock(&fs_->mu_);
    RETURN_IF_ERROR(CheckAlive());
    RETURN_IF_ERROR(fs_->Mutate());
    ++fs_->syncs_;
    if (Fires(&fs_->fail_sync_)) {
      return absl::DataLossError(
          absl::StrCat("cannot sync ", path_, ": planted fault"));
    }
    if (fs_->sync_lies_) return absl::OkStatus();
    Inode& inode = *inode_;
    inode.durable.resize(inode.content.size());
    std::copy(inode.content.begin() + static_cast<int64_t>(inode.same),
              inode.content.end(),
              inode.durable.begin() + static_cast<int64_t>(inode.same));
    inode.same = inode.content.size();
    return absl::OkStatus();
  }

  void StartWriteBack() override {}

  absl::Status Truncate(uint64_t size) override {
    MutexLock lock(&fs_->mu_);
    RETURN_IF_ERROR(CheckAlive());
    RETURN_IF_ERROR(fs_->Mutate());
    inode_->content.resize(size);
    inode_->same = std::min(inode_->same, size);
    return absl::OkStatus();
  }

  absl::Status Reserve(uint64_t size) override {
    MutexLock lock(&fs_->mu_);
    RETURN_IF_ERROR(CheckAlive());
    const uint64_t present = inode_->content.size();
    const uint64_t used = fs_->Used();
    const uint64_t room = fs_->space_ > used ? fs_->space_ - used : 0;
    if (fs_->IsFull(path_) || (size > present && size - present > room)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot reserve ", size, " bytes for ", path_,
                       ": no space left on device"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Size() const override {
    MutexLock lock(&fs_->mu_);
    return inode_->content.size();
  }

 private:
  absl::Status CheckAlive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(fs_->mu_) {
    return process_ == fs_->process_ ? absl::OkStatus() : Dead(path_);
  }

  FaultFileSystem* const fs_;
  const std::string path_;
  const std::shared_ptr<Inode> inode_;
  const uint64_t process_;
};

class FaultFileSystem::Held : public FileLock {
 public:
  Held(FaultFileSystem* fs, std::string path, uint64_t process)
      : fs_(fs), path_(std::move(path)), process_(process) {}
  ~Held() override {
    MutexLock lock(&fs_->mu_);
    // A lock of an ended process went with it; another may hold the path now.
    if (process_ == fs_->process_) fs_->locks_.erase(path_);
  }

 private:
  FaultFileSystem* const fs_;
  const std::string path_;
  const uint64_t process_;
};

FaultFileSystem::FaultFileSystem() : dirs_{".", "/"} {}
FaultFileSystem::~FaultFileSystem() = default;

void FaultFileSystem::set_space(uint64_t bytes) {
  MutexLock lock(&mu_);
  space_ = bytes;
}

void FaultFileSystem::set_full(std::string part) {
  MutexLock lock(&mu_);
  full_ = std::move(part);
}

bool FaultFileSystem::IsFull(const std::string& path) const {
  return !full_.empty() && path.find(full_) != std::string::npos;
}

void FaultFileSystem::FailSync(int n) {
  MutexLock lock(&mu_);
  fail_sync_ = n;
}

void FaultFileSystem::FailWrite(int n, uint64_t keep_bytes) {
  MutexLock lock(&mu_);
  fail_write_ = n;
  fail_write_keep_ = keep_bytes;
}

void FaultFileSystem::FailRead(int n) {
  MutexLock lock(&mu_);
  fail_read_ = n;
}

void FaultFileSystem::StopAfter(int n, std::function<void()> stopped) {
  MutexLock lock(&mu_);
  stop_after_ = n;
  on_stop_ = std::move(stopped);
}

void FaultFileSystem::set_sync_lies(bool lies) {
  MutexLock lock(&mu_);
  sync_lies_ = lies;
}

void FaultFileSystem::EndProcess() {
  ++process_;
  locks_.clear();
  fail_sync_ = fail_write_ = fail_read_ = stop_after_ = 0;
  stopped_ = false;
  on_stop_ = nullptr;
}

void FaultFileSystem::KillProcess() {
  MutexLock lock(&mu_);
  EndProcess();
}

void FaultFileSystem::Crash() { CrashKeeping(0); }

void FaultFileSystem::CrashKeeping(uint64_t keep) {
  MutexLock lock(&mu_);
  EndProcess();
  live_ = durable_;
  // Two names may lead to one file; it is cut once.
  std::set<Inode*> done;
  for (const auto& [path, inode] : live_) {
    if (!done.insert(inode.get()).second) continue;
    const size_t synced = inode->durable.size();
    std::string after = inode->durable;
    if (inode->content.size() > synced) {
      after += inode->content.substr(synced, keep);
    }
    inode->content = inode->durable = after;
    inode->same = after.size();
  }
}

void FaultFileSystem::FlipBit(const std::string& path, uint64_t offset,
                              int bit) {
  MutexLock lock(&mu_);
  const auto entry = live_.find(Clean(path));
  DILOCO_CHECK(entry != live_.end() && offset < entry->second->content.size())
      << path << " byte " << offset;
  entry->second->content[offset] ^= static_cast<char>(1 << bit);
  entry->second->same = std::min(entry->second->same, offset);
  if (offset < entry->second->durable.size()) {
    entry->second->durable[offset] ^= static_cast<char>(1 << bit);
  }
}

uint64_t FaultFileSystem::bytes_used() const {
  MutexLock lock(&mu_);
  return Used();
}

int FaultFileSystem::syncs() const {
  MutexLock lock(&mu_);
  return syncs_;
}

int FaultFileSystem::mutations() const {
  MutexLock lock(&mu_);
  return mutations_;
}

absl::Status FaultFileSystem::Mutate() {
  ++mutations_;
  if (Fires(&stop_after_)) {
    stopped_ = true;
    if (on_stop_) std::exchange(on_stop_, nullptr)();
  }
  if (stopped_) return absl::UnavailableError("the process has ended here");
  return absl::OkStatus();
}

bool FaultFileSystem::Fires(int* countdown) {
  return *countdown > 0 && --*countdown == 0;
}

uint64_t FaultFileSystem::Used() const {
  uint64_t used = 0;
  std::set<Inode*> seen;
  for (const auto& [path, inode] : live_) {
    if (seen.insert(inode.get()).second) used += inode->content.size();
  }
  return used;
}

absl::Status FaultFileSystem::CheckParent(const std::string& path) const {
  if (dirs_.count(DirName(path)) == 0) return NotFound("create", path);
  if (dirs_.count(path) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open ", path, ": it is a directory"));
  }
  return absl::OkStatus();
}

absl::Status FaultFileSystem::WriteLocked(Inode* inode, const std::string& path,
                                          uint64_t offset,
                                          absl::string_view bytes) {
  RETURN_IF_ERROR(Mutate());
  absl::Status status;
  if (Fires(&fail_write_)) {
    bytes = bytes.substr(0, fail_write_keep_);
    status = absl::DataLossError(absl::StrCat("cannot write at offset ", offset,
                                              " of ", path, ": planted fault"));
  }
  const uint64_t size = inode->content.size();
  // What is used takes long to add up.
  const uint64_t used = space_ == UINT64_MAX ? 0 : Used();
  uint64_t room = space_ == UINT64_MAX
                      ? UINT64_MAX
                      : size + (space_ > used ? space_ - used : 0);
  if (IsFull(path)) room = size;
  if (!bytes.empty() && offset + bytes.size() > room) {
    bytes = bytes.substr(0, room > offset ? room - offset : 0);
    status = absl::ResourceExhaustedError(
        absl::StrCat("cannot write at offset ", offset, " of ", path,
                     ": no space left on device"));
  }
  if (!bytes.empty()) {
    if (offset + bytes.size() > size) {
      inode->content.resize(offset + bytes.size());
    }
    std::copy(bytes.begin(), bytes.end(), inode->content.begin() + offset);
    inode->same = std::min(inode->same, offset);
  }
  return status;
}

absl::StatusOr<std::unique_ptr<ReadableFile>> FaultFileSystem::OpenForRead(
    const std::string& path) {
  MutexLock lock(&mu_);
  const std::string clean = Clean(path);
  if (dirs_.count(clean) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot read ", path, ": it is a directory"));
  }
  const auto entry = live_.find(clean);
  if (entry == live_.end()) return NotFound("open", path);
  return std::make_unique<Readable>(this, clean, entry->second, process_);
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultFileSystem::OpenForWrite(
    const std::string& path) {
  MutexLock lock(&mu_);
  const std::string clean = Clean(path);
  RETURN_IF_ERROR(CheckParent(clean));
  auto entry = live_.find(clean);
  if (entry == live_.end()) {
    RETURN_IF_ERROR(Mutate());
    entry = live_.emplace(clean, std::make_shared<Inode>()).first;
  }
  return std::make_unique<Writable>(this, clean, entry->second, process_);
}

bool FaultFileSystem::Exists(const std::string& path) {
  MutexLock lock(&mu_);
  const std::string clean = Clean(path);
  return live_.count(clean) != 0 || dirs_.count(clean) != 0;
}

absl::Status FaultFileSystem::Rename(const std::string& from,
                                     const std::string& to) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Mutate());
  if (dirs_.count(Clean(from)) != 0) {
    RETURN_IF_ERROR(CheckParent(Clean(to)));
    RenameDir(Clean(from), Clean(to));
    return absl::OkStatus();
  }
  const auto entry = live_.find(Clean(from));
  if (entry == live_.end()) return NotFound("rename", from);
  RETURN_IF_ERROR(CheckParent(Clean(to)));
  std::shared_ptr<Inode> inode = entry->second;
  live_.erase(entry);
  live_[Clean(to)] = std::move(inode);
  return absl::OkStatus();
}

// As the creation of a directory, durable at once.
void FaultFileSystem::RenameDir(const std::string& from,
                                const std::string& to) {
  const auto moved = [&](const std::string& path) {
    return path == from || absl::StartsWith(path, absl::StrCat(from, "/"))
               ? absl::StrCat(to, path.substr(from.size()))
               : path;
  };
  for (Entries* entries : {&live_, &durable_}) {
    Entries renamed;
    for (auto& [path, inode] : *entries) {
      renamed.emplace(moved(path), std::move(inode));
    }
    *entries = std::move(renamed);
  }
  std::set<std::string> dirs;
  for (const std::string& dir : dirs_) dirs.insert(moved(dir));
  dirs_ = std::move(dirs);
}

absl::Status FaultFileSystem::Remove(const std::string& path) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Mutate());
  const std::string clean = Clean(path);
  if (live_.erase(clean) != 0) return absl::OkStatus();
  if (dirs_.count(clean) == 0) return NotFound("remove", path);
  const auto inside = [&clean](const std::string& other) {
    return absl::StartsWith(other, absl::StrCat(clean, "/"));
  };
  const bool empty =
      std::none_of(dirs_.begin(), dirs_.end(), inside) &&
      std::none_of(live_.begin(), live_.end(),
                   [&](const auto& entry) { return inside(entry.first); });
  if (!empty) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot remove ", path, ": directory not empty"));
  }
  dirs_.erase(clean);
  return absl::OkStatus();
}

absl::Status FaultFileSystem::CreateDirs(const std::string& path) {
  MutexLock lock(&mu_);
  const std::string clean = Clean(path);
  std::vector<std::string> missing;
  for (std::string dir = clean; dirs_.count(dir) == 0; dir = DirName(dir)) {
    if (live_.count(dir) != 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot create directory ", path, ": ", dir, " is a file"));
    }
    missing.push_back(dir);
  }
  if (!missing.empty()) RETURN_IF_ERROR(Mutate());
  dirs_.insert(missing.begin(), missing.end());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FaultFileSystem::List(
    const std::string& path) {
  MutexLock lock(&mu_);
  const std::string clean = Clean(path);
  if (dirs_.count(clean) == 0) return NotFound("list", path);
  std::set<std::string> names;
  const auto add = [&](const std::string& entry) {
    if (entry != clean && DirName(entry) == clean) {
      names.insert(entry.substr(entry.rfind('/') + 1));
    }
  };
  for (const auto& [entry, inode] : live_) add(entry);
  for (const std::string& dir : dirs_) add(dir);
  names.erase(".");
  names.erase("");
  return std::vector<std::string>(names.begin(), names.end());
}

absl::Status FaultFileSystem::SyncDir(const std::string& path) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Mutate());
  ++syncs_;
  const std::string clean = Clean(path);
  if (dirs_.count(clean) == 0) return NotFound("sync", path);
  if (Fires(&fail_sync_)) {
    return absl::DataLossError(
        absl::StrCat("cannot sync directory ", path, ": planted fault"));
  }
  if (sync_lies_) return absl::OkStatus();
  for (auto it = durable_.begin(); it != durable_.end();) {
    const bool gone =
        DirName(it->first) == clean && live_.count(it->first) == 0;
    it = gone ? durable_.erase(it) : std::next(it);
  }
  for (const auto& [name, inode] : live_) {
    if (DirName(name) == clean) durable_[name] = inode;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FaultFileSystem::FreeBytes(const std::string&) {
  MutexLock lock(&mu_);
  const uint64_t used = Used();
  return space_ > used ? space_ - used : 0;
}

absl::StatusOr<std::unique_ptr<FileLock>> FaultFileSystem::Lock(
    const std::string& path) {
  MutexLock lock(&mu_);
  const std::string clean = Clean(path);
  RETURN_IF_ERROR(CheckParent(clean));
  if (!locks_.insert(clean).second) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is locked by process 1"));
  }
  return std::make_unique<Held>(this, clean, process_);
}

}  // namespace diloco
