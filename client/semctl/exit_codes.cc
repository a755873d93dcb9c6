#include "client/semctl/exit_codes.h"

#include <string>

#include "client/semaphore/errors.h"

namespace semaphore::semctl {

const char kExitCodesHelp[] = R"(Exit codes:
  0        done. run, work --once: the command's own code
  1        the answer is no: verify says not held; drain or destroy --wait was not done in time;
           diff found a difference; revoke found no lease of that holder or id; doctor warns
  2        the command line is wrong
  118      done, but not all that it printed could be written
  119      refused: any other error of the daemon
  120      full, and --no-wait was given
  121      the wait timed out
  122      lost: the lease ended before the work did, or was not held
  123      no daemon could be reached, or none that can answer now
  126,127  run, work: the command could not be executed; was not found
  128+N    run: the command was killed by signal N, or semctl was while it waited. work: a second
           signal N ended the commands)";

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kDone;
  const std::string reason = ErrorReason(status);
  if (reason == "FULL" || reason == "HOLDER_CAP") return kFull;
  if (reason == "NOT_HELD" || reason == "SESSION_LOST") return kLost;
  if (reason == "WAIT_EXPIRED") return kTimedOut;
  // A deadline of our own has no reason: the daemon was reached, and said nothing.
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return kUnreachable;
  return kRefused;
}

}  // namespace semaphore::semctl
