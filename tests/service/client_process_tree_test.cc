// The processes that descend from one.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <catch2/catch_test_macros.hpp>

#include "client/semctl/process_tree.h"
#include "tests/service/client_subreaper.h"

namespace semaphore::semctl {
namespace {

using test::InAProcess;

// A process that waits to be killed.
pid_t Waiting() {
  const pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  return child;
}

bool Contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

TEST_CASE("process tree: children are the same as they are listed and by all parents") {
  CHECK(InAProcess([] {
          const pid_t one = Waiting();
          const pid_t two = Waiting();
          const std::vector<pid_t> scanned = ScannedChildren(getpid());
          if (scanned.size() != 2 || !Contains(scanned, one) || !Contains(scanned, two)) return 1;
          auto listed = ListedChildren(getpid());
          if (listed.has_value() && listed->size() != 2) return 2;
          if (NameOf(one).empty() || !NameOf(1 << 30).empty()) return 3;
          return KillDescendants({}, kNever) ? 0 : 4;
        }) == 0);
}

TEST_CASE("process tree: what has left its parent and its session is found and killed") {
  CHECK(InAProcess([] {
          int ready[2];
          if (pipe2(ready, O_CLOEXEC) != 0) return 1;
          const pid_t middle = fork();
          if (middle == 0) {
            setsid();
            const pid_t daemon = Waiting();
            if (write(ready[1], &daemon, sizeof(daemon)) < 0) _exit(1);
            _exit(0);
          }
          pid_t daemon = 0;
          if (read(ready[0], &daemon, sizeof(daemon)) != sizeof(daemon)) return 2;
          waitpid(middle, nullptr, 0);
          const std::vector<Descendant> found = DescendantsOf(getpid());
          if (found.size() != 1 || found[0].pid != daemon || found[0].parent != getpid()) return 3;
          if (!KillDescendants({}, kNever)) return 4;
          return kill(daemon, 0) == 0 ? 5 : 0;
        }) == 0);
}

TEST_CASE("process tree: a /proc of another PID namespace is not taken for its own") {
  CHECK(ShowsOwnProcesses("/proc"));
  CHECK_FALSE(ShowsOwnProcesses("/nowhere"));
  const std::string other =
      std::filesystem::temp_directory_path() / ("proc-of-another-" + std::to_string(getpid()));
  std::filesystem::create_directory(other);
  std::filesystem::create_symlink(std::to_string(getppid()), other + "/self");
  CHECK_FALSE(ShowsOwnProcesses(other));
  std::filesystem::remove_all(other);
}

TEST_CASE("process tree: what is spared stays") {
  CHECK(InAProcess([] {
          const pid_t spared = Waiting();
          const pid_t other = Waiting();
          if (!KillDescendants({spared}, kNever)) return 1;
          if (kill(other, 0) == 0 || kill(spared, 0) != 0) return 2;
          if (!DescendantsOf(getpid(), {spared}).empty()) return 3;
          return KillDescendants({}, kNever) ? 0 : 4;
        }) == 0);
}

TEST_CASE("process tree: a pid that is another process's by now is left alone") {
  CHECK(InAProcess([] {
          int ready[2];
          if (pipe2(ready, O_CLOEXEC) != 0) return 1;
          const pid_t middle = fork();
          if (middle == 0) {
            const pid_t child = Waiting();
            if (write(ready[1], &child, sizeof(child)) < 0) _exit(1);
            int status = 0;
            waitpid(child, &status, 0);
            _exit(WTERMSIG(status));
          }
          pid_t child = 0;
          if (read(ready[0], &child, sizeof(child)) != sizeof(child)) return 2;
          // Its parent was another process, as far as is known.
          if (SendSignal({child, 1}, SIGKILL) != 0) return 3;
          if (SendSignal({child, middle}, SIGUSR1) != 0) return 4;
          int status = 0;
          waitpid(middle, &status, 0);
          return WEXITSTATUS(status) == SIGUSR1 ? 0 : 5;
        }) == 0);
}

}  // namespace
}  // namespace semaphore::semctl
