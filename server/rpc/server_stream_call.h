// What the calls with one request and a stream of answers have in common.
//
//   Request() → gRPC reports a call → Begin() → Send()… → End(), once → all has left
//             → back to the acceptor
//
// One message is on its way at a time; the others wait here.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <optional>

#include "server/base/reason.h"
#include "server/rpc/call_count.h"
#include "server/rpc/environment.h"
#include "server/rpc/wire.h"

namespace semaphored {

class ServerStreamCall {
 public:
  ServerStreamCall(Environment* environment, Method method)
      : environment_(environment), method_(method) {}
  ServerStreamCall(const ServerStreamCall&) = delete;
  ServerStreamCall& operator=(const ServerStreamCall&) = delete;

  void Request();

  size_t place = 0;  // The acceptor's.

 protected:
  ~ServerStreamCall() = default;

  // Asks the service for a call of its method.
  virtual void Register(QueueEvent* accepted) = 0;
  virtual void Begin() = 0;
  // The client has gone before End() was called; nothing can be sent, and End() need not be called.
  virtual void OnGone() = 0;
  // Everything that was sent is on its way, and End() has not been called.
  virtual void OnDrained() {}
  // waiting_bytes() has changed.
  virtual void OnWaiting() {}
  virtual void Recycle() = 0;
  virtual void Replace() = 0;

  template <typename Message>
  void Send(const Message& message) {
    Enqueue(Serialize(message));
  }
  // What waits is still sent first.
  void End(grpc::Status status);
  void Refuse(const Refusal& refusal);
  // What waits is not sent.
  void Discard() {
    waiting_.clear();
    waiting_bytes_ = 0;
    OnWaiting();
  }

  // A message is on its way whose end is not known yet.
  bool writing() const { return writing_; }
  size_t waiting() const { return waiting_.size(); }
  size_t waiting_bytes() const { return waiting_bytes_; }
  // Messages that went on their way.
  size_t sent() const { return sent_; }

  Environment* environment() { return environment_; }
  // Known, when Begin is called.
  Caller& caller() { return caller_; }
  Sessions* sessions() { return environment_->sessions; }
  const RequestLimits& limits() const { return environment_->limits.requests; }
  grpc::ServerContext* context() { return &*context_; }
  grpc::ServerAsyncWriter<grpc::ByteBuffer>* writer() { return &*writer_; }
  grpc::ByteBuffer* request() { return &request_; }
  SteadyTime::duration elapsed() const { return environment_->reactor->event_time() - arrived_; }

 private:
  enum class Stage : uint8_t { kAskedFor, kServing, kEnding, kFinishing, kOver };

  void OnAccepted(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnDoneEvent(bool ok);
  void OnUnread();
  void Enqueue(grpc::ByteBuffer bytes);
  void Pump();
  void MaybeRecycle();

  Environment* environment_;
  const Method method_;
  Stage stage_ = Stage::kAskedFor;
  bool writing_ = false;
  bool broken_ = false;
  bool done_awaited_ = false;
  SteadyTime arrived_{};
  size_t sent_ = 0;
  CallCount count_;
  Caller caller_;
  std::deque<grpc::ByteBuffer> waiting_;
  size_t waiting_bytes_ = 0;
  grpc::Status status_;
  grpc::ByteBuffer request_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncWriter<grpc::ByteBuffer>> writer_;
  MemberEvent<ServerStreamCall, &ServerStreamCall::OnAccepted> accepted_{this};
  MemberEvent<ServerStreamCall, &ServerStreamCall::OnWritten> written_{this};
  MemberEvent<ServerStreamCall, &ServerStreamCall::OnFinished> finished_{this};
  MemberEvent<ServerStreamCall, &ServerStreamCall::OnDoneEvent> done_{this};
  MemberTimer<ServerStreamCall, &ServerStreamCall::OnUnread> unread_{this};
};

}  // namespace semaphored
