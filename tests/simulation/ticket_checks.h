// What must hold of tickets, whatever goes wrong: each is where something has put it that may, and
// nothing else. Part of Checks.
//
// Every change of a ticket that lands in the engine has to follow from the ticket as it was last
// seen, and to have one of these causes in the same write:
//   it comes            the answer to an Enqueue
//   it is assigned      a lease that names it is granted, with the next attempt
//   its lease ends      the worker's word, which its client has given for this very lease; or a put
//                       back; or an end from without
//   its delay is over   after that delay, never sooner
//   an administrator    cancel, purge, requeue, prioritise, a destroy by force
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/faults.h"
#include "tests/simulation/memory_engine.h"
#include "tests/simulation/world.h"

namespace semaphored::simulation {

class TicketChecks {
 public:
  // What a worker was told.
  struct Told {
    Id claim;
    Id ticket;
    std::string semaphore;
    std::vector<uint32_t> slots;
    uint64_t token = 0;
    uint32_t attempt = 0;
    std::string payload;
  };

  TicketChecks(World* world, MemoryEngine* engine) : world_(world), engine_(engine) {}

  // ---- what clients report ----
  // Before it is asked for the first time; the payload is PayloadOf the request.
  void Enqueues(const std::string& client_id, const EnqueueCommand& command);
  void WasEnqueued(const std::string& client_id, uint64_t sequence, const Id& ticket);
  void Administers(const std::string& client_id, const AdminCommand& command);
  void WasAssigned(const std::string& client_id, const Told& told);
  // The worker's work takes effect at its target, while the worker counts on its lease. False: the
  // target has it already.
  bool TakesEffect(const std::string& client_id, const Told& told);
  // Its worker has lost the lease, though it still stands: the daemon cannot read the
  // semaphore. The session's next daemon can, and may assign the ticket again under the same lease.
  void MayComeAgain(const Told& told) { effects_.erase({told.ticket, told.token}); }
  // Before it is said for the first time.
  void Says(const Id& claim, FinishCommand::Result result);

  static std::string PayloadOf(const std::string& client_id, uint64_t sequence);

  // ---- when ----
  void OnLanded(const ledger::Transaction& transaction,
                const std::map<std::string, StoredSemaphore>& before);
  // Now and then.
  void Look(const Faults& faults);
  // The engine has dropped all rows of its requests.
  void IsForgotten(const std::string& client_id);
  void AtTheEnd();

  // In the engine, without dead letters.
  size_t living() const;
  uint64_t done() const { return done_; }
  // Some ticket that was once at this semaphore; empty: there was none.
  Id AnyTicket(const std::string& semaphore);

 private:
  using Request = std::pair<std::string, uint64_t>;
  struct Known {
    std::string semaphore;
    Request request;
    Ticket now;            // As it was last seen.
    int64_t since_us = 0;  // Since when it is so.
    bool gone = false;
  };
  struct Attempt {
    Id ticket;
    std::string holder;
    uint64_t token = 0;
    bool told = false;
    bool said = false;
    FinishCommand::Result result = FinishCommand::Result::kDone;
  };
  // Of one write and one semaphore: what it was about.
  struct Causes {
    std::map<Id, Request> enqueued;         // By ticket.
    std::map<Id, std::string> finished;     // By lease: the client whose word it was.
    std::vector<const AdminCommand*> acts;  // On this semaphore.
    std::map<Id, const Lease*> granted;     // By lease.
    std::map<Id, EndCause> ended;           // By lease.
    bool goes_on_destroying = false;        // By force, since an earlier commit.
    // Here, or since an earlier commit. Only a semaphore that is destroyed by force has tickets.
    bool destroyed() const;
  };

  Causes CausesOf(const ledger::Transaction& transaction,
                  const ledger::SemaphoreDelta& delta) const;
  void CheckChange(const ledger::SemaphoreDelta& delta, const ledger::TicketChange& change,
                   const Causes& causes);
  // Each: empty, or what is wrong.
  std::string NewTicket(const Ticket& after, const Causes& causes) const;
  std::string Assigned(const Ticket& before, const Ticket& after, const Causes& causes);
  std::string LeaseEnded(const Ticket& before, const Ticket* after, const Causes& causes) const;
  std::string Finished(const Ticket& before, const Ticket* after, const Attempt& attempt) const;
  std::string Returned(const Ticket& before, const Ticket& after, EndCause cause) const;
  std::string Ripened(const Known& known, const Ticket& after) const;
  std::string Removed(const Ticket& before, const Causes& causes) const;
  std::string Moved(const Ticket& before, const Ticket& after, const Causes& causes) const;
  void CheckForm(const std::string& name, const Ticket& ticket) const;
  void CheckOrder(const ledger::SemaphoreDelta& delta, const StoredSemaphore& before,
                  const StoredSemaphore& after) const;
  [[noreturn]] void Fail(const std::string& what) const { throw Violation{what}; }

  World* world_;
  MemoryEngine* engine_;
  std::map<Request, EnqueueCommand> asked_;
  std::map<Request, Id> ticket_of_;
  std::map<Request, AdminCommand> acts_;
  std::map<Request, std::set<Id>> tickets_of_;  // More than one if its requester was forgotten.
  std::map<Id, Known> tickets_;
  std::map<Id, Attempt> attempts_;  // By lease.
  std::map<std::string, std::vector<Id>> by_semaphore_;
  std::map<std::pair<std::string, uint32_t>, uint64_t> target_;  // Highest token, by slot.
  std::set<std::pair<Id, uint64_t>> effects_;                    // Ticket and token.
  std::set<Id> in_effect_;                                       // Tickets.
  uint64_t done_ = 0;
};

}  // namespace semaphored::simulation
