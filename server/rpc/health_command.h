// `semaphored health`: whether a daemon serves, asked as any client would, over the standard health
// service. For container engines, service managers and people.
#pragma once

#include <functional>
#include <string>

#include "server/config/config.h"

namespace semaphored {

struct HealthCommand {
  // Its arguments are those after "health": --address, --timeout, --help and those about TLS
  // (--tls, --ca-file, --server-name, --cert-file, --key-file) are the command's own;
  // the rest are the daemon's settings, from which the address follows, as the daemon itself would
  // find it.
  ConfigSources sources;
  std::function<void(const std::string& text)> out;
  std::function<void(const std::string& text)> error;
};

// Blocks for at most the time-out, 3 s unless said otherwise. The exit code of the process:
//   0  the daemon serves
//   1  it does not, or was not reached in time
//   2  the arguments or settings are wrong
int RunHealth(const HealthCommand& command);

// How this machine's own programs reach what listens at `address`, as gRPC names it: 0.0.0.0 is
// 127.0.0.1, [::] is [::1], unix:PATH stays. Empty: it cannot be said, as the port is 0 or the
// address is none.
std::string ReachableAddress(const std::string& address);

}  // namespace semaphored
