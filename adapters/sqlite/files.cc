#include "adapters/sqlite/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace semaphored::sqlite {

namespace fs = std::filesystem;

absl::Status FromCode(const std::string& doing, const std::error_code& code) {
  const std::string text = absl::StrCat("sqlite: cannot ", doing, ": ", code.message());
  if (code == std::errc::no_such_file_or_directory) return absl::NotFoundError(text);
  if (code == std::errc::permission_denied) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

absl::Status Sync(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = file >= 0 && fsync(file) == 0;
  const std::error_code code(errno, std::generic_category());
  if (file >= 0) close(file);
  return synced ? absl::OkStatus() : FromCode("sync " + path, code);
}

absl::Status SyncFolderOf(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return Sync(folder.empty() ? "." : folder);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) return FromCode(absl::StrCat("move ", from, " to ", to), code);
  return SyncFolderOf(to);
}

absl::StatusOr<Owner> OwnerOf(const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0)
    return FromCode("look at " + path, std::error_code(errno, std::generic_category()));
  return Owner{about.st_uid, about.st_gid};
}

absl::Status GiveTo(const Owner& owner, const std::string& path) {
  if (geteuid() != 0 || lchown(path.c_str(), owner.user, owner.group) == 0) return absl::OkStatus();
  return FromCode("give away " + path, std::error_code(errno, std::generic_category()));
}

}  // namespace semaphored::sqlite
