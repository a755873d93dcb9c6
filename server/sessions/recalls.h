// The recalls of leases that this daemon hosts. A lease that is recalled is ended by the daemon that hosts it, and by no
// other: it knows for how long the client may count on the lease. Single-threaded (the reactor's).
#pragma once

#include <functional>

#include "server/base/timers.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/records.h"
#include "server/sessions/sessions.h"

namespace semaphored {

// Of one lease a later recall has a shorter grace, or it is none: see IsRecalledBy of the ledger's rules.
inline uint64_t RecallIdOf(const Recall& recall) {
  return (static_cast<uint64_t>(recall.grace_ms) << 8) | static_cast<uint64_t>(recall.reason);
}

class Recalls {
 public:
  // Ends a lease in the engine.
  using End = std::function<void(ClaimRecord* record, EndCause cause)>;

  // All pointers outlive it.
  Recalls(SessionsHost* host, Timers* timers, const ClaimBook* claims, End end)
      : host_(host), timers_(timers), claims_(claims), end_(std::move(end)) {}

  // Starts the grace of its lease's recall, if one is pending whose grace ends sooner than what it has. Sets the timer
  // (TimerKind::kRecall, with the claim's id) of its end.
  void Arm(ClaimRecord* record) {
    if (record->lease != nullptr && record->lease->recall.pending()) ArmPending(record);
  }
  // Another daemon has hosted the lease meanwhile: forgets its recall here, so that the grace begins again.
  static void Forget(ClaimRecord* record);
  // The client has acknowledged this recall: the lease ends with the grace. Ignored if it is not the latest recall.
  void Acknowledge(ClaimRecord* record, uint64_t recall);
  // False: a timer kRecall for this time has nothing to do.
  static bool IsArmedFor(const ClaimRecord& record, SteadyTime at) {
    return record.recall.armed_for == at;
  }
  // When the timer kRecall is due: ends the lease, if the time is over.
  void OnOver(ClaimRecord* record);

  // The lease was granted, or found: sets the timer of its longest hold (TimerKind::kLongestHold), if it has one.
  void ArmLongestHold(const ClaimRecord& record);
  // When that timer is due: recalls the lease, unless it is recalled.
  void OnLongestHold(const ClaimRecord& record);
  // Recalls the lease in the engine. If the command is not carried out, the timer `again` is set for the claim.
  void Submit(const ClaimRecord& record, Recall recall, TimerKind again);

 private:
  SteadyTime Now() const { return host_->clock().Now(); }
  void ArmPending(ClaimRecord* record);
  void ArmEnd(ClaimRecord* record);

  SessionsHost* host_;
  Timers* timers_;
  const ClaimBook* claims_;
  End end_;
};

}  // namespace semaphored
