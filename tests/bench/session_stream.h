// One Session stream of the API: what is waiting goes out as one message.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "proto/semaphore/v1/semaphore.grpc.pb.h"
#include "tests/bench/loop.h"

namespace semaphored::bench {

// Told what arrives on a stream, on the loop's thread. Messages are valid only during the call.
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  virtual void OnOpened() = 0;
  virtual void OnResult(const ::semaphore::v1::SessionResult& result, TimePoint now) = 0;
  virtual void OnEvent(const ::semaphore::v1::SessionEvent& event) = 0;
  // The last call. OK only after Close.
  virtual void OnEnded(const grpc::Status& status) = 0;
};

// Not thread-safe: used on the loop's thread. Must not be destroyed between Open and OnEnded.
class SessionStream {
 public:
  SessionStream(Loop* loop, std::shared_ptr<grpc::Channel> channel, SessionHandler* handler);
  ~SessionStream();

  void Open(const std::string& client_id, int64_t ttl_ms);

  // A new command at the end of what is waiting, with its sequence number. The caller fills it in
  // at once; it leaves with the next Flush.
  ::semaphore::v1::SessionCommand* Add();

  // Sends what is waiting, unless a message is still on its way out (then it follows that one).
  // Called by itself after each message that arrives.
  void Flush();

  // Keeps the session alive: a ping, if nothing was sent for a third of the TTL.
  void Tick(TimePoint now);

  // Ends the session cleanly.
  void Close();
  // Breaks the call off.
  void Cancel() { context_.TryCancel(); }

  // Pings that were answered with a validity of more than 0.
  uint64_t pongs() const { return pongs_; }

 private:
  // A message being filled, its memory reused.
  struct Batch;
  class Operation;

  Batch* Tail();
  void OnStarted(bool ok);
  void OnWritten(bool ok);
  void OnRead(bool ok);
  void OnFinished();

  Loop* loop_;
  std::unique_ptr<::semaphore::v1::SemaphoreService::Stub> stub_;
  SessionHandler* handler_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<::semaphore::v1::SessionRequest,
                                                ::semaphore::v1::SessionResponse>>
      stream_;
  std::unique_ptr<Operation> started_, written_, read_, finished_;
  std::deque<std::unique_ptr<Batch>> waiting_;
  std::vector<std::unique_ptr<Batch>> spare_;
  std::unique_ptr<Batch> in_flight_;
  struct Incoming;
  std::unique_ptr<Incoming> incoming_;
  grpc::Status status_;
  uint64_t sequence_ = 0;
  uint64_t pings_ = 0;
  uint64_t pongs_ = 0;
  int64_t ttl_ms_ = 0;
  TimePoint last_sent_;
  bool broken_ = false;
};

}  // namespace semaphored::bench
