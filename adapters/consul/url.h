// What the URL of a Consul store says.
//
//   consul://127.0.0.1:8500/prefix?dc=dc1&token_file=/etc/semaphored/consul.token
//   consul://127.0.0.1:8500/prefix?sessions=daemon&check_ttl_s=10
//   consul://consul.example:8501/team/locks?tls=yes&ca_file=/etc/ssl/consul-ca.pem
//
// The prefix is that of the keys: the semaphore `team/db` is what `consul lock -n=3 prefix/team/db`
// takes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace semaphored::consul {

struct Url {
  std::string host;
  int port = 8500;
  std::string prefix = "semaphored";  // Without '/' at its ends.
  std::string datacenter;             // Empty: the agent's own.
  std::string token;                  // Empty: none.
  bool tls = false;
  std::string ca_file;    // Empty: the system's.
  std::string cert_file;  // Empty: none. PEM, as are the others.
  std::string key_file;
  // For each answer of the agent; a question that waits for changes has its own.
  std::chrono::milliseconds timeout{5000};
  // The last resort: so long after the last daemon was there Consul itself gives all places back.
  std::chrono::seconds session_ttl{3600};
  // Permits end with a health check of the daemon that gave them, and do not outlive it.
  bool ends_with_daemon = false;
  // So long after the daemon was last there its check fails. If ends_with_daemon.
  std::chrono::seconds check_ttl{10};
};

// INVALID_ARGUMENT: what is wrong, without a token. Reads token_file.
absl::StatusOr<Url> ReadUrl(const std::string& text);

}  // namespace semaphored::consul
