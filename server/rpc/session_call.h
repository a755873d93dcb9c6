// Session: many leases over one stream. The mechanics of the stream are those of stream_call.h; what its commands mean
// is here.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/stream_call.h"

namespace semaphored {

class SessionCall final
    : public StreamCall<pb::SessionRequest, pb::SessionResponse, pb::SessionCommand> {
 public:
  SessionCall(Environment* environment, Acceptor<SessionCall>* acceptor);

  // ---- called by Sessions ----
  void OnQueued(uint64_t tag, uint64_t position, WaitReason reason,
                int64_t expected_wait_ms) override;
  void OnGranted(uint64_t tag, const LeasePtr& lease, const std::string& semaphore,
                 Vouch vouch) override;
  void OnRefused(uint64_t tag, Refusal refusal) override;
  void OnEnded(uint64_t tag, const Id& claim, const std::string& semaphore,
               EndCause cause) override;

 private:
  void Register(QueueEvent* accepted) override;
  Problem Admit(OpenParams* params) override;
  void HandleCommand(pb::SessionCommand& command) override;
  bool client_is_behind() const override;
  void OnTurnOver() override { released_.clear(); }
  void Recycle() override { acceptor_->Recycle(this); }
  void Replace() override { acceptor_->Replace(); }

  void HandleAcquire(uint64_t sequence, pb::SessionAcquire& command);
  void HandleRelease(uint64_t sequence, pb::SessionRelease& command);
  void HandleVerify(uint64_t sequence, pb::VerifyRequest& command);
  pb::SessionResult* AddResult(uint64_t sequence, size_t bytes = 0);
  void AddError(uint64_t sequence, const Refusal& refusal);

  Acceptor<SessionCall>* acceptor_;
  // Leases that commands of this stream have released in this turn: their ends are not reported to it.
  absl::flat_hash_set<Id> released_;
  std::string holder_;
};

}  // namespace semaphored
