// What semctl makes of the signal dispositions that it was started with.
#ifndef SEMAPHORED_CLIENT_SEMCTL_INHERITED_SIGNALS_H_
#define SEMAPHORED_CLIENT_SEMCTL_INHERITED_SIGNALS_H_

#include <signal.h>

namespace semaphore::semctl {

// Blocks the signals that `run` and `work` handle, and returns them: not those that are ignored, as
// under `nohup`, or by a command that `sh -c '… &'` has put into the background. To be called
// before there is any other thread: they inherit the mask.
inline sigset_t BlockHandledSignals() {
  // Its parent may have ignored it; then there would be no exit codes of children.
  signal(SIGCHLD, SIG_DFL);
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction inherited {};
    sigaction(number, nullptr, &inherited);
    if (inherited.sa_handler != SIG_IGN) sigaddset(&handled, number);
  }
  pthread_sigmask(SIG_BLOCK, &handled, nullptr);
  return handled;
}

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_INHERITED_SIGNALS_H_
