// The guardian: a small process between semctl and the command that it runs.
//
// It exists so that the command never works past its lease, whatever happens to semctl. semctl
// sends it the time until which the permits are good; when that comes near, or semctl's end of the
// socket closes (kill -9), the guardian ends the command's process group: SIGTERM, and SIGKILL
// after `kill_after`, but always before the permits' own deadline.
//
//   semctl ──socket── guardian ──fork── command (a process group of its own)
//
//   semctl killed       the socket closes: the guardian ends the group
//   semctl stopped      no new deadline arrives: the guardian ends the group in time
//   guardian killed     the kernel kills the command (PR_SET_PDEATHSIG); semctl, which adopts the
//                       orphans, kills the rest of its group, and gives the permits back only when
//                       all are gone
//
// It is forked before semctl has any thread, or, where there are threads, executed anew, and uses
// no more than system calls. Its clock is BootClock. What a command starts in a session or process
// group of its own is out of reach.
#ifndef SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_H_
#define SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/semaphore/clock.h"

namespace semaphore::semctl {

// From the guardian.
struct GuardianEvent {
  enum class Kind : std::int32_t {
    kStarted,      // value: the command's process id, which is its group's too
    kExecFailed,   // value: errno of exec
    kExited,       // value: the command's wait status. Nothing of its group is left
    kTerminating,  // the guardian ends the command by itself, since no new deadline came
    kStopped,      // the command was stopped (Ctrl-Z)
    kGone,         // the guardian has died
  };
  Kind kind;
  std::int32_t value = 0;
};

// semctl's side. Used by one thread at a time.
class Guardian {
 public:
  // Forks. REQUIRES: this process has one thread. `command` is not empty.
  static absl::StatusOr<Guardian> Fork(std::vector<std::string> command,
                                       std::chrono::milliseconds kill_after);
  // The same from a process with threads: executes this program again, as GuardianMain. The
  // command's standard input is `input`, which stays the caller's.
  static absl::StatusOr<Guardian> Spawn(const std::vector<std::string>& command,
                                        std::chrono::milliseconds kill_after, int input);
  Guardian(Guardian&& other) noexcept;
  Guardian& operator=(Guardian&&) = delete;
  // Closes the socket, which ends what still runs, and reaps the guardian.
  ~Guardian();

  // 0 if it was found dead.
  pid_t process() const { return guardian_; }
  // To be polled for input.
  int descriptor() const { return socket_; }

  // Starts the command with these additional variables ("NAME=value"; 16 KiB in all).
  // kStarted or kExecFailed follows. False if the guardian is gone, or they are too long.
  bool Start(const std::vector<std::string>& environment, TimePoint good_until);
  void Extend(TimePoint good_until);
  void Signal(int signal_number);
  // SIGTERM now, SIGKILL after `kill_after` or before the deadline.
  void Terminate();

  // The next event, if there is one; does not block. After kGone there are no more.
  std::optional<GuardianEvent> Next();

  // Kills the command's group and waits until nothing of it is left, at most `bound`. For when the
  // guardian is gone. False if something is left.
  bool KillAll(std::chrono::milliseconds bound);

 private:
  Guardian(int socket, pid_t guardian) : socket_(socket), guardian_(guardian) {}

  int socket_;
  pid_t guardian_;
  pid_t group_ = 0;
};

// Reaps the processes that were left to us by their parents' end, but not `guardians`, which their
// owners wait for. semctl may be the first process of a container, to which all orphans there come:
// it calls this now and then. Does not block.
void ReapOrphans(const std::vector<pid_t>& guardians);

// What Guardian::Spawn executes. For main(), before anything else; nothing else calls it: nullopt
// if the arguments are not Spawn's. Otherwise it does not return but for an error.
std::optional<int> GuardianMain(int argc, char** argv);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_H_
