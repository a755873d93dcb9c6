// Leases that move here from another session, or from a detached call: see Move. Single-threaded (the reactor's).
#pragma once

#include <cstddef>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/records.h"

namespace semaphored {

class Moves {
 public:
  // Both outlive it.
  Moves(const Clock* clock, const ClaimBook* claims) : clock_(clock), claims_(claims) {}

  // The record's lease moves, until `over_at`. False, without effect: it moves already.
  bool Begin(ClaimRecord* record, SteadyTime over_at);
  // The request that the lease moves for, instead of a former one. REQUIRES: it moves.
  void SetRequester(ClaimRecord* record, Requester requester);
  // The move has ended, or the record is being removed. Without effect if it does not move.
  void End(ClaimRecord* record);
  // If the command is a repeat of a request whose lease moves, of the same owner: says so in it.
  void FillIn(const ClaimRecord& record, AcquireCommand* command) const;
  // The latest end of a move of the session's claims. SteadyTime::min(): none of them moves.
  SteadyTime OverAt(const SessionRecord& session) const;
  // The answer to the request while the lease moves. REQUIRES: it moves.
  Refusal RefusalOf(const ClaimRecord& record) const;

 private:
  void ForgetRequester(const ClaimRecord& record);

  const Clock* clock_;
  const ClaimBook* claims_;
  // By client id and sequence number of the request.
  absl::flat_hash_map<Requester, Id> by_requester_;
  size_t count_ = 0;  // Records with `move`.
};

}  // namespace semaphored
