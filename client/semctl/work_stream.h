// One Work stream of gRPC, with a thread that reads and one that writes; knows no rules.
#ifndef SEMAPHORED_CLIENT_SEMCTL_WORK_STREAM_H_
#define SEMAPHORED_CLIENT_SEMCTL_WORK_STREAM_H_

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "client/semaphore/transport.h"
#include "client/semctl/mailbox.h"
#include "proto/semaphore/v1/semaphore.grpc.pb.h"

namespace semaphore::semctl {

// Used by one thread, on which the mailbox is delivered; so are the callbacks run, and none of them
// after the stream is destroyed.
class WorkStream {
 public:
  struct Callbacks {
    std::function<void(const v1::WorkResponse&)> on_message;
    std::function<void()> on_written;
    // The last call.
    std::function<void(const absl::Status&)> on_end;
  };

  // Opens a connection of its own, so that a broken one is never used again. Does not block. The
  // mailbox outlives it.
  WorkStream(const std::string& endpoint, Transport& transport, Mailbox* mailbox,
             Callbacks callbacks);
  // Cancels it, and waits until the threads have ended, which is soon.
  ~WorkStream();
  WorkStream(const WorkStream&) = delete;
  WorkStream& operator=(const WorkStream&) = delete;

  // False: the message before is still on its way.
  bool writable() const { return !writing_; }
  // REQUIRES: writable(). on_written follows, or on_end.
  void Write(v1::WorkRequest message);

 private:
  // Shared with what has been posted: null in it when the stream is gone.
  using Self = std::shared_ptr<WorkStream*>;

  void Read();
  void WriteLoop();

  Mailbox* const mailbox_;
  const Callbacks callbacks_;
  const Self self_ = std::make_shared<WorkStream*>(this);
  bool writing_ = false;
  grpc::ClientContext context_;
  const std::unique_ptr<v1::SemaphoreService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkRequest, v1::WorkResponse>> call_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::WorkRequest> outgoing_;  // Guarded by mutex_.
  bool ended_ = false;                       // Guarded by mutex_.
  std::thread reader_;
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_WORK_STREAM_H_
