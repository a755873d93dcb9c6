// Credentials of a listening port whose certificates can be replaced while it is open: each new
// connection is shown the latest; those that stand keep theirs.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <mutex>

#include "server/core/certificates.h"

namespace semaphored {

enum class ClientCertificates {
  kNone,      // Not asked for.
  kOptional,  // Asked for; one that the client CA has not signed ends the connection.
  kRequired,  // A client without one cannot connect.
};

// The certificates in force. Any thread. It outlives the server that uses it.
class CertificateSlot {
 public:
  explicit CertificateSlot(Certificates certificates);
  // From now on for new connections.
  void Set(Certificates certificates);

  // For gRPC: the certificates and their number, which rises with each Set.
  std::shared_ptr<const Certificates> Get(uint64_t* number) const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Certificates> certificates_;  // Guarded by mutex_.
  uint64_t number_ = 1;                               // Guarded by mutex_.
};

// The slot outlives it, and the server.
std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(CertificateSlot* slot,
                                                              ClientCertificates clients);

}  // namespace semaphored
