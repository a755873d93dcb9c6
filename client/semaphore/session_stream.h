// Inside the client: one Session stream of gRPC, and the thread that serves such streams. They know
// no rules; see session_machine.h for those.
//
// A completion queue of our own, not gRPC's callbacks: where gRPC has no background poller
// (Debian's has none), the last channel of a process joins the threads of the callbacks, and
// deadlocks with a callback that opens the next channel.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_SESSION_STREAM_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_SESSION_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "client/semaphore/transport.h"
#include "proto/semaphore/v1/semaphore.grpc.pb.h"

namespace semaphore {

class SessionStream;

// Called on the StreamLoop's thread. Must not block.
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  virtual void OnStreamMessage(SessionStream* stream, const v1::SessionResponse& message) = 0;
  // The message has left request(), and the next may be written.
  virtual void OnStreamWritten(SessionStream* stream) = 0;
  // The last call, exactly once for each stream that was started. `status` may be OK.
  virtual void OnStreamEnd(std::shared_ptr<SessionStream> stream, const absl::Status& status) = 0;
};

// A completion queue and its thread.
class StreamLoop {
 public:
  StreamLoop();
  StreamLoop(const StreamLoop&) = delete;
  StreamLoop& operator=(const StreamLoop&) = delete;

  grpc::CompletionQueue* queue() { return &queue_; }

  bool IsCurrentThread() const { return thread_id_ == std::this_thread::get_id(); }

  // Ends the thread. REQUIRES: called once, on another thread; all streams have ended.
  void Stop();

 private:
  void Run();

  grpc::CompletionQueue queue_;
  std::thread thread_;
  const std::thread::id thread_id_ = thread_.get_id();
};

// Keeps itself and its listener alive from Start() until OnStreamEnd has returned.
class SessionStream final : public std::enable_shared_from_this<SessionStream> {
 public:
  // Opens a connection of its own, so that a broken one is never used again. Does not block.
  // `loop` must outlive the stream.
  static std::shared_ptr<SessionStream> Create(const std::string& endpoint, Transport& transport,
                                               StreamLoop& loop,
                                               std::shared_ptr<StreamListener> listener);

  // Call once, before Write().
  void Start();
  // The message to be written; the caller fills it while no write is under way.
  v1::SessionRequest* request() { return &request_; }
  // Writes request(). REQUIRES: OnStreamWritten was called for the write before it. Does nothing
  // if the stream has ended.
  void Write();
  // OnStreamEnd follows soon. Any thread, any time after Create().
  void Cancel() { context_.TryCancel(); }

 private:
  friend class StreamLoop;
  enum class Step { kStart, kRead, kWrite, kFinish };
  // What the completion queue gives back.
  struct Tag {
    SessionStream* stream;
    Step step;
  };

  SessionStream(const std::string& endpoint, Transport& transport, StreamLoop& loop,
                std::shared_ptr<StreamListener> listener);

  void OnStep(Step step, bool ok);
  void OnStarted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void FinishLocked();
  void EndIfDone();

  grpc::ClientContext context_;
  const std::unique_ptr<v1::SemaphoreService::Stub> stub_;
  StreamLoop& loop_;
  std::shared_ptr<StreamListener> listener_;
  std::shared_ptr<SessionStream> self_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::SessionRequest, v1::SessionResponse>> call_;
  v1::SessionRequest request_;
  v1::SessionResponse response_;
  grpc::Status status_;
  Tag start_{this, Step::kStart};
  Tag read_{this, Step::kRead};
  Tag write_{this, Step::kWrite};
  Tag finish_{this, Step::kFinish};

  std::mutex mutex_;
  bool started_ = false;
  bool write_wanted_ = false;  // Write() came before the call was started
  bool writing_ = false;
  bool finishing_ = false;
  bool finished_ = false;
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_SESSION_STREAM_H_
