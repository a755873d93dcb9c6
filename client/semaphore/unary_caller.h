// Inside the client and semctl: calls that need no session, at the first endpoint that answers.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_UNARY_CALLER_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_UNARY_CALLER_H_

#include <grpcpp/client_context.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/semaphore/transport.h"
#include "proto/semaphore/v1/semaphore.grpc.pb.h"

namespace semaphore {

// All functions may be called by any thread, and block.
class UnaryCaller {
 public:
  // One attempt: makes the call and returns its status. It is repeated with the *same* request, so
  // the request must carry a request id if it changes something.
  using Attempt = std::function<grpc::Status(v1::SemaphoreService::Stub&, grpc::ClientContext*)>;

  // A transport that could not be made: every call ends with its status.
  // REQUIRES: at least one endpoint.
  UnaryCaller(std::vector<std::string> endpoints,
              absl::StatusOr<std::shared_ptr<Transport>> transport,
              std::chrono::milliseconds connect_timeout, bool once = false);

  // Repeats `attempt` while it ends with UNAVAILABLE, at the next endpoint each time and with a
  // pause after each round, until `connect_timeout` has passed since the first attempt, or since an
  // attempt that got as far as to wait; with `once`, for one round. An endpoint gets its share of
  // `connect_timeout` to be connected. `timeout` bounds each attempt from then on; negative: no bound.
  // Stop on `cancel`: CANCELLED.
  absl::Status Call(const Attempt& attempt, std::chrono::milliseconds timeout,
                    const std::stop_token& cancel = {});

 private:
  struct Endpoint {
    std::shared_ptr<grpc::Channel> channel;  // Made when first needed.
    std::shared_ptr<v1::SemaphoreService::Stub> stub;
  };

  Endpoint At(std::size_t index);
  bool AwaitConnection(grpc::Channel& channel, const std::stop_token& cancel) const;

  const std::vector<std::string> endpoints_;
  const absl::StatusOr<std::shared_ptr<Transport>> transport_;
  const std::chrono::milliseconds connect_timeout_;
  const bool once_;

  std::mutex mutex_;
  std::size_t current_ = 0;
  std::vector<Endpoint> made_;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_UNARY_CALLER_H_
