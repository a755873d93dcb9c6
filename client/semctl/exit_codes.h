// What semctl exits with.
//
// 124 to 127 and those from 129 mean other things to a shell, and 124 to 127 to `timeout`.
//
//   0        done. `run`, `work --once`: the command's own code
//   1        the answer is no: `verify` says not held, `drain` or `destroy --wait` was not done in
//            time, `diff` found a difference, `revoke` found no such lease,
//            `doctor` warns
//   2        the command line is wrong
//   118      done, but not all that it printed could be written
//   119      refused: any other error of the daemon (no such semaphore, another limit, paused, a
//            bad value …)
//   120      full: the permits were not free, and --no-wait or --wait 0 was given (or the holder
//            has all it may have)
//   121      the wait timed out
//   122      lost: the lease ended before the work did (expired, revoked, recalled, no contact),
//            or was not held
//   123      no daemon could be reached, or none that can answer now
//   126      `run`, `work`: the command could not be executed
//   127      `run`, `work`: the command was not found
//   128 + N  `run`: the command was killed by signal N; or semctl was, while it waited
#ifndef SEMAPHORED_CLIENT_SEMCTL_EXIT_CODES_H_
#define SEMAPHORED_CLIENT_SEMCTL_EXIT_CODES_H_

#include "absl/status/status.h"

namespace semaphore::semctl {

enum ExitCode : int {
  kDone = 0,
  kNo = 1,
  kUsage = 2,
  kNotWritten = 118,
  kRefused = 119,
  kFull = 120,
  kTimedOut = 121,
  kLost = 122,
  kUnreachable = 123,
  kCannotExecute = 126,
  kNotFound = 127,
  kSignalled = 128,
};

// For an error of the client; kDone for OK.
int ExitCodeOf(const absl::Status& status);

// The table above, for --help.
extern const char kExitCodesHelp[];

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_EXIT_CODES_H_
