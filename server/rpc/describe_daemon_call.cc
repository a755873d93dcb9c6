// DescribeDaemon: what this daemon is, and how it reaches its engine.
#include <string>
#include <utility>

#include "server/base/version.h"
#include "server/rpc/calls.h"
#include "server/rpc/convert.h"
#include "server/rpc/status.h"
#include "server/rpc/unary_call.h"

namespace semaphored {
namespace {

// A name that no client needs: whether it exists makes no difference.
constexpr char kProbed[] = "semaphored/probe";

bool IsOfEngine(Reason reason) {
  return reason == Reason::kEngineUnavailable || reason == Reason::kEngineCorrupt ||
         reason == Reason::kEngineFull || reason == Reason::kNotVouched;
}

class DescribeDaemonCall final : public MethodCall<DescribeDaemonCall> {
 public:
  static constexpr Method kMethod = Method::kDescribeDaemon;
  using MethodCall::MethodCall;

 private:
  void Register() override { AskFor(&AsyncService::RequestDescribeDaemon); }

  void Begin() override {
    pb::DescribeDaemonRequest& request = Scratch<pb::DescribeDaemonRequest>();
    if (!Parse(this->request(), &request)) return Refuse(Unreadable());
    if (!request.probe_engine()) return Answer(nullptr);
    // As a resource would ask: every engine is read for it, and nothing is written.
    VerifyCommand command;
    command.semaphore = kProbed;
    command.slot = 1;
    command.token = 1;
    command.caller = caller().NameAt(kProbed);
    began_ = clock().Now();
    sessions()->Verify(std::move(command), [this](Result<VerifyAnswer> result) {
      pb::EngineProbe probe;
      probe.set_latency_us(Microseconds(clock().Now() - began_));
      if (!result.ok() && IsOfEngine(result.refusal->reason))
        ToProto(*result.refusal, environment()->adapter, probe.mutable_error());
      Answer(&probe);
    });
  }

  void Answer(const pb::EngineProbe* probe) {
    pb::DescribeDaemonResponse& response = Scratch<pb::DescribeDaemonResponse>();
    response.Clear();
    response.set_version(kVersion);
    response.set_node_id(environment()->node_id);
    response.set_instance(environment()->instance);
    response.set_engine(environment()->adapter);
    response.set_shared_engine(!environment()->host->guarantees().exclusive);
    AddRights(&response);
    if (probe != nullptr) *response.mutable_probe() = *probe;
    response.set_in_touch(environment()->host->vouch_until() > clock().Now());
    SetTime(clock().NowUnixMs(), &response, &pb::DescribeDaemonResponse::mutable_time);
    response.set_steady_us(Microseconds(clock().Now().time_since_epoch()));
    Reply(response);
  }

  void AddRights(pb::DescribeDaemonResponse* response) const {
    const Identity* identity = caller().identity();
    if (identity == nullptr) return;
    response->set_identity(identity->name());
    for (const Rule& rule : identity->rules()) {
      pb::AccessRule& allowed = *response->add_rules();
      allowed.mutable_prefixes()->Assign(rule.prefixes.begin(), rule.prefixes.end());
      for (std::string& verb : rule.verbs.Words()) allowed.add_verbs(std::move(verb));
      allowed.set_create(rule.create);
    }
  }

  const Clock& clock() { return environment()->reactor->clock(); }
  static uint64_t Microseconds(SteadyTime::duration time) {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(time).count());
  }

  SteadyTime began_{};
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptDescribeDaemon(Environment* environment) {
  return std::make_unique<Acceptor<DescribeDaemonCall>>(environment);
}

}  // namespace semaphored
