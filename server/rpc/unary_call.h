// What all unary calls have in common: one object serves one call after another.
//
//   Request() → gRPC reports a call → Begin() → Reply() or Refuse(), once → the answer has left
//             → back to the acceptor
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string>

#include "server/base/reason.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/call_count.h"
#include "server/rpc/environment.h"
#include "server/rpc/status.h"
#include "server/rpc/unread_answers.h"
#include "server/rpc/validate.h"
#include "server/rpc/wire.h"

namespace semaphored {

class UnaryCall : public QueueEvent, public UnreadAnswer {
 public:
  UnaryCall(Environment* environment, Method method) : environment_(environment), method_(method) {}
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;

  void Request();
  void OnEvent(bool ok) final;

  size_t place = 0;  // The acceptor's.

 protected:
  ~UnaryCall() = default;

  // Asks the service for a call of its method.
  virtual void Register() = 0;
  // A call is here: its bytes are in request().
  virtual void Begin() = 0;
  // No event of the call is outstanding any more.
  virtual void Recycle() = 0;
  // Another object is to be asked for.
  virtual void Replace() = 0;
  // With WatchCancel(): the client has gone, or the call has ended. Once.
  virtual void OnDone(bool /*cancelled*/) {}
  // To be called by Register() before the service is asked.
  void WatchCancel();

  template <typename Message>
  void Reply(const Message& message) {
    ReplyBytes(Serialize(message));
  }
  void ReplyBytes(const grpc::ByteBuffer& bytes);
  void Refuse(const Refusal& refusal);
  // Without an answer: only once OnDone(true) has been called.
  void Drop();

  Environment* environment() { return environment_; }
  // Known, when Begin is called.
  const Caller& caller() const { return caller_; }
  Sessions* sessions() { return environment_->sessions; }
  const RequestLimits& limits() const { return environment_->limits.requests; }
  grpc::ServerContext* context() { return &*context_; }
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>* writer() { return &*writer_; }
  grpc::ByteBuffer* request() { return &request_; }
  SteadyTime::duration elapsed() const { return environment_->reactor->event_time() - arrived_; }

 private:
  enum class Stage : uint8_t { kAskedFor, kServing, kSending, kSent };

  void Send(const grpc::ByteBuffer& bytes, const grpc::Status& status);
  void OnDoneEvent(bool ok);
  void OnUnread() final;
  std::string Peer() const final;
  void MaybeEnd();

  Environment* environment_;
  const Method method_;
  Stage stage_ = Stage::kAskedFor;
  bool done_awaited_ = false;
  SteadyTime arrived_{};
  CallCount count_;
  Caller caller_;
  grpc::ByteBuffer request_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>> writer_;
  MemberEvent<UnaryCall, &UnaryCall::OnDoneEvent> done_{this};
};

// One scratch message of each kind serves all calls: each is filled, used and left within one
// event.
template <typename Message>
Message& Scratch() {
  static thread_local Message message;
  return message;
}

// Derived: with a static constexpr Method kMethod. The part of UnaryCall that has to know the class
// of the call and the types of its messages.
template <typename Derived>
class MethodCall : public UnaryCall {
 public:
  MethodCall(Environment* environment, Acceptor<Derived>* acceptor)
      : UnaryCall(environment, Derived::kMethod), acceptor_(acceptor) {}

 protected:
  void Recycle() final { acceptor_->Recycle(static_cast<Derived*>(this)); }
  void Replace() final { acceptor_->Replace(); }

  template <typename Method>
  void AskFor(Method method) {
    grpc::ServerCompletionQueue* queue = environment()->reactor->queue();
    (environment()->service->*method)(context(), request(), writer(), queue, queue, this);
  }

  // Parses and checks; if that fails the call has been refused.
  template <typename Request, typename Params>
  bool Understand(Params* params) {
    Request& message = Scratch<Request>();
    if (!Parse(request(), &message)) {
      Refuse(Unreadable());
      return false;
    }
    if (Problem problem = Check(message, limits(), params)) {
      Refuse(*problem);
      return false;
    }
    return true;
  }

 private:
  Acceptor<Derived>* acceptor_;
};

}  // namespace semaphored
