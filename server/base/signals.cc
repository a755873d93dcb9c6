#include "server/base/signals.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "server/base/logging.h"

namespace semaphored {

namespace {
// A shell's and systemd's convention for what a signal has ended.
constexpr int kSignalBase = 128;
}  // namespace

Signals::Signals() : fatal_event_(eventfd(0, EFD_CLOEXEC)) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signals_ = signalfd(-1, &signals, SFD_CLOEXEC);
  std::signal(SIGPIPE, SIG_IGN);
}

void Signals::AskFatal() {
  const uint64_t one = 1;
  if (write(fatal_event_, &one, sizeof one) < 0) std::abort();
}

Signals::Event Signals::Wait(std::optional<Milliseconds> patience) {
  pollfd files[] = {{signals_, POLLIN, 0}, {fatal_event_, POLLIN, 0}};
  const int timeout_ms =
      patience ? static_cast<int>(std::clamp<int64_t>(patience->count(), 0, INT_MAX)) : -1;
  // Interrupted (by a debugger, say): to the caller that is a time-out that came early.
  if (poll(files, 2, timeout_ms) <= 0) return {};
  if ((files[1].revents & POLLIN) != 0) return {Event::Kind::kFatal, 0};
  const int signal = Read();
  if (signal == SIGHUP) return {Event::Kind::kReload, 0};
  return {Event::Kind::kStop, signal};
}

void Signals::EndAtNextSignal() {
  std::thread([this] {
    int signal = Read();
    while (signal == SIGHUP) signal = Read();
    spdlog::warn("a second {}: ending at once", sigdescr_np(signal));
    FlushLog(Milliseconds(100));
    _exit(kSignalBase + signal);
  }).detach();
}

int Signals::Read() const {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof info) != sizeof info) {
  }
  return static_cast<int>(info.ssi_signo);
}

}  // namespace semaphored
