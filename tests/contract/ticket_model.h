// What a semaphore with tickets is, said once more and as plainly as can be: lists that are
// searched from end to end. Each claim is for one permit. It shares no code with the rules.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "adapters/adapter.h"

namespace semaphored::contract {

class TicketModel {
 public:
  struct Ticket {
    Id id;
    int32_t priority = 0;
    uint64_t order = 0;
    TicketState state = TicketState::kQueued;
    uint32_t attempt = 0;
    uint32_t max_attempts = 0;
    uint32_t delays = 0;
    Id lease;
  };
  struct Waiting {
    Id claim;
    int32_t priority = 0;
    uint64_t order = 0;
  };

  explicit TicketModel(uint32_t limit) : limit_(limit) {}

  // Each carries out a command, and says what the adapter must answer.
  OutcomeKind Acquire(const Id& claim, int32_t priority, bool wait);
  OutcomeKind Release(const Id& claim);
  OutcomeKind End(const Id& claim);
  OutcomeKind Enqueue(const Id& id, int32_t priority, bool delayed, uint32_t max_attempts);
  OutcomeKind Take(const Id& claim, OfferKept keep);
  // Of kFailed: with a delay or without.
  OutcomeKind Finish(const Id& claim, FinishCommand::Result result, bool delayed);
  OutcomeKind Ripen(const Id& id, uint32_t delay);
  OutcomeKind Cancel(const Id& id, bool force);
  OutcomeKind Prioritize(const Id& id, int32_t priority);
  OutcomeKind Requeue(const Id& id);  // Empty: all.
  OutcomeKind Purge(const Id& id);    // Empty: all.
  void Resize(uint32_t limit);
  void Pause(bool paused);

  uint32_t limit() const { return limit_; }
  bool paused() const { return paused_; }
  // In no order.
  const std::vector<Ticket>& tickets() const { return tickets_; }
  const std::vector<Id>& holdings() const { return holdings_; }
  // The next one first.
  const std::vector<Waiting>& waiters() const { return waiters_; }
  const std::vector<Id>& offers() const { return offers_; }
  TicketCounts Counts() const;

  // Claims that waited, or offered, and were granted since, in order.
  std::vector<Id> TakeGranted() { return std::exchange(granted_, {}); }

 private:
  // The next to be served; nullptr: nobody.
  Ticket* NextTicket();
  Ticket* Find(const Id& id);
  Ticket* FindByLease(const Id& claim);
  bool Holds(const Id& claim) const;
  bool Forget(std::vector<Id>* ids, const Id& id);
  void Assign(Ticket* ticket, const Id& claim);
  void GiveBack(Ticket* ticket);
  void Serve();

  uint32_t limit_;
  bool paused_ = false;
  uint64_t next_order_ = 1;
  std::vector<Ticket> tickets_;
  std::vector<Id> holdings_;
  std::vector<Waiting> waiters_;
  std::vector<Id> offers_;
  std::vector<Id> granted_;
};

}  // namespace semaphored::contract
