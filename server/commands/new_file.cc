#include "server/commands/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace semaphored {
namespace {

constexpr size_t kBytesAtOnce = 1 << 20;
constexpr int64_t kUnsyncedBytesMax = 32 << 20;

absl::Status SystemError(const std::string& doing, const std::string& path) {
  const std::string text =
      absl::StrCat("cannot ", doing, " ", path, ": ", std::generic_category().message(errno));
  if (errno == ENOSPC || errno == EDQUOT) return absl::ResourceExhaustedError(text);
  if (errno == EEXIST) return absl::AlreadyExistsError(text);
  if (errno == ENOENT) return absl::NotFoundError(text);
  if (errno == EACCES || errno == EPERM || errno == EROFS) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// ALREADY_EXISTS: it is there. Else why it could not be.
absl::Status CanBeMade(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) == 0)
    return absl::AlreadyExistsError(absl::StrCat(path, " is there: name another file"));
  return errno == ENOENT ? absl::OkStatus() : SystemError("make", path);
}

}  // namespace

absl::StatusOr<NewFile> NewFile::Make(const std::string& path) {
  for (const char* suffix : {"", "-wal"}) {
    if (absl::Status status = CanBeMade(path + suffix); !status.ok()) return status;
  }
  Descriptor file(open(FolderOf(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (file.open()) return NewFile(path, std::move(file), "");
  if (errno != EOPNOTSUPP && errno != EISDIR) return SystemError("write in", FolderOf(path));
  std::string partial = path + ".partial";
  file =
      Descriptor(open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.open()) return SystemError("make", partial);
  return NewFile(path, std::move(file), std::move(partial));
}

NewFile::~NewFile() {
  if (file_.open() && !partial_.empty()) unlink(partial_.c_str());
}

absl::Status NewFile::CopyFrom(int from, int64_t size,
                               const std::function<void(int64_t done_bytes)>& progress) {
  // A disk that has no room for all of it is not filled first.
  if (size > 0 && fallocate(file_.get(), 0, 0, size) != 0 && errno == ENOSPC)
    return SystemError("write", path_);
  std::vector<char> bytes(kBytesAtOnce);
  int64_t synced = 0;
  for (int64_t done = 0; done < size;) {
    const auto wanted = static_cast<size_t>(std::min<int64_t>(size - done, kBytesAtOnce));
    const ssize_t read = pread(from, bytes.data(), wanted, done);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return SystemError("read the copy for", path_);
    if (read == 0)
      return absl::DataLossError(absl::StrCat("the copy for ", path_, " is too short"));
    const ssize_t written = pwrite(file_.get(), bytes.data(), static_cast<size_t>(read), done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError("write", path_);
    done += written;
    // Were it all synced at the end, the store's commits on the same disk would have to wait.
    if (done - synced >= kUnsyncedBytesMax) {
      if (fdatasync(file_.get()) != 0) return SystemError("sync", path_);
      synced = done;
    }
    progress(done);
  }
  return absl::OkStatus();
}

absl::Status NewFile::Publish() {
  if (fsync(file_.get()) != 0) return SystemError("sync", path_);
  const std::string from =
      partial_.empty() ? absl::StrCat("/proc/self/fd/", file_.get()) : partial_;
  const int follow = partial_.empty() ? AT_SYMLINK_FOLLOW : 0;
  // It never replaces a file: the one that is there may be a good back-up, or the store.
  if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path_.c_str(), follow) != 0)
    return SystemError("name", path_);
  const Descriptor folder(open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open() || fsync(folder.get()) != 0) return SystemError("sync", FolderOf(path_));
  return absl::OkStatus();
}

}  // namespace semaphored
