// Administer: one administrative act on one semaphore, or a question about it.
#include <string>
#include <utility>

#include "server/service/call_log.h"
#include "server/service/calls.h"
#include "server/service/convert.h"
#include "server/service/method_call.h"

namespace semaphored {
namespace {

class AdministerCall final : public MethodCall<AdministerCall> {
 public:
  static constexpr Method kMethod = Method::kAdminister;
  using MethodCall::MethodCall;

 private:
  void Register() override { AskFor(&AsyncService::RequestAdminister); }

  void Begin() override {
    AdminParams params;
    if (!Understand<pb::AdministerRequest>(&params)) return;
    const pb::AdministerRequest& message = Scratch<pb::AdministerRequest>();
    const auto* act = message.GetDescriptor()->FindFieldByNumber(message.act_case());
    act_ = act != nullptr ? act->name() : "";
    semaphore_ = params.command.semaphore;
    auto reply = [this](Result<AdminAnswer> result) { Answer(std::move(result)); };
    switch (params.kind) {
      case AdminParams::Kind::kAct:
        return sessions()->Administer(std::move(params.command), params.wait_ms, reply);
      case AdminParams::Kind::kDrain:
        return sessions()->Drain(std::move(params.command), params.held_max, params.wait_ms, reply);
      case AdminParams::Kind::kList:
        return sessions()->List(std::move(params.list), reply);
      case AdminParams::Kind::kHistory:
        return sessions()->History(std::move(params.history), reply);
    }
  }

  void Answer(Result<AdminAnswer> result) {
    if (!result.ok()) return Refuse(*result.refusal);
    if (result.value.changed) LogAct(act_, semaphore_, *context());
    // Not a scratch message: it may be large, and would keep its memory.
    pb::AdministerResponse response;
    ToProto(result.value, &response);
    Reply(response);
  }

  std::string act_;
  std::string semaphore_;
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptAdminister(Environment* environment) {
  return std::make_unique<Acceptor<AdministerCall>>(environment);
}

}  // namespace semaphored
