// The watcher's own process; see guardian.h.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/semctl/guardian_messages.h"
#include "client/semctl/guardian_wait.h"
#include "client/semctl/process_tree.h"

namespace semaphore::semctl {
namespace {

// Kills all that is left, the guardian with it.
[[noreturn]] void EndAll(const CommandGroup& group) {
  group.Kill();
  KillDescendants({}, kNever);
  group.Remove();
  _exit(0);
}

}  // namespace

void RunWatcher(const GuardianSetup& setup) {
  const pid_t semctl = getppid();
  const pid_t watcher = getpid();
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const pid_t guardian = fork();
  if (guardian == 0) RunGuardian(setup, watcher);
  if (guardian < 0) _exit(1);  // semctl sees that the socket is closed
  close(setup.socket);
  GuardianWait wait;
  // Out of reach of what is sent to semctl's process group, SIGKILL and SIGSTOP among it.
  setsid();
  SetProcessName("permit-watcher");
  // When semctl ends we look, as when the guardian does.
  prctl(PR_SET_PDEATHSIG, SIGCHLD, 0, 0, 0);
  while (true) {
    while (wait.NextSignal() != 0) {
    }
    if (waitpid(guardian, nullptr, WNOHANG) == guardian) EndAll(setup.group);
    const TimePoint good_until = setup.time->good_until();
    const bool begun = good_until != TimePoint();
    // While the command runs, the guardian ends it in good order.
    if (!begun && getppid() != semctl) EndAll(setup.group);
    const TimePoint kill_at =
        begun && good_until != kNever ? good_until - kWatcherKillsBefore : kNever;
    if (BootClock::now() >= kill_at) EndAll(setup.group);
    wait.Until(kill_at, -1);
  }
}

}  // namespace semaphore::semctl
