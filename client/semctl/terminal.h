// The terminal's foreground process group, handed to the command and back, as a shell does it.
#ifndef SEMAPHORED_CLIENT_SEMCTL_TERMINAL_H_
#define SEMAPHORED_CLIENT_SEMCTL_TERMINAL_H_

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

namespace semaphore::semctl {

// Does nothing unless stdin is a terminal, and this process is in its foreground at first.
// REQUIRES: SIGTTOU is blocked, or handing over would stop us.
class Terminal {
 public:
  Terminal() : ours_(isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp()) {}
  ~Terminal() { TakeBack(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool ours() const { return ours_; }
  void GiveTo(pid_t group) {
    if (ours_) given_ = tcsetpgrp(STDIN_FILENO, group) == 0;
  }
  void TakeBack() {
    if (given_) tcsetpgrp(STDIN_FILENO, getpgrp());
    given_ = false;
  }

 private:
  const bool ours_;
  bool given_ = false;
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_TERMINAL_H_
