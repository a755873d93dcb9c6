// What the settings must be to each other, and where the daemon may listen. Internal to the
// configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config/config.h"

namespace semaphored {

struct ListenAddress {
  std::string host;       // Without brackets. Empty for a unix socket.
  std::string port;       // For a unix socket: its path.
  bool loopback = false;  // Only programs on this machine can reach it.
};

// INVALID_ARGUMENT: the message says what would be right.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

// A line for each pair of settings that do not fit each other, and for an address that is not safe to
// listen at. Names the keys.
void AddMistakes(const Config& config, std::vector<std::string>* mistakes);

// INVALID_ARGUMENT with those lines.
absl::Status CheckConfig(const Config& config);

// Connections pass the guard (server/guard). REQUIRES: checked.
bool IsGuarded(const Config& config);

// Where HTTP is served; empty: nowhere. REQUIRES: checked.
struct HttpAddress {
  std::string listen;
  bool may_fail = false;  // It was not asked for: if another program has it, there is no HTTP.
};
HttpAddress HttpAddressOf(const Config& config);

// HTTP is encrypted. REQUIRES: checked.
bool IsHttpByTls(const Config& config);

// Clients of the API have to show a certificate. REQUIRES: checked.
bool NeedsCertificates(const Config& config);

// Other machines can reach it by TLS, and it does not ask who they are. REQUIRES: checked.
bool IsOpenToAll(const Config& config);

}  // namespace semaphored
