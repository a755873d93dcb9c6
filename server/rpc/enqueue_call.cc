// Enqueue: puts a ticket into a semaphore's queue.
#include <string>
#include <utility>

#include "server/rpc/calls.h"
#include "server/rpc/convert.h"
#include "server/rpc/unary_call.h"

namespace semaphored {
namespace {

class EnqueueCall final : public MethodCall<EnqueueCall> {
 public:
  static constexpr Method kMethod = Method::kEnqueue;
  using MethodCall::MethodCall;

 private:
  void Register() override { AskFor(&AsyncService::RequestEnqueue); }

  void Begin() override {
    EnqueueCommand command;
    if (!Understand<pb::EnqueueRequest>(&command)) return;
    if (Problem problem = caller().Check(Verb::kWork, command.semaphore)) return Refuse(*problem);
    if (Problem problem = caller().Scope(&command.requester)) return Refuse(*problem);
    command.must_exist = !caller().MayCreate(Verb::kWork, command.semaphore);
    caller().Own(&command);
    if (command.trace.empty()) command.trace = TraceOfCall();
    sessions()->Enqueue(std::move(command), [this](Result<EnqueueAnswer> result) {
      if (!result.ok()) return Refuse(*result.refusal);
      pb::EnqueueResponse& response = Scratch<pb::EnqueueResponse>();
      response.Clear();
      response.set_ticket_id(result.value.ticket.Hex());
      response.set_position(result.value.position);
      Reply(response);
    });
  }

  // The worker's part belongs to the same trace as the call. A value that is not a traceparent is
  // ignored: it is no reason to refuse the call.
  std::string TraceOfCall() {
    const auto& metadata = context()->client_metadata();
    const auto found = metadata.find("traceparent");
    if (found == metadata.end()) return "";
    const std::string_view text(found->second.data(), found->second.size());
    return IsTraceparent(text) ? std::string(text) : "";
  }
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptEnqueue(Environment* environment) {
  return std::make_unique<Acceptor<EnqueueCall>>(environment);
}

}  // namespace semaphored
