// Whether a command will run as another user, whom this process may not be allowed to signal.
#ifndef SEMAPHORED_CLIENT_SEMCTL_PROGRAM_H_
#define SEMAPHORED_CLIENT_SEMCTL_PROGRAM_H_

#include <optional>
#include <string>

namespace semaphore::semctl {

// The file that `command` names, found as execvp finds it, if its set-user-ID bit will make it run as another
// user than this process does; the path of that file. nullopt: it will not, or this process is root, who may
// signal all. What the command starts in turn is not looked at.
std::optional<std::string> SetUserIdFile(const std::string& command);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_PROGRAM_H_
