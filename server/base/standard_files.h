// What a program of ours does about its standard files: both may be used wherever there is a main().
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>

namespace semaphored {

// A program may be started with standard files closed (`2>&-`, some supervisors). What it opens next would get their
// numbers, and what it prints would go there: progress into a back-up, a log into a connection. So this opens something
// in their places that refuses to be written: printing fails as it would have, and nothing else happens. A command that
// this program executes finds them closed, as they were.
// For main(), before anything else is opened. (gRPC's own initialiser, which runs before, may leave an eventfd in the place
// of standard input. It is closed for a command, too, and nothing is printed there.)
inline void OccupyStandardFiles() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) >= 0 || errno != EBADF) continue;
    // It gets the lowest free number, which is this one: those below are open by now.
    const int direction = standard == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (open("/dev/null", direction | O_CLOEXEC) < 0) return;
  }
}

// Writes what waits for standard output, and returns why something that was printed there is lost, such as "No space left
// on device", if that can be said. nullopt: nothing is.
inline std::optional<std::string> LostOutput() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return std::nullopt;
  return errno != 0 ? std::generic_category().message(errno) : "it could not be written";
}

}  // namespace semaphored
