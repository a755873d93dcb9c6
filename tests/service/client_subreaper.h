// A process of its own for what kills all that descends from it.
#ifndef SEMAPHORED_TESTS_SERVICE_CLIENT_SUBREAPER_H_
#define SEMAPHORED_TESTS_SERVICE_CLIENT_SUBREAPER_H_

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

namespace semaphore::test {

// What `body` returns in a subreaper with one thread.
template <typename Body>
int InAProcess(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    _exit(body());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace semaphore::test

#endif  // SEMAPHORED_TESTS_SERVICE_CLIENT_SUBREAPER_H_
