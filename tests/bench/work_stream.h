// One Work stream of the API: what is waiting goes out as one message.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "proto/semaphore/v1/semaphore.grpc.pb.h"
#include "tests/bench/loop.h"

namespace semaphored::bench {

// Told what arrives on a stream, on the loop's thread. Messages are valid only during the call.
class WorkHandler {
 public:
  virtual ~WorkHandler() = default;
  virtual void OnOpened() = 0;
  virtual void OnAssigned(const ::semaphore::v1::TicketAssignment& assignment, TimePoint now) = 0;
  virtual void OnResult(const ::semaphore::v1::FinishTicketResult& result, TimePoint now) = 0;
  virtual void OnEvent(const ::semaphore::v1::SessionEvent& event) = 0;
  // The last call. OK only after Close.
  virtual void OnEnded(const grpc::Status& status) = 0;
};

// Not thread-safe: used on the loop's thread. Must not be destroyed between Open and OnEnded.
class WorkStream {
 public:
  WorkStream(Loop* loop, std::shared_ptr<grpc::Channel> channel, WorkHandler* handler);
  ~WorkStream();

  // TTL and client id are filled in.
  void Open(const std::string& client_id, int64_t ttl_ms, ::semaphore::v1::OpenWork open);

  // Says that the ticket is done, with the next Flush; the sequence number.
  uint64_t AddDone(const std::string& lease_id);

  // Sends what is waiting, unless a message is still on its way out (then it follows that one).
  // Called by itself after each message that arrives.
  void Flush();

  // A ping, if nothing was sent for a third of the TTL.
  void Tick(TimePoint now);

  // Ends the session cleanly.
  void Close();
  // Breaks the call off.
  void Cancel() { context_.TryCancel(); }

 private:
  class Operation;

  void OnStarted(bool ok);
  void OnWritten(bool ok);
  void OnRead(bool ok);
  void OnFinished(bool ok);

  Loop* loop_;
  std::unique_ptr<::semaphore::v1::SemaphoreService::Stub> stub_;
  WorkHandler* handler_;
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientAsyncReaderWriter<::semaphore::v1::WorkRequest, ::semaphore::v1::WorkResponse>>
      stream_;
  std::unique_ptr<Operation> started_, written_, read_, finished_;
  ::semaphore::v1::WorkRequest waiting_, in_flight_;
  ::semaphore::v1::WorkResponse incoming_;
  grpc::Status status_;
  uint64_t sequence_ = 0;
  uint64_t pings_ = 0;
  int64_t ttl_ms_ = 0;
  TimePoint last_sent_;
  bool anything_waits_ = false;
  bool writing_ = false;
  bool broken_ = false;
};

}  // namespace semaphored::bench
