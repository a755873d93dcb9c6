// What semctl, the guardian and the watcher have in common: a page of memory, and what semctl writes
// into the socket to the guardian (SOCK_SEQPACKET: one message a packet).
#ifndef SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_MESSAGES_H_
#define SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_MESSAGES_H_

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/semaphore/clock.h"
#include "client/semctl/command_group.h"

namespace semaphore::semctl {

inline constexpr std::size_t kEnvironmentBytesMax = 16'384;

// When each of the three kills what is left, before the permits' deadline: the next one only if the
// one before stands still.
inline constexpr std::chrono::milliseconds kGuardianKillsBefore(100);
inline constexpr std::chrono::milliseconds kWatcherKillsBefore(60);
inline constexpr std::chrono::milliseconds kSemctlKillsBefore(20);

// Shared by the three processes, which read it whenever they look at the time: a message could get
// stuck behind others while its reader is stopped.
struct GuardedTime {
  // Until when the permits are good, on BootClock; 0: the command was not begun. semctl writes it.
  std::atomic<std::int64_t> good_until_ns{0};
  // They are never good for longer than this; 0: no bound. semctl writes it, and never a later one.
  std::atomic<std::int64_t> bound_ns{0};

  // 0 before the command is begun.
  TimePoint good_until() const {
    const std::int64_t good = good_until_ns.load();
    const std::int64_t bound = bound_ns.load();
    return TimePoint(BootClock::duration(bound == 0 ? good : std::min(good, bound)));
  }
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "it is shared by processes");

struct GuardianOrder {
  enum class Kind : std::int32_t {
    kStart,
    kLook,  // at the time: the deadline is nearer than before
    kSignal,
    kTerminate,
    kKill,
  };
  Kind kind;
  std::int32_t signal_number = 0;
  // How long the command gets between TERM and KILL when no new deadline comes.
  std::int64_t grace_ns = 0;
};

// A packet: an order, and for kStart the variables, each ended by a zero byte.
struct GuardianPacket {
  GuardianOrder order;
  char environment[kEnvironmentBytesMax];
};

// What the guardian and the watcher are made with.
struct GuardianSetup {
  int socket = -1;
  const GuardedTime* time = nullptr;
  std::vector<std::string> command;
  std::chrono::milliseconds kill_after{0};
  // The command gets a process group of its own; otherwise it stays in semctl's.
  bool own_group = false;
  // The command's, if there is one.
  CommandGroup group;
};

// The watcher's whole life, in its own process; it forks the guardian. Never returns.
[[noreturn]] void RunWatcher(const GuardianSetup& setup);
// The guardian's. Never returns.
[[noreturn]] void RunGuardian(const GuardianSetup& setup, pid_t watcher);

// What `ps`, `killall` and `pkill -f` know this process by. At most 15 characters.
void SetProcessName(const char* name);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_GUARDIAN_MESSAGES_H_
