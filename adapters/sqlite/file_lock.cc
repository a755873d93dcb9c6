#include "adapters/sqlite/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace semaphored::sqlite {
namespace {

constexpr mode_t kFileMode = 0640;

absl::Status FromErrno(absl::string_view what, const std::string& path, int error) {
  const std::string message = absl::StrCat("sqlite: cannot ", what, " ", path, ": ",
                                           std::generic_category().message(error));
  if (error == EACCES || error == EPERM || error == EROFS)
    return absl::PermissionDeniedError(message);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

std::string LockPath(const std::string& path) { return path + ".lock"; }

// Made here and not by SQLite, so that a dangling symbolic link has a file to resolve to.
absl::StatusOr<std::string> MakeAndResolve(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
    return absl::UnavailableError(
        absl::StrCat("sqlite: cannot open ", path, ": there is no folder ", folder.string()));
  }
  if (std::filesystem::is_directory(path, error)) {
    return absl::UnavailableError(absl::StrCat("sqlite: cannot open ", path, ": it is a folder"));
  }
  // No descriptor of a file that SQLite has open may be closed: only one that is not there yet is
  // opened.
  if (!std::filesystem::exists(path, error)) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode);
    if (file < 0) return FromErrno("make", path, errno);
    close(file);
  }
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return FromErrno("find", path, errno);
  std::string result = resolved;
  std::free(resolved);
  return result;
}

std::string HolderOf(int lock_file) {
  char text[64] = {};
  const ssize_t size = pread(lock_file, text, sizeof text - 1, 0);
  const absl::string_view pid =
      absl::StripSuffix(absl::string_view(text, size > 0 ? static_cast<size_t>(size) : 0), "\n");
  return pid.empty() ? "another process" : absl::StrCat("another process (pid ", pid, ")");
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileLock>> FileLock::Take(const std::string& path) {
  absl::StatusOr<std::string> resolved = MakeAndResolve(path);
  if (!resolved.ok()) return resolved.status();
  const std::string lock_path = LockPath(*resolved);
  const int file = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode);
  if (file < 0) return FromErrno("make", lock_path, errno);
  std::unique_ptr<FileLock> lock(
      new FileLock(*std::move(resolved), file));  // Closes it from here on.
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FromErrno("lock", lock_path, errno);
    return absl::FailedPreconditionError(absl::StrCat(
        "sqlite: ", lock->path_, " is in use by ", HolderOf(file),
        "; one daemon at a time may have the file: stop that one, or use another file"));
  }
  // For people and for the message above; the lock does not depend on it.
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(file, 0) != 0 || pwrite(file, pid.data(), pid.size(), 0) < 0) {
    if (errno != ENOSPC) return FromErrno("write", lock_path, errno);
  }
  absl::StatusOr<FileIdentity> database = Identify(lock->path_);
  if (!database.ok()) return database.status();
  absl::StatusOr<FileIdentity> beside = Identify(lock_path);
  if (!beside.ok()) return beside.status();
  lock->database_ = *database;
  lock->lock_ = *beside;
  return lock;
}

// The lock's file stays: were it deleted, two processes could each lock a file of that name.
FileLock::~FileLock() { close(lock_file_); }

absl::StatusOr<FileLock::FileIdentity> FileLock::Identify(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return FromErrno("find", path, errno);
  return FileIdentity{status.st_dev, status.st_ino};
}

absl::Status FileLock::CheckStillOurs() const {
  for (const auto& [path, identity] :
       {std::pair(path_, database_), std::pair(LockPath(path_), lock_)}) {
    const absl::StatusOr<FileIdentity> now = Identify(path);
    if (!now.ok() || *now != identity) {
      return absl::FailedPreconditionError(
          absl::StrCat("sqlite: ", path, " was deleted or replaced while this daemon had it open"));
    }
  }
  return absl::OkStatus();
}

}  // namespace semaphored::sqlite
