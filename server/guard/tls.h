// TLS as the daemon ends it: certificates that can be replaced while connections stand.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "server/access/certificates.h"
#include "server/guard/tls_socket.h"

namespace semaphored::guard {

enum class ClientCertificates {
  kNone,      // Not asked for.
  kOptional,  // Asked for; one that the client CA has not signed ends the connection.
  kRequired,  // A client without one cannot connect.
};

// What is spoken within TLS: the client must not ask for anything else (ALPN).
enum class Protocol : uint8_t { kHttp1, kHttp2 };

// The certificates in force: each new connection is shown the latest, those that stand keep theirs. Any thread.
class Tls {
 public:
  // INVALID_ARGUMENT: OpenSSL does not take them, with its word for why.
  static absl::StatusOr<std::unique_ptr<Tls>> Make(const Certificates& certificates,
                                                   ClientCertificates clients);
  // From now on for new connections. The error is Make's; then those before stay.
  absl::Status Set(const Certificates& certificates);

  // For one connection that comes in at `socket`, which stays the caller's: TLS 1.2 or newer. nullptr: there is no memory.
  TlsSocketPtr Accept(int socket, Protocol protocol) const;

 private:
  using ContextPtr = std::shared_ptr<SSL_CTX>;
  static absl::StatusOr<ContextPtr> MakeContext(const Certificates& certificates,
                                                ClientCertificates clients);
  Tls(ContextPtr context, ClientCertificates clients);

  const ClientCertificates clients_;
  mutable std::mutex mutex_;
  ContextPtr context_;  // Guarded by mutex_.
};

}  // namespace semaphored::guard
