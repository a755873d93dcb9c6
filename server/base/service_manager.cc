#include "server/base/service_manager.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace semaphored {
namespace {

std::string Variable(const char* name) {
  // Before there is any other thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// A socket that sends to `name`; -1 if there is no such thing.
int Connect(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  const int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (file >= 0 && connect(file, reinterpret_cast<const sockaddr*>(&address), length) == 0)
    return file;
  if (file >= 0) close(file);
  return -1;
}

// The protocol has one field on a line.
std::string OneLine(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  return line;
}

}  // namespace

ServiceManager::Address ServiceManager::FromEnvironment() {
  return {Variable("NOTIFY_SOCKET"), Variable("WATCHDOG_USEC"), Variable("WATCHDOG_PID")};
}

ServiceManager::ServiceManager(const Address& address) : socket_(Connect(address.notify_socket)) {
  if (socket_ < 0) return;
  if (!address.watchdog_process.empty() && Number(address.watchdog_process) != getpid()) return;
  const std::optional<int64_t> interval_us = Number(address.watchdog_interval);
  if (interval_us && *interval_us >= 2000) alive_interval_ = Milliseconds(*interval_us / 2000);
}

ServiceManager::~ServiceManager() {
  if (socket_ >= 0) close(socket_);
}

void ServiceManager::Ready(std::string_view status) {
  Send(fmt::format("READY=1\nSTATUS={}\n", OneLine(status)));
}

void ServiceManager::Reloading() {
  // The manager compares it with its own reading of the same clock.
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  Send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=reading the configuration\n",
                   now.tv_sec * 1'000'000 + now.tv_nsec / 1000));
}

void ServiceManager::Stopping(std::string_view status) {
  Send(fmt::format("STOPPING=1\nSTATUS={}\n", OneLine(status)));
}

void ServiceManager::Status(std::string_view status) {
  Send(fmt::format("STATUS={}\n", OneLine(status)));
}

void ServiceManager::Starting(std::string_view status, Milliseconds more) {
  Send(fmt::format("STATUS={}\nEXTEND_TIMEOUT_USEC={}\n", OneLine(status), more.count() * 1000));
}

void ServiceManager::Alive() { Send("WATCHDOG=1\n"); }

void ServiceManager::Send(const std::string& lines) const {
  if (socket_ >= 0) (void)!send(socket_, lines.data(), lines.size(), MSG_NOSIGNAL);
}

}  // namespace semaphored
