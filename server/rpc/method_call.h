// A unary call of one method.
#pragma once

#include "server/rpc/acceptor.h"
#include "server/rpc/status.h"
#include "server/rpc/unary_call.h"
#include "server/rpc/validate.h"

namespace semaphored {

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
