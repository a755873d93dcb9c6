// semctl's side of the guardian. The guardian itself is in guardian_process.cc.
#include "client/semctl/guardian.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "client/semctl/guardian_messages.h"

namespace semaphore::semctl {
namespace {

std::int64_t ToNs(TimePoint at) { return at.time_since_epoch().count(); }

void SendOrder(int socket, const GuardianOrder& order) {
  // A guardian that is gone is told by Next().
  send(socket, &order, sizeof(order), MSG_NOSIGNAL);
}

void ReapAll() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

}  // namespace

absl::StatusOr<Guardian> Guardian::Fork(std::vector<std::string> command,
                                        std::chrono::milliseconds kill_after) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  // Orphans come to us, so that we can see the last of them go.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const pid_t child = fork();
  if (child < 0) {
    const int error = errno;
    close(sockets[0]);
    close(sockets[1]);
    return absl::ErrnoToStatus(error, "fork");
  }
  if (child == 0) {
    close(sockets[0]);
    RunGuardian(sockets[1], std::move(command), kill_after);
  }
  close(sockets[1]);
  return Guardian(sockets[0], child);
}

Guardian::Guardian(Guardian&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      guardian_(std::exchange(other.guardian_, 0)),
      group_(std::exchange(other.group_, 0)) {}

Guardian::~Guardian() {
  if (socket_ < 0) return;
  close(socket_);
  if (guardian_ > 0) waitpid(guardian_, nullptr, 0);
}

bool Guardian::Start(const std::vector<std::string>& environment, TimePoint good_until) {
  GuardianPacket packet;
  packet.order = {GuardianOrder::Kind::kStart, 0, ToNs(good_until)};
  std::size_t used = 0;
  for (const std::string& variable : environment) {
    if (used + variable.size() + 1 > kEnvironmentBytesMax) return false;
    memcpy(packet.environment + used, variable.c_str(), variable.size() + 1);
    used += variable.size() + 1;
  }
  return send(socket_, &packet, offsetof(GuardianPacket, environment) + used, MSG_NOSIGNAL) > 0;
}

void Guardian::Extend(TimePoint good_until) {
  SendOrder(socket_, {GuardianOrder::Kind::kExtend, 0, ToNs(good_until)});
}

void Guardian::Signal(int signal_number) {
  SendOrder(socket_, {GuardianOrder::Kind::kSignal, signal_number, 0});
}

void Guardian::Terminate() { SendOrder(socket_, {GuardianOrder::Kind::kTerminate, 0, 0}); }

std::optional<GuardianEvent> Guardian::Next() {
  GuardianEvent event{};
  ssize_t length = 0;
  // A guardian that has ended with an order unread resets the connection; that is told once, before
  // what it had to say at last.
  do {
    length = recv(socket_, &event, sizeof(event), MSG_DONTWAIT);
  } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
  if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (length != static_cast<ssize_t>(sizeof(event))) {
    return GuardianEvent{GuardianEvent::Kind::kGone, 0};
  }
  if (event.kind == GuardianEvent::Kind::kStarted) group_ = event.value;
  return event;
}

bool Guardian::KillAll(std::chrono::milliseconds bound) {
  if (guardian_ > 0) {
    kill(guardian_, SIGKILL);
    waitpid(guardian_, nullptr, 0);
    guardian_ = 0;
  }
  if (group_ == 0) return true;
  const TimePoint end = BootClock::now() + bound;
  while (BootClock::now() < end) {
    ReapAll();
    if (kill(-group_, SIGKILL) != 0 && errno == ESRCH) return true;
    const timespec pause{0, 5'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace semaphore::semctl
