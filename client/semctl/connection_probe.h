// A connection that `semctl doctor` makes by itself, since gRPC does not say why one cannot be made:
// the name, the port, and the certificate that is shown there.
#ifndef SEMAPHORED_CLIENT_SEMCTL_CONNECTION_PROBE_H_
#define SEMAPHORED_CLIENT_SEMCTL_CONNECTION_PROBE_H_

#include <chrono>
#include <string>

#include "client/semaphore/security.h"
#include "client/semctl/finding.h"

namespace semaphore::semctl {

// Speaks with this endpoint as `security` wants it.
struct ProbeOptions {
  std::string endpoint;
  SecurityOptions security;
  std::chrono::milliseconds timeout{5'000};
};

// "reach", and "tls" if there is a connection: also that there is no TLS, and whether that matters.
// Sends nothing but a TLS handshake. Blocks for twice the timeout at most. Runs on a thread of the
// caller's that ends soon: SIGPIPE stays blocked in it.
Findings ProbeConnection(const ProbeOptions& options);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_CONNECTION_PROBE_H_
