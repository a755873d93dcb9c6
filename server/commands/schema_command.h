// `semaphored schema`: what must be in an engine before the daemon uses it, printed or made.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace semaphored {

struct SchemaCommand {
  std::vector<std::string> arguments;  // After "schema".
  std::optional<std::string> store;    // Of the environment; only for --create.
  std::function<void(const std::string& text)> out;
  std::function<void(const std::string& text)> error;  // Without secrets; progress too.
};

// The exit code of the process:
//   0  it is printed, made, or was there, or nothing has to be made
//   2  the arguments are wrong
//   3  it could not be made
int RunSchema(const SchemaCommand& command);

}  // namespace semaphored
