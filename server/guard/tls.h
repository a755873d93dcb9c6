// TLS as the guard ends it: certificates that can be replaced while connections stand, and who a client is by its
// certificate.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "server/access/access.h"
#include "server/access/certificates.h"

namespace semaphored::guard {

enum class ClientCertificates {
  kNone,      // Not asked for.
  kOptional,  // Asked for; one that the client CA has not signed ends the connection.
  kRequired,  // A client without one cannot connect.
};

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslPtr = std::unique_ptr<SSL, FreeSsl>;

// The certificates in force: each new connection is shown the latest, those that stand keep theirs. Any thread.
class Tls {
 public:
  // INVALID_ARGUMENT: OpenSSL does not take them, with its word for why.
  static absl::StatusOr<std::unique_ptr<Tls>> Make(const Certificates& certificates,
                                                   ClientCertificates clients);
  // From now on for new connections. The error is Make's; then those before stay.
  absl::Status Set(const Certificates& certificates);

  // For one connection that comes in at `socket`, which stays the caller's: TLS 1.2 or newer, HTTP/2 only. nullptr:
  // there is no memory.
  SslPtr Accept(int socket) const;

 private:
  using ContextPtr = std::shared_ptr<SSL_CTX>;
  static absl::StatusOr<ContextPtr> MakeContext(const Certificates& certificates,
                                                ClientCertificates clients);
  Tls(ContextPtr context, ClientCertificates clients);

  const ClientCertificates clients_;
  mutable std::mutex mutex_;
  ContextPtr context_;  // Guarded by mutex_.
};

// From now on each message of TLS's own that is read, as a key update is, adds one to `count`, which outlives `ssl`.
void CountMessages(SSL* ssl, int64_t* count);
// What the verified certificate of the client says, once the handshake is done. Empty: it has shown none.
CertificateNames NamesOf(const SSL* ssl);
// And takes OpenSSL's errors of this thread away: "no shared cipher", "" if there are none.
std::string TakeTlsError();

}  // namespace semaphored::guard
