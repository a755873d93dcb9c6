// What the guardian and the watcher wait for: signals, a time, a socket.
#ifndef SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_WAIT_H_
#define SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_WAIT_H_

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "client/semaphore/clock.h"

namespace semaphore::semctl {

// Blocks all signals of this process, for as long as it lives: only SIGKILL and SIGSTOP reach it.
class GuardianWait {
 public:
  GuardianWait() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    signals_ = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    // It goes on while the machine is suspended.
    timer_ = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  }

  // Until `time`, or there is a signal, or something in the socket (-1: there is none), which is
  // what it returns.
  bool Until(TimePoint time, int socket) {
    Arm(time);
    pollfd polled[] = {{signals_, POLLIN, 0}, {timer_, POLLIN, 0}, {socket, POLLIN, 0}};
    poll(polled, 3, -1);
    std::uint64_t expirations = 0;
    while (read(timer_, &expirations, sizeof(expirations)) > 0) {
    }
    return polled[2].revents != 0;
  }

  // The next signal that has come; 0: there is none.
  int NextSignal() {
    signalfd_siginfo info{};
    if (read(signals_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return 0;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  void Arm(TimePoint time) const {
    itimerspec spec{};
    if (time != kNever) {
      const std::int64_t ns = std::max<std::int64_t>(time.time_since_epoch().count(), 1);
      spec.it_value.tv_sec = ns / 1'000'000'000;
      spec.it_value.tv_nsec = ns % 1'000'000'000;
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
  }

  int signals_ = -1;
  int timer_ = -1;
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_WAIT_H_
