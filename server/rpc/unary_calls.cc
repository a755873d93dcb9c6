// Acquire, Renew, Release and Verify.
#include <string>
#include <utility>

#include "server/rpc/admin_act.h"
#include "server/rpc/call_log.h"
#include "server/rpc/caller.h"
#include "server/rpc/calls.h"
#include "server/rpc/convert.h"
#include "server/rpc/unary_call.h"
#include "server/sessions/refusals.h"

namespace semaphored {
namespace {

class AcquireCall final : public MethodCall<AcquireCall>, public ClaimListener {
 public:
  static constexpr Method kMethod = Method::kAcquire;
  using MethodCall::MethodCall;

  void OnQueued(uint64_t, uint64_t, WaitReason, int64_t) override {}
  void OnGranted(uint64_t, const LeasePtr& lease, const std::string& semaphore,
                 Vouch vouch) override {
    answered_ = true;
    if (!claim_.empty()) sessions()->Detach(claim_);
    pb::AcquireResponse& response = Scratch<pb::AcquireResponse>();
    response.Clear();
    ToProto(*lease, semaphore, vouch.recall, {0, elapsed()}, response.mutable_lease());
    ToProto(vouch, elapsed(), response.mutable_validity());
    Reply(response);
  }
  void OnRefused(uint64_t, Refusal refusal) override {
    answered_ = true;
    UnaryCall::Refuse(refusal);
  }
  void OnRecalled(uint64_t, const Id&, const std::string&, const RecallNotice&) override {}
  void OnEnded(uint64_t, const Id&, const std::string&, EndCause) override {}

 private:
  void Register() override {
    WatchCancel();
    AskFor(&AsyncService::RequestAcquire);
  }

  void Begin() override {
    claim_ = Id{};
    answered_ = false;
    AcquireParams params;
    if (!Understand<pb::AcquireRequest>(&params)) return;
    params.trace = TraceOf(*context());
    if (Problem problem = Admit(caller(), &params)) return Refuse(*problem);
    const Id claim = sessions()->Acquire(std::move(params), this, 0);
    if (!answered_) {
      claim_ = claim;
    } else {
      // Answered within the call: nothing more is to be listened to, if it was granted.
      sessions()->Detach(claim);
    }
  }

  void OnDone(bool cancelled) override {
    if (!cancelled || answered_) return;
    answered_ = true;
    sessions()->Abandon(claim_, /*end_lease=*/false);
    Drop();
  }

  Id claim_;
  bool answered_ = false;
};

class RenewCall final : public MethodCall<RenewCall> {
 public:
  static constexpr Method kMethod = Method::kRenew;
  using MethodCall::MethodCall;

 private:
  void Register() override { AskFor(&AsyncService::RequestRenew); }
  void Begin() override {
    RenewParams params;
    if (!Understand<pb::RenewRequest>(&params)) return;
    if (Problem problem = caller().Check(kHolds, params.semaphore)) return Refuse(*problem);
    if (!caller().MayName(sessions()->OwnerOfClaim(params.claim), params.semaphore))
      return Refuse(NotHeldRefusal(EndCause::kUnknown, params.semaphore));
    const auto reply = [this](Result<RenewAnswer> result) {
      if (!result.ok()) return Refuse(*result.refusal);
      pb::RenewResponse& response = Scratch<pb::RenewResponse>();
      response.Clear();
      const RenewAnswer& answer = result.value;
      const RecallNotice& recall = answer.vouch.recall;
      const LastPing ping{0, elapsed()};
      ToProto(*answer.lease, answer.semaphore, recall, ping, response.mutable_lease());
      ToProto(answer.vouch, elapsed(), response.mutable_validity());
      if (recall.id != 0) ToProto(recall, ping, response.mutable_recall());
      Reply(response);
    };
    params.caller = caller().NameAt(params.semaphore);
    params.tenant = caller().tenant();
    sessions()->Renew(std::move(params), reply);
  }
};

// Answered at the end of the turn: the client that is granted what was released is answered first.
// Others wait for that client, and its next request then does not have to wait until the next
// request of the client that has released is on disk.
class ReleaseCall final : public MethodCall<ReleaseCall>, public Flushable {
 public:
  static constexpr Method kMethod = Method::kRelease;
  using MethodCall::MethodCall;

  void Flush() override { ReplyBytes(std::exchange(answer_, {})); }

 private:
  void Register() override { AskFor(&AsyncService::RequestRelease); }
  void Begin() override {
    ReleaseCommand command;
    if (!Understand<pb::ReleaseRequest>(&command)) return;
    if (Problem problem = caller().Check(kHolds | Verb::kAdminister, command.semaphore))
      return Refuse(*problem);
    if (!caller().MayName(sessions()->OwnerOfClaim(command.claim), command.semaphore))
      return Answer({0, 0, EndCause::kUnknown, {}});
    if (Problem problem = caller().Scope(&command.requester)) return Refuse(*problem);
    command.caller = caller().NameAt(command.semaphore);
    const std::string semaphore = command.semaphore;
    sessions()->Release(std::move(command), [this, semaphore](Result<ReleaseAnswer> result) {
      if (!result.ok()) return Refuse(*result.refusal);
      if (IsAnothers(result.value.owner, caller().name())) Audit(semaphore, result.value.owner);
      Answer(result.value);
    });
  }

  // Only an administrator may end another's lease, which may be hosted by another daemon.
  void Audit(const std::string& semaphore, const std::string& owner) {
    if (environment()->access.audit == nullptr) return;
    AuditEntry entry;
    entry.time_unix_ms = environment()->host->clock().NowUnixMs();
    entry.identity = caller().name();
    entry.peer = caller().Peer();
    entry.act = "release";
    entry.semaphore = semaphore;
    entry.before = "{\"owner\":\"" + owner + "\"}";  // A name needs no escapes.
    environment()->access.audit->Write(AuditLine(entry));
  }

  void Answer(const ReleaseAnswer& answer) {
    pb::ReleaseResponse& response = Scratch<pb::ReleaseResponse>();
    response.Clear();
    ToProto(answer, &response);
    answer_ = Serialize(response);
    environment()->dirty.push_back(this);
  }

  grpc::ByteBuffer answer_;
};

class VerifyCall final : public MethodCall<VerifyCall> {
 public:
  static constexpr Method kMethod = Method::kVerify;
  using MethodCall::MethodCall;

 private:
  void Register() override { AskFor(&AsyncService::RequestVerify); }
  void Begin() override {
    VerifyCommand command;
    if (!Understand<pb::VerifyRequest>(&command)) return;
    if (Problem problem = CheckVerify(caller(), command)) return Refuse(*problem);
    const std::string semaphore = command.semaphore;
    if (!command.claim.empty() &&
        !caller().MayName(sessions()->OwnerOfClaim(command.claim), semaphore)) {
      VerifyAnswer unknown;
      unknown.ended = EndCause::kUnknown;
      return Answer(unknown);
    }
    by_lease_id_ = !command.claim.empty();
    command.caller = caller().NameAt(semaphore);
    sessions()->Verify(std::move(command), [this](Result<VerifyAnswer> result) {
      if (!result.ok()) return Refuse(*result.refusal);
      Answer(result.value);
    });
  }

  void Answer(const VerifyAnswer& answer) {
    pb::VerifyResponse& response = Scratch<pb::VerifyResponse>();
    response.Clear();
    ToProto(answer, elapsed(), &response);
    if (response.has_lease())
      HideSecrets(caller(), *sessions(), by_lease_id_, response.mutable_lease());
    Reply(response);
  }

  bool by_lease_id_ = false;
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptAcquire(Environment* environment) {
  return std::make_unique<Acceptor<AcquireCall>>(environment);
}
std::unique_ptr<AnyAcceptor> AcceptRenew(Environment* environment) {
  return std::make_unique<Acceptor<RenewCall>>(environment);
}
std::unique_ptr<AnyAcceptor> AcceptRelease(Environment* environment) {
  return std::make_unique<Acceptor<ReleaseCall>>(environment);
}
std::unique_ptr<AnyAcceptor> AcceptVerify(Environment* environment) {
  return std::make_unique<Acceptor<VerifyCall>>(environment);
}

}  // namespace semaphored
