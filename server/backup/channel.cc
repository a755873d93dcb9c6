#include "server/backup/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace semaphored {
namespace {

namespace fs = std::filesystem;

absl::Status SystemError(const std::string& doing, const std::string& path) {
  const std::string text =
      absl::StrCat(doing, " ", path, ": ", std::generic_category().message(errno));
  if (errno == ENOENT || errno == ECONNREFUSED) return absl::NotFoundError(text);
  if (errno == EACCES || errno == EPERM) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

// An address has 107 bytes for a path. A longer one goes through its folder's descriptor, which the
// caller keeps until the address has been used.
absl::StatusOr<Descriptor> FillAddress(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  Descriptor folder;
  std::string name = path;
  if (path.size() >= sizeof(address->sun_path)) {
    const fs::path whole(path);
    folder = Descriptor(open(whole.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder.open()) return SystemError("open", whole.parent_path());
    name = absl::StrCat("/proc/self/fd/", folder.get(), "/", whole.filename().string());
  }
  if (name.size() >= sizeof(address->sun_path))
    return absl::UnavailableError(absl::StrCat(path, ": its name is too long for a socket"));
  std::memcpy(address->sun_path, name.c_str(), name.size());
  return folder;
}

Descriptor MakeSocket() {
  return Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool WaitFor(int channel, short event, Milliseconds time) {
  pollfd ready{channel, event, 0};
  int found;
  do {
    found = poll(&ready, 1, static_cast<int>(time.count()));
  } while (found < 0 && errno == EINTR);
  return found > 0;
}

}  // namespace

std::string BackUpSocketOf(const std::string& store_file) {
  std::error_code ignored;
  const fs::path resolved = fs::weakly_canonical(fs::absolute(store_file), ignored);
  return (resolved.empty() ? store_file : resolved.string()) + ".backup-socket";
}

absl::StatusOr<Descriptor> ListenForBackUps(const std::string& path) {
  sockaddr_un address;
  const absl::StatusOr<Descriptor> folder = FillAddress(path, &address);
  if (!folder.ok()) return folder.status();
  Descriptor listener = MakeSocket();
  if (!listener.open()) return SystemError("open a socket for", path);
  // The name takes the mode from here, so that at no time another user can open it.
  if (fchmod(listener.get(), 0600) != 0) return SystemError("protect", path);
  unlink(path.c_str());
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.get(), 4) != 0) {
    return SystemError("listen on", path);
  }
  return listener;
}

absl::StatusOr<Descriptor> ConnectForBackUp(const std::string& path) {
  sockaddr_un address;
  const absl::StatusOr<Descriptor> folder = FillAddress(path, &address);
  if (!folder.ok()) return folder.status();
  Descriptor channel = MakeSocket();
  if (!channel.open() ||
      connect(channel.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return SystemError("connect to", path);
  }
  return channel;
}

bool SendBackUpMessage(int channel, const std::string& text, int file, Milliseconds time) {
  if (time.count() > 0 && !WaitFor(channel, POLLOUT, time)) return false;
  iovec part{const_cast<char*>(text.data()), std::min(text.size(), kBackUpMessageBytesMax)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  if (file >= 0) {
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  }
  return sendmsg(channel, &message, MSG_NOSIGNAL) >= 0;
}

std::optional<BackUpMessage> ReceiveBackUpMessage(int channel, Milliseconds time) {
  if (!WaitFor(channel, POLLIN, time)) return std::nullopt;
  BackUpMessage received;
  received.text.resize(kBackUpMessageBytesMax);
  iovec part{received.text.data(), received.text.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  const ssize_t size = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = size >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(header), sizeof(int));
    received.file = Descriptor(file);
  }
  if (size <= 0) return std::nullopt;
  received.text.resize(static_cast<size_t>(size));
  return received;
}

}  // namespace semaphored
