// What the file of a command says before it runs: whether it will run as another user, whom this process may not be
// allowed to signal; and why it cannot be run.
#ifndef SEMAPHORED_CLIENT_SEMCTL_PROGRAM_H_
#define SEMAPHORED_CLIENT_SEMCTL_PROGRAM_H_

#include <optional>
#include <string>

namespace semaphore::semctl {

// The file that `command` names, found as execvp finds it, if its set-user-ID bit will make it run as another
// user than this process does; the path of that file. nullopt: it will not, or this process is root, who may
// signal all. What the command starts in turn is not looked at.
std::optional<std::string> SetUserIdFile(const std::string& command);

// "COMMAND: No such file or directory", for an errno of execvp; with the interpreter, if it is that which is missing or
// cannot be run: the errno does not say of which file it speaks.
std::string ExecErrorText(const std::string& command, int error);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_PROGRAM_H_
