// How a client knows its daemon, and the daemon its client. The same words as in semctl and in the
// clients of other languages.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_SECURITY_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_SECURITY_H_

#include <string>

namespace semaphore {

// Files are PEM, but for token_file. Empty: not given.
struct SecurityOptions {
  // Speak TLS. Implied by ca_file, cert_file, key_file and server_name.
  bool tls = false;
  // Whose certificates the daemon's is verified by. Default: those that this machine trusts.
  std::string ca_file{};
  // The client's own certificate, and its key: both, or neither.
  std::string cert_file{};
  std::string key_file{};
  // The name that the daemon's certificate must bear. Default: the endpoint's host.
  std::string server_name{};
  // A bearer token, sent with every call; at most one of the two. The file holds it in one line,
  // and is read again when it has changed. It is never sent without TLS, except to loopback or a
  // Unix socket: such endpoints are refused.
  std::string token{};
  std::string token_file{};

  bool wants_tls() const {
    return tls || !ca_file.empty() || !cert_file.empty() || !key_file.empty() ||
           !server_name.empty();
  }
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_SECURITY_H_
