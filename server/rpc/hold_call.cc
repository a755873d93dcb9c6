// Hold: a lease that lives by the stream on which it was granted.
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "server/rpc/call_log.h"
#include "server/rpc/caller.h"
#include "server/rpc/calls.h"
#include "server/rpc/convert.h"
#include "server/rpc/server_stream_call.h"
#include "server/rpc/status.h"
#include "server/rpc/validate.h"

namespace semaphored {
namespace {

// However little is vouched for.
constexpr Milliseconds kBeatLeast{100};

class HoldCall final : public ServerStreamCall, public ClaimListener, public ReactorTimer {
 public:
  HoldCall(Environment* environment, Acceptor<HoldCall>* acceptor)
      : ServerStreamCall(environment, Method::kHold), acceptor_(acceptor) {}

  void OnQueued(uint64_t, uint64_t position, WaitReason reason, int64_t expected_wait_ms) override {
    pb::HoldResponse event;
    ToProto(position, reason, expected_wait_ms, event.mutable_queued());
    if (writing()) {
      // Only the latest position is of interest to a reader that is behind.
      queued_ = std::move(event);
    } else {
      Send(event);
    }
  }

  void OnGranted(uint64_t, const LeasePtr& lease, const std::string& semaphore,
                 Vouch vouch) override {
    queued_.reset();
    pb::HoldResponse event;
    ToProto(*lease, semaphore, vouch.recall, {0, elapsed()},
            event.mutable_granted()->mutable_lease());
    ToProto(vouch, elapsed(), event.mutable_granted()->mutable_validity());
    Send(event);
    ArmBeat(vouch);
  }

  void OnRefused(uint64_t, Refusal refusal) override {
    Leave();
    ServerStreamCall::Refuse(refusal);
  }

  void OnRecalled(uint64_t, const Id& claim, const std::string& semaphore,
                  const RecallNotice& recall) override {
    pb::HoldResponse event;
    AppendLeaseId(semaphore, claim, event.mutable_recalled()->mutable_lease_id());
    ToProto(recall, {0, elapsed()}, event.mutable_recalled()->mutable_recall());
    if (writing()) {
      // As of positions, only the latest: no later recall has a longer grace.
      recalled_ = std::move(event);
    } else {
      Send(event);
    }
  }

  void OnEnded(uint64_t, const Id& claim, const std::string& semaphore, EndCause cause) override {
    if (recalled_.has_value()) Send(*recalled_);
    Leave();
    pb::HoldResponse event;
    AppendLeaseId(semaphore, claim, event.mutable_lost()->mutable_lease_id());
    event.mutable_lost()->set_cause(ToProto(cause));
    Send(event);
    End(grpc::Status::OK);
  }

  void OnTimer() override {
    // A client that does not read is not shown alive: the beat, and the sign of life that it stands
    // for, wait until what was sent before has gone.
    if (writing()) {
      beat_due_ = true;
    } else {
      Beat();
    }
  }

 private:
  void Register(QueueEvent* accepted) override {
    grpc::ServerCompletionQueue* queue = environment()->reactor->queue();
    environment()->service->RequestHold(context(), request(), writer(), queue, queue, accepted);
  }

  void Begin() override {
    claim_ = Id{};
    queued_.reset();
    recalled_.reset();
    beat_due_ = false;
    left_ = false;
    pb::HoldRequest message;
    if (!Parse(request(), &message)) {
      return ServerStreamCall::Refuse(Unreadable());
    }
    HoldParams params;
    if (Problem problem = Check(message, limits(), &params))
      return ServerStreamCall::Refuse(*problem);
    if (Problem problem = Admit(caller(), &params.acquire))
      return ServerStreamCall::Refuse(*problem);
    semaphore_ = params.acquire.semaphore;
    params.acquire.trace = TraceOf(*context());
    release_on_disconnect_ = params.release_on_disconnect;
    beat_interval_ = Milliseconds(params.beat_interval_ms);
    claim_ = sessions()->Acquire(std::move(params.acquire), this, 0);
  }

  void OnGone() override {
    if (left_) return;
    Leave();
    sessions()->Abandon(claim_, release_on_disconnect_);
  }

  void OnDrained() override {
    if (queued_.has_value()) {
      Send(*std::exchange(queued_, std::nullopt));
    } else if (recalled_.has_value()) {
      Send(*std::exchange(recalled_, std::nullopt));
    } else if (std::exchange(beat_due_, false)) {
      Beat();
    }
  }

  void Beat() {
    Problem problem = caller().Again();
    if (!problem) problem = caller().Check(Verb::kAcquire, semaphore_);
    if (problem) {
      Leave();
      sessions()->Detach(claim_);
      return ServerStreamCall::Refuse(*problem);
    }
    const SteadyTime::duration before = elapsed();
    const Vouch vouch = sessions()->Touch(claim_);
    if (left_) return;  // The claim has ended meanwhile.
    if (vouch.none()) {
      Leave();
      sessions()->Detach(claim_);
      return ServerStreamCall::Refuse(
          {absl::StatusCode::kUnavailable, Reason::kNotVouched,
           "this daemon cannot vouch for the lease now", "",
           "stop the work when the lease's time is over; Renew it elsewhere before"});
    }
    pb::HoldResponse event;
    ToProto(vouch, before, event.mutable_beat());
    Send(event);
    ArmBeat(vouch);
  }

  // The next comes in time, also where less is vouched for than the TTL.
  void ArmBeat(const Vouch& vouch) {
    Reactor* reactor = environment()->reactor;
    const Milliseconds third = std::max(Milliseconds(vouch.valid_for_ms / 3), kBeatLeast);
    reactor->Arm(this, reactor->event_time() + std::min(beat_interval_, third));
  }

  // Nothing more is heard of the claim.
  void Leave() {
    left_ = true;
    beat_due_ = false;
    queued_.reset();
    recalled_.reset();
    environment()->reactor->Disarm(this);
  }

  void Recycle() override { acceptor_->Recycle(this); }
  void Replace() override { acceptor_->Replace(); }

  Acceptor<HoldCall>* acceptor_;
  Id claim_;
  std::string semaphore_;
  bool release_on_disconnect_ = false;
  bool left_ = false;
  bool beat_due_ = false;
  Milliseconds beat_interval_{0};
  // Of each kind the latest that waits for the reader.
  std::optional<pb::HoldResponse> queued_;
  std::optional<pb::HoldResponse> recalled_;
};

}  // namespace

std::unique_ptr<AnyAcceptor> AcceptHold(Environment* environment) {
  return std::make_unique<Acceptor<HoldCall>>(environment);
}

}  // namespace semaphored
