// Inside the client and semctl: connections to the daemon as its SecurityOptions want them.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_TRANSPORT_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_TRANSPORT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/semaphore/security.h"

namespace semaphore {

// All functions may be called by any thread.
class Transport {
 public:
  // Reads the files. INVALID_ARGUMENT names the option that is wrong: a file that cannot be read or
  // is not PEM, a certificate without key, a token for an endpoint to which it must not be sent.
  static absl::StatusOr<std::shared_ptr<Transport>> Create(
      const SecurityOptions& options, const std::vector<std::string>& endpoints);
  // Neither TLS nor token.
  static std::shared_ptr<Transport> Plain();

  // Does not block. `arguments` get the name to verify, if there is one.
  std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint,
                                         grpc::ChannelArguments arguments) const;

  // On a connection of its own: a pool would hand out one that was found broken, or gRPC's pause after it.
  std::shared_ptr<grpc::Channel> ConnectAlone(const std::string& endpoint) const;

  // Adds the token to a call that has not begun. Looks at token_file, and reads it if it has
  // changed; what was read last counts while it cannot be read, or holds no token.
  void Authorize(grpc::ClientContext* context);

 private:
  explicit Transport(const SecurityOptions& options) : options_(options) {}
  absl::Status ReadToken();

  const SecurityOptions options_;
  std::shared_ptr<grpc::ChannelCredentials> credentials_;

  std::mutex mutex_;
  std::string token_;          // Guarded by mutex_.
  struct stat token_file_ {};  // Of what was read last. Guarded by mutex_.
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_TRANSPORT_H_
