// The guardian and the watcher: two small processes between semctl and the command that it runs.
//
// They exist so that nothing that the command started works past the lease, whatever happens to
// semctl, or to one of them. semctl writes the time until which the permits are good into a page
// that the three share. When that comes near, or semctl's end of the socket closes (kill -9), the
// guardian ends the command and all that descends from it: SIGTERM, and SIGKILL after `kill_after`,
// but always before the permits' own deadline.
//
//   semctl ── watcher ── guardian ── command ── …      (parent and child, each but the command a
//     └────────socket────────┘                          subreaper)
//
// What a process of the chain leaves behind comes to the one before it, in whatever session or
// process group it is. So any one of the three can end it all:
//
//   guardian killed       the kernel kills the command (PR_SET_PDEATHSIG), the watcher the rest;
//                         semctl gives the permits back only when all are gone
//   watcher killed        the guardian ends the command
//   semctl killed         the guardian ends the command, since the socket is closed
//   any of them stopped   no new deadline is seen or written: near the last one the guardian ends
//                         all, a little later the watcher, and then semctl, each with those of the
//                         three that come after it; so, too, when the lease is lost sooner
//   all three killed      the command itself is killed by the kernel; what it had started goes on
//   all three stopped     the command goes on
//
// Where this process may make a cgroup (version 2), the command is in one of its own, and each of the three ends
// that: also what has become another user, or forks faster than it can be found.
//
// All of them find processes in /proc, and so need one of their own PID namespace.
//
// The watcher is forked before semctl has any thread, or, where there are threads, executed again.
// Clocks are BootClock.
#ifndef SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_H_
#define SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/semaphore/clock.h"
#include "client/semctl/command_group.h"

namespace semaphore::semctl {

struct GuardedTime;

// From the guardian.
struct GuardianEvent {
  enum class Kind : std::int32_t {
    kStarted,      // value: the command's process id
    kExecFailed,   // value: errno of exec
    kExited,       // value: the command's wait status. Nothing that it started is left
    kTerminating,  // the guardian ends the command by itself, since no new deadline came
    kUnwatched,    // the watcher was killed; the guardian ends the command
    kCannotKill,   // value: the id of a process that the guardian may not signal
    kGone,         // the guardian has died
  };
  Kind kind;
  std::int32_t value = 0;
};

// semctl's side. Guardians are used by one thread, all of them, but for what says otherwise.
class Guardian {
 public:
  // Forks. The command stays in this process's group. `kill_after` is the time between SIGTERM and
  // SIGKILL; negative: 10 s. REQUIRES: this process has one thread, and SIGCHLD is not ignored.
  // `command` is not empty.
  // FAILED_PRECONDITION: it could not kill anything, since /proc does not show its processes.
  static absl::StatusOr<Guardian> Fork(std::vector<std::string> command,
                                       std::chrono::milliseconds kill_after);
  // The same from a process with threads: executes this program again, as GuardianMain. The command
  // has a process group of its own, and its standard input is `input`, which stays the caller's.
  static absl::StatusOr<Guardian> Spawn(const std::vector<std::string>& command,
                                        std::chrono::milliseconds kill_after, int input);
  Guardian(Guardian&& other) noexcept;
  Guardian& operator=(Guardian&&) = delete;
  // Kills what still runs.
  ~Guardian();

  // To be polled for input.
  int descriptor() const { return socket_; }

  // Starts the command with these additional variables ("NAME=value"; 16 KiB in all).
  // kStarted or kExecFailed follows. False if the guardian is gone, or they are too long.
  bool Start(const std::vector<std::string>& environment, TimePoint good_until);
  void Extend(TimePoint good_until);
  // From now on its time ends no later than this, whatever Start and Extend say. Any thread.
  void Shorten(TimePoint good_until);
  // When the command must have been ended by the guardian, or the watcher: KillAll is due. kNever before
  // it is started.
  TimePoint overdue_at() const;
  // For what the command started in its own process group. While that is this process's, what was
  // sent to the whole group is not sent again.
  void Signal(int signal_number);
  // SIGTERM now, SIGKILL after `kill_after` or before the deadline.
  void Terminate();
  // SIGKILL now; if the guardian stands still, its time ends in a moment. For ever, also before Start. Any thread.
  void Kill();

  // The next event, if there is one; does not block. After kGone there are no more.
  std::optional<GuardianEvent> Next();

  // Kills all that the command started, and waits until nothing of it is left, at most `bound`. For
  // when the guardian is gone. False if something is left.
  bool KillAll(std::chrono::milliseconds bound);

 private:
  Guardian(int socket, pid_t watcher, GuardedTime* time, std::chrono::milliseconds kill_after,
           CommandGroup group);
  // At the time: it ends sooner than they wait for.
  void HaveThemLook();

  int socket_;
  std::atomic<pid_t> watcher_;  // 0: it is gone.
  GuardedTime* time_;
  std::chrono::milliseconds kill_after_;
  CommandGroup group_;
};

// Reaps the processes that were left to us by their parents' end. semctl may be the first process of
// a container, to which all orphans there come: it calls this now and then. Does not block.
void ReapOrphans();

// What to say before the permit is asked for, if it can be seen that the command may not be killable. nullopt:
// it cannot.
std::optional<std::string> CannotKillWarning(const std::string& command);

// What to say of kCannotKill.
std::string CannotKillText(pid_t pid);

// What Guardian::Spawn executes. For main(), before anything else; nothing else calls it: nullopt
// if the arguments are not Spawn's. Otherwise it does not return but for an error.
std::optional<int> GuardianMain(int argc, char** argv);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_H_
