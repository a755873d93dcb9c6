#include "server/rpc/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "server/config/config_checks.h"

namespace semaphored {
namespace {

// Connections that the kernel keeps until they are accepted; it may cut this down to its own limit.
constexpr int kBacklog = 4096;
// Of the other descriptors, how many may be opened later than the sockets without taking a
// connection's place.
constexpr size_t kDescriptorsSlack = 16;
// Accepted from one socket before it is the turn of the others, and of the end.
constexpr int kAcceptedAtOnce = 256;
// When accept() fails for want of descriptors or memory, it is tried again after this.
constexpr int kPauseMs = 100;
// For another daemon that opens a socket in the same folder.
constexpr int kFolderPauseMs = 10;
constexpr int kFolderTries = 100;

std::string ErrorText(int error) { return std::generic_category().message(error); }

absl::Status CannotListen(const std::string& listen, const std::string& why) {
  return absl::UnavailableError("cannot listen on " + listen + ": " + why);
}

// How many descriptors the process may have: it takes as many as it is allowed and needs.
size_t DescriptorsFor(size_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  if (files.rlim_cur < wanted && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, wanted);
    if (setrlimit(RLIMIT_NOFILE, &files) != 0) getrlimit(RLIMIT_NOFILE, &files);
  }
  return std::min<rlim_t>(wanted, files.rlim_cur);
}

void SetOption(int socket, int level, int name, int value) {
  // What fails here makes nothing wrong, only slower.
  (void)setsockopt(socket, level, name, &value, sizeof value);
}

// Held while a socket's file is looked at and made: of two daemons that begin at once, the second
// then finds that the first listens.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path) {
    std::string folder = path.substr(0, path.rfind('/') + 1);
    if (folder.empty()) folder = ".";
    file_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Any process may lock a folder that it can read: so it is not waited for without end.
    for (int i = 0; file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) != 0 && i < kFolderTries; ++i)
      poll(nullptr, 0, kFolderPauseMs);
  }
  ~FolderLock() {
    if (file_ >= 0) close(file_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

// Why the address cannot be had, or 0: no process listens on it. Does not wait.
int WhyTaken(const sockaddr_un& address) {
  const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (file < 0) return errno;
  const auto* const target = reinterpret_cast<const sockaddr*>(&address);
  const int error = connect(file, target, sizeof address) == 0 ? EADDRINUSE : errno;
  close(file);
  if (error == EAGAIN) return EADDRINUSE;  // Its queue of connections is full.
  return error == EADDRINUSE || error == EACCES ? error : 0;
}

int PortOf(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

void SetPort(sockaddr* address, int port) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(static_cast<uint16_t>(port));
  }
}

// The error, or 0 and the socket.
int ListenAt(const sockaddr* address, socklen_t length, int* socket_out) {
  const int listener = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener < 0) return errno;
  if (address->sa_family != AF_UNIX) SetOption(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  // [::] serves IPv4 as well.
  if (address->sa_family == AF_INET6) SetOption(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(listener, address, length) != 0 || listen(listener, kBacklog) != 0) {
    const int error = errno;
    close(listener);
    return error;
  }
  *socket_out = listener;
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const Clock* clock,
                                                         const ListenerOptions& options) {
  const absl::StatusOr<ListenAddress> parsed = ParseListenAddress(options.listen);
  if (!parsed.ok()) return parsed.status();
  std::unique_ptr<Listener> listener(new Listener(clock, options));
  const bool unix_socket = options.listen.starts_with("unix:");
  absl::Status opened = unix_socket ? listener->OpenUnix(parsed->port)
                                    : listener->OpenHost(parsed->host, parsed->port);
  if (!opened.ok()) return opened;
  listener->thread_ = std::thread([raw = listener.get()] { raw->Run(); });
  return listener;
}

Listener::Listener(const Clock* clock, const ListenerOptions& options)
    : clock_(clock),
      options_(options),
      address_(options.listen),
      stop_event_(eventfd(0, EFD_CLOEXEC)) {
  const size_t each = options.descriptors_each;
  const size_t others = options.other_descriptors;
  const size_t allowed = DescriptorsFor(options.connections_max * each + others);
  // However few they are, some are kept for the engine.
  other_descriptors_ = std::min(others, allowed / 2);
  connections_max_ = std::min(options.connections_max, (allowed - other_descriptors_) / each);
}

Listener::~Listener() {
  Stop();
  close(stop_event_);
}

absl::Status Listener::OpenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return CannotListen(options_.listen, "the path of a Unix socket has at most 107 bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const FolderLock lock(path);
  if (const int why = WhyTaken(address); why != 0)
    return CannotListen(options_.listen, ErrorText(why));
  // A socket's file on which no process listens would be in the way; anything else is left alone.
  if (Identify(path) != FileIdentity{}) unlink(path.c_str());
  int socket = -1;
  const int error = ListenAt(reinterpret_cast<const sockaddr*>(&address), sizeof address, &socket);
  if (error != 0) return CannotListen(options_.listen, ErrorText(error));
  unix_path_ = path;
  unix_file_ = Identify(path);
  sockets_.push_back(socket);
  return absl::OkStatus();
}

Listener::FileIdentity Listener::Identify(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) return {};
  return {found.st_dev, found.st_ino};
}

absl::Status Listener::OpenHost(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return CannotListen(options_.listen, gai_strerror(error));
  }
  int chosen = std::atoi(port.c_str());
  int error = 0;
  // A name may stand for several addresses, and for one of them twice: at least one must be there,
  // and none be taken.
  std::set<std::string> seen;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const auto* const bytes = reinterpret_cast<const char*>(each->ai_addr);
    if (!seen.emplace(bytes, each->ai_addrlen).second) continue;
    SetPort(each->ai_addr, chosen);
    int socket = -1;
    const int failed = ListenAt(each->ai_addr, each->ai_addrlen, &socket);
    if (failed != 0) {
      error = failed;
      if (failed == EADDRINUSE) break;
      continue;
    }
    sockets_.push_back(socket);
    if (chosen == 0) chosen = PortOf(socket);
  }
  freeaddrinfo(found);
  if (sockets_.empty() || error == EADDRINUSE) {
    return CannotListen(options_.listen, ErrorText(error));
  }
  address_.replace(address_.rfind(':') + 1, std::string::npos, std::to_string(chosen));
  return absl::OkStatus();
}

void Listener::Start(std::function<void(int)> take) {
  take_ = std::move(take);
  // What is open now, and a few more. The kernel gives the lowest numbers that are free.
  const int lowest = dup(stop_event_);
  close(lowest);
  descriptors_before_ = static_cast<size_t>(std::max(lowest, 0));
  descriptors_max_ =
      static_cast<int>(connections_max_ * options_.descriptors_each +
                       std::min(descriptors_before_ + kDescriptorsSlack, other_descriptors_));
  if (connections_max_ < options_.connections_max) {
    spdlog::info(
        "connections_max is {}, but the process may open so few files that there can be {}",
        options_.connections_max, connections_max_);
  }
  taking_ = true;
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    if (write(stop_event_, &one, sizeof one) < 0) std::abort();
    thread_.join();
  }
  for (const int socket : sockets_) close(socket);
  sockets_.clear();
  // Unless another daemon has made one of its own there.
  const std::string path = std::exchange(unix_path_, "");
  if (!path.empty() && Identify(path) == unix_file_) unlink(path.c_str());
}

void Listener::Run() {
  std::vector<pollfd> files = {{stop_event_, POLLIN, 0}};
  for (const int socket : sockets_) files.push_back({socket, POLLIN, 0});
  bool paused = false;
  for (;;) {
    // While there is nothing to accept with, only the end is looked for.
    const nfds_t count = paused ? 1 : files.size();
    if (poll(files.data(), count, paused ? kPauseMs : -1) < 0 && errno != EINTR) {
      return Warn("cannot look for connections any more: " + ErrorText(errno));
    }
    if ((files[0].revents & POLLIN) != 0) return;
    paused = false;
    for (const int socket : sockets_) paused = !AcceptSome(socket) || paused;
  }
}

bool Listener::AcceptSome(int socket) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    const int descriptor = accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) {
      if (!taking_) {
        close(descriptor);
        continue;
      }
      if (descriptor >= descriptors_max_) {
        Refuse(descriptor);
        continue;
      }
      if (unix_path_.empty()) {
        SetOption(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
        SetOption(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT,
                  static_cast<int>(options_.unacknowledged_max_ms));
      }
      take_(descriptor);
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return true;
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
        break;  // That one connection has failed already; the next may be sound.
      default:
        Warn("cannot accept connections for the moment: " + ErrorText(errno));
        return false;
    }
  }
  return true;
}

void Listener::Refuse(int descriptor) {
  close(descriptor);
  Warn(
      fmt::format("connections_max ({}) is reached: new connections are closed", connections_max_));
}

// A flood of connections shall not become one of log lines.
void Listener::Warn(const std::string& what) {
  if (const auto more = warning_.Again(clock_->Now())) spdlog::warn("{}{}", what, *more);
}

}  // namespace semaphored
