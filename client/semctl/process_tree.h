// The processes that descend from one: found in /proc, signalled, and ended.
//
// A subreaper (PR_SET_CHILD_SUBREAPER) gets the children of each of its descendants that ends,
// whatever session or process group they are in: none gets away by `setsid` or a double fork.
#ifndef SEMAPHORED_CLIENT_SEMCTL_PROCESS_TREE_H_
#define SEMAPHORED_CLIENT_SEMCTL_PROCESS_TREE_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "client/semaphore/clock.h"

namespace semaphore::semctl {

struct Descendant {
  pid_t pid;
  pid_t parent;
};

// The children as the kernel lists them; it may leave one out while others come and go. nullopt:
// this kernel has no such lists (CONFIG_PROC_CHILDREN), or the process has ended.
std::optional<std::vector<pid_t>> ListedChildren(pid_t parent);
// The same from the parents of all processes: slower, and on every kernel.
std::vector<pid_t> ScannedChildren(pid_t parent);

// Whether this /proc is of this process's PID namespace. In none other are the processes below to be found.
bool ShowsOwnProcesses(const std::string& proc);

// Parents before their children. Without those in `spared`, and what descends from them.
std::vector<Descendant> DescendantsOf(pid_t ancestor, const std::vector<pid_t>& spared = {});

// The name that `ps` and `killall` go by; empty if the process has ended.
std::string NameOf(pid_t pid);

// Sends a signal, unless the pid is another process's by now. Returns errno; 0 also if the process
// has ended.
int SendSignal(const Descendant& descendant, int signal_number);

// Kills the descendants of this process and reaps them, until none is left, at most until
// `deadline`. `spared` are children, which are left alone with all that descends from them. False
// if any other is left. REQUIRES: this process is a subreaper.
bool KillDescendants(const std::vector<pid_t>& spared, TimePoint deadline);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_PROCESS_TREE_H_
