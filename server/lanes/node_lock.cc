#include "server/lanes/node_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <span>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace semaphored {
namespace {

constexpr size_t kNonceDigits = 32;
constexpr long kZfs = 0x2FC12FC1;  // Not in <linux/magic.h>.
constexpr std::array<long, 7> kLocalDisks = {EXT4_SUPER_MAGIC,    XFS_SUPER_MAGIC,
                                             BTRFS_SUPER_MAGIC,   OVERLAYFS_SUPER_MAGIC,
                                             F2FS_SUPER_MAGIC,    kZfs,
                                             REISERFS_SUPER_MAGIC};

std::string ErrorText(int error) { return std::generic_category().message(error); }

std::string ReadStart(int file) {
  char text[64] = {};
  const ssize_t size = pread(file, text, sizeof text, 0);
  return {text, size > 0 ? static_cast<size_t>(size) : 0};
}

// Empty: it cannot be read, as where a service manager hides it.
std::string BootId() {
  const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string id = ReadStart(file);
  close(file);
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

std::string NewNonce() {
  std::array<unsigned char, kNonceDigits / 2> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  std::string nonce;
  for (const unsigned char byte : bytes) nonce += fmt::format("{:02x}", byte);
  return nonce;
}

// Empty, or why a lock in this file says nothing.
std::string UnfitFileSystem(int file, const std::string& boot) {
  struct statfs system {};
  if (fstatfs(file, &system) != 0) return ErrorText(errno);
  const long type = system.f_type;
  if (type == TMPFS_MAGIC || type == RAMFS_MAGIC) return "";
  for (const long local : kLocalDisks) {
    if (type == local) return boot.empty() ? "the id of the machine's boot cannot be read" : "";
  }
  return "its file system may be a network's";
}

// Empty, or why others might get at the file.
std::string UnsafeFolder(int folder) {
  struct stat found {};
  if (fstat(folder, &found) != 0) return ErrorText(errno);
  if (found.st_uid != geteuid()) return "it belongs to another user";
  return (found.st_mode & (S_IWGRP | S_IWOTH)) == 0 ? "" : "other users may write in it";
}

}  // namespace

std::vector<std::string> LockFolders(
    const std::vector<std::pair<std::string, std::string>>& environment) {
  std::vector<std::string> folders;
  const auto add = [&](std::string_view name, std::string_view below) {
    for (const auto& [key, value] : environment) {
      if (key == name && value.starts_with('/'))
        folders.push_back(absl::StrCat(value.substr(0, value.find(':')), std::string(below)));
    }
  };
  add("RUNTIME_DIRECTORY", "");
  add("STATE_DIRECTORY", "");
  add("XDG_RUNTIME_DIR", "/semaphored");
  folders.push_back(fmt::format("/tmp/semaphored-{}", geteuid()));
  return folders;
}

// FNV-1a: two that meet in one name only wait for each other's heartbeats.
std::string LockName(const std::string& node_id, const std::string& store) {
  uint64_t hash = 0xcbf29ce484222325;
  std::string named = node_id;
  named.append(1, '\0').append(store);
  for (const char c : named) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("node-{:016x}.lock", hash);
}

NodeLock::NodeLock(const std::vector<std::string>& folders, const std::string& name) {
  found_.boot = BootId();
  for (const std::string& folder : folders) {
    if (OpenIn(folder, name)) {
      trouble_.clear();
      return;
    }
  }
}

NodeLock::~NodeLock() {
  if (file_ >= 0) close(file_);
}

bool NodeLock::OpenIn(const std::string& path, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    trouble_ = fmt::format("{}: {}", path, why);
    return false;
  };
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return refuse(ErrorText(errno));
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return refuse(ErrorText(errno));
  std::string why = UnsafeFolder(folder);
  int file = -1;
  if (why.empty()) {
    file =
        openat(folder, name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (file < 0) why = ErrorText(errno);
  }
  close(folder);
  struct stat found {};
  if (why.empty() && (fstat(file, &found) != 0 || !S_ISREG(found.st_mode)))
    why = name + " in it is no file";
  if (why.empty()) why = UnfitFileSystem(file, found_.boot);
  if (!why.empty()) {
    if (file >= 0) close(file);
    return refuse(why);
  }
  file_ = file;
  path_ = absl::StrCat(path, "/", name);
  found_.device = found.st_dev;
  found_.inode = found.st_ino;
  return true;
}

bool NodeLock::Take() {
  if (taken_ || file_ < 0) return taken_;
  if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    trouble_ = errno == EWOULDBLOCK ? absl::StrCat("another process has ", path_)
                                    : absl::StrCat(path_, ": ", ErrorText(errno));
    return false;
  }
  trouble_.clear();
  found_.nonce = ReadStart(file_).substr(0, kNonceDigits);
  return taken_ = true;
}

bool NodeLock::HasEnded(const LockIdentity& former) {
  if (former.inode == 0 || former.nonce.size() != kNonceDigits) return false;
  return Take() && found_ == former;
}

LockIdentity NodeLock::Claim() {
  LockIdentity own;
  own.nonce = NewNonce();
  if (!Take()) return own;
  if (ftruncate(file_, 0) != 0 ||
      pwrite(file_, own.nonce.data(), own.nonce.size(), 0) != static_cast<ssize_t>(kNonceDigits)) {
    trouble_ = absl::StrCat(path_, ": ", ErrorText(errno));
    return own;
  }
  own.boot = found_.boot;
  own.device = found_.device;
  own.inode = found_.inode;
  return own;
}

}  // namespace semaphored
