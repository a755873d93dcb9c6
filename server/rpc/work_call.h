// Work: a worker's stream, on which it is given tickets and says what has become of them. The mechanics of the stream
// are those of stream_call.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/rpc/acceptor.h"
#include "server/rpc/stream_call.h"

namespace semaphored {

class WorkCall final : public StreamCall<pb::WorkRequest, pb::WorkResponse, pb::FinishTicket> {
 public:
  WorkCall(Environment* environment, Acceptor<WorkCall>* acceptor);

  // ---- called by Sessions ----
  // It acquires nothing by itself.
  void OnQueued(uint64_t, uint64_t, WaitReason, int64_t) override {}
  void OnGranted(uint64_t, const LeasePtr&, const std::string&, Vouch) override {}
  void OnRefused(uint64_t, Refusal) override {}
  void OnAssigned(const Assignment& assignment) override;

 private:
  void Register(QueueEvent* accepted) override;
  // What the worker names, and its hands, against rules and quotas.
  Problem Admit(OpenParams* params) override;
  Problem CheckAgain() override;
  Problem BeforeCommands(const pb::WorkRequest& message) override;
  void HandleCommand(pb::FinishTicket& finished) override;
  bool client_is_behind() const override;
  void OnOver() override;
  void Recycle() override { acceptor_->Recycle(this); }
  void Replace() override { acceptor_->Replace(); }

  void AddResult(uint64_t sequence, const Refusal* refusal, const FinishAnswer& answer);

  Acceptor<WorkCall>* acceptor_;
  ChargePtr charge_;
  std::shared_ptr<const WorkParams> work_;
};

}  // namespace semaphored
