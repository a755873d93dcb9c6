// semctl's side of the guardian, with the guardian and the watcher themselves; and the command's cgroup.
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "client/semctl/command_group.h"
#include "client/semctl/guardian.h"
#include "client/semctl/process_tree.h"
#include "tests/service/client_subreaper.h"

namespace semaphore::semctl {
namespace {

using std::chrono::hours;
using test::InAProcess;

Guardian GuardianOfSleep() {
  return *Guardian::Fork({"sleep", "600"}, std::chrono::milliseconds(0));
}

GuardianEvent::Kind NextKind(Guardian& guardian) {
  pollfd polled = {guardian.descriptor(), POLLIN, 0};
  poll(&polled, 1, -1);
  return guardian.Next().value_or(GuardianEvent{GuardianEvent::Kind::kStarted}).kind;
}

TEST_CASE("guardian: what its time was shortened to holds against later times") {
  CHECK(InAProcess([] {
          Guardian guardian = GuardianOfSleep();
          const TimePoint now = BootClock::now();
          guardian.Shorten(now + hours(3));
          if (guardian.overdue_at() != kNever) return 1;
          guardian.Start({}, now + hours(4));
          if (guardian.overdue_at() > now + hours(3)) return 2;
          guardian.Shorten(now + hours(2));
          guardian.Extend(now + hours(4));
          guardian.Shorten(now + hours(3));
          if (guardian.overdue_at() > now + hours(2)) return 3;
          guardian.Extend(now + hours(1));
          return guardian.overdue_at() > now + hours(1) ? 4 : 0;
        }) == 0);
}

TEST_CASE("guardian: a command whose time is over is not started") {
  CHECK(InAProcess([] {
          Guardian guardian = GuardianOfSleep();
          std::vector<Descendant> helpers;
          while (helpers.size() < 2) helpers = DescendantsOf(getpid());
          // The watcher would end the guardian first.
          kill(helpers[0].pid, SIGSTOP);
          guardian.Start({}, BootClock::now());
          if (NextKind(guardian) != GuardianEvent::Kind::kTerminating) return 1;
          return NextKind(guardian) == GuardianEvent::Kind::kExited ? 0 : 2;
        }) == 0);
}

TEST_CASE("guardian: a kill ends the command of a guardian that stands still") {
  CHECK(InAProcess([] {
          Guardian guardian = GuardianOfSleep();
          guardian.Start({}, BootClock::now() + hours(1));
          if (NextKind(guardian) != GuardianEvent::Kind::kStarted) return 1;
          // The watcher, the guardian, the command.
          const std::vector<Descendant> all = DescendantsOf(getpid());
          if (all.size() != 3) return 2;
          kill(all[1].pid, SIGSTOP);
          guardian.Kill();
          guardian.Extend(BootClock::now() + hours(2));
          if (guardian.overdue_at() > BootClock::now() + hours(1)) return 3;
          if (NextKind(guardian) != GuardianEvent::Kind::kGone) return 4;
          return guardian.KillAll(hours(1)) && DescendantsOf(getpid()).empty() ? 0 : 5;
        }) == 0);
}

// Makes a group as the first process of a new PID namespace; its path. Empty: it may not, or the kernel cannot.
std::string GroupOfFirstProcess() {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  InAProcess([&ready] {
    if (unshare(CLONE_NEWPID) != 0) return 0;
    const pid_t first = fork();
    if (first == 0) {
      const std::string path = CommandGroup::Make().path();
      _exit(write(ready[1], path.data(), path.size()) < 0 ? 1 : 0);
    }
    waitpid(first, nullptr, 0);
    return 0;
  });
  close(ready[1]);
  char path[4096];
  const ssize_t length = read(ready[0], path, sizeof(path));
  close(ready[0]);
  return {path, length > 0 ? static_cast<std::size_t>(length) : 0};
}

TEST_CASE(
    "command group: processes of the same pid in two PID namespaces have groups of their own") {
  const std::string one = GroupOfFirstProcess();
  const std::string other = GroupOfFirstProcess();
  if (one.empty()) WARN("no cgroup may be made here: nothing is checked");
  CHECK((one != other || one.empty()));
  for (const std::string& path : {one, other}) CommandGroup(path).Remove();
}

}  // namespace
}  // namespace semaphore::semctl
