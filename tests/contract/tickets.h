// Short forms of what is asked of tickets, for the cases about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/contract/world.h"

namespace semaphored::contract {

using Result = FinishCommand::Result;

// What is enqueued.
struct Job {
  std::string payload = "work";
  int32_t priority = 0;
  uint32_t limit = 0;
  bool adopt_limit = false;
  bool must_exist = false;
  int64_t delay_ms = 0;
  uint32_t max_attempts = 0;
  BackOff back_off = {};
  std::string content_type = "text/plain";
  std::string trace = {};
  std::string client = {};
  uint64_t sequence = 0;
};

// Who offers to work.
struct Worker {
  OfferKept keep = OfferKept::kNo;
  std::string holder = "worker";
  Id session = {};  // Empty: detached.
  int64_t ttl_ms = 30'000;
};

// Commands about one semaphore, sent to one daemon.
class Tickets {
 public:
  Tickets(World* world, Daemon* daemon, std::string semaphore = "s")
      : world_(world), daemon_(daemon), semaphore_(std::move(semaphore)) {}

  EnqueueCommand MakeEnqueue(Job job) const;
  TakeCommand MakeTake(Worker worker) const;
  FinishCommand MakeFinish(const Id& claim, Result result = Result::kDone) const;

  Outcome Enqueue(Job job = {}) const { return daemon_->Do(MakeEnqueue(std::move(job))); }
  Outcome Take(Worker worker = {}) const { return daemon_->Do(MakeTake(std::move(worker))); }
  Outcome Finish(const Id& claim, Result result = Result::kDone, std::string reason = "",
                 std::optional<int64_t> retry_after_ms = {}) const;
  Outcome Ripen(const Id& ticket, uint32_t delay) const {
    return daemon_->Do(RipenCommand{semaphore_, ticket, delay});
  }

  // The same, where only one outcome will do: anything else fails the case.
  Id Put(Job job = {}) const;                // The ticket.
  TicketInfo Show(const Id& ticket) const;   // It is there, with its payload.
  TicketInfo Get(Worker worker = {}) const;  // One is assigned; ticket->lease is the claim.
  Id Offer(Worker worker = {.keep = OfferKept::kAlways}) const;  // It stands. The claim.
  void Done(const Id& claim) const;

  bool Has(const Id& ticket) const;
  TicketCounts Counts() const { return daemon_->Describe(semaphore_, 0).tickets; }
  // Ids by age.
  std::vector<Id> List(std::vector<TicketState> states = {}) const;
  // Tickets as they are given out one after the other, by Get and Done.
  std::vector<Id> Drain() const;

 private:
  World* world_;
  Daemon* daemon_;
  std::string semaphore_;
};

// False: this engine keeps none, which is checked by a case of its own.
bool KeepsTickets(World& world);

// The event that gives a ticket to this offer; nullptr: there is none.
const SeenEvent* AssignmentOf(const std::vector<SeenEvent>& events, const Id& offer);

}  // namespace semaphored::contract
