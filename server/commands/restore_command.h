// `semaphored restore`: a back-up of the embedded store in the store's place.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/base/clock.h"

namespace semaphored {

struct RestoreCommand {
  std::vector<std::string> arguments;  // After "restore".
  std::optional<std::string> store;    // Of the environment.
  std::function<void(Milliseconds)> pause;
  std::function<void(const std::string& text)> out;
  std::function<void(const std::string& text)> error;  // Without secrets; progress too.
};

// The exit code of the process:
//   0  it is restored
//   2  the arguments are wrong, or the engine is not the embedded one
//   3  it could not be restored, and the message says why
int RunRestore(const RestoreCommand& command);

}  // namespace semaphored
