// Inside the client: one Session stream of gRPC. It knows no rules; see session_machine.h for
// those.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_SESSION_STREAM_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_SESSION_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "proto/semaphore/v1/semaphore.grpc.pb.h"

namespace semaphore {

class SessionStream;

// Called on threads of gRPC, one call at a time for OnStreamMessage, and nothing after OnStreamEnd.
// Must not block.
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  virtual void OnStreamMessage(SessionStream* stream, const v1::SessionResponse& message) = 0;
  // The message has left request(), and the next may be written.
  virtual void OnStreamWritten(SessionStream* stream) = 0;
  // Called exactly once for each stream that was started. `status` may be OK. The last reference to
  // `stream` must be let go on a thread that is not gRPC's: with it goes a channel, and where gRPC
  // polls on threads of its callbacks (Debian's does), the last channel of the process joins them.
  virtual void OnStreamEnd(std::shared_ptr<SessionStream> stream, const absl::Status& status) = 0;
};

// Keeps itself and its listener alive from Start() until OnStreamEnd has returned.
class SessionStream final : public grpc::ClientBidiReactor<v1::SessionRequest, v1::SessionResponse>,
                            public std::enable_shared_from_this<SessionStream> {
 public:
  // Opens a connection of its own, so that a broken one is never used again. Does not block.
  static std::shared_ptr<SessionStream> Create(const std::string& endpoint,
                                               std::shared_ptr<StreamListener> listener);

  // Call once, before Write().
  void Start();
  // The message to be written; the caller fills it while no write is under way.
  v1::SessionRequest* request() { return &request_; }
  // Writes request(). REQUIRES: the write before it was told by OnStreamWritten. Does nothing if
  // the stream has ended.
  void Write();
  // OnStreamEnd follows soon. Any thread, any time after Start().
  void Cancel() { context_.TryCancel(); }

 private:
  SessionStream(const std::string& endpoint, std::shared_ptr<StreamListener> listener);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  grpc::ClientContext context_;
  const std::unique_ptr<v1::SemaphoreService::Stub> stub_;
  std::shared_ptr<StreamListener> listener_;
  std::shared_ptr<SessionStream> self_;
  v1::SessionRequest request_;
  v1::SessionResponse response_;

  // The hold that lets us write from outside the reactions is given back once reading has failed
  // and no write is under way.
  std::mutex mutex_;
  bool ended_ = false;
  bool writing_ = false;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_SESSION_STREAM_H_
