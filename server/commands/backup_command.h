// `semaphored backup`: a copy of the embedded store of a daemon that runs.
#pragma once

#include <functional>
#include <string>

#include "server/config/config.h"

namespace semaphored {

struct BackUpCommand {
  ConfigSources sources;  // The arguments are those after "backup".
  std::function<void(const std::string& text)> out;
  std::function<void(const std::string& text)> error;  // Without secrets; progress too.
};

// The exit code of the process:
//   0  the file is there, complete and on disk
//   2  the arguments are wrong, or the store is not the embedded one
//   3  there is no such file, and the message says why
int RunBackUp(const BackUpCommand& command);

}  // namespace semaphored
