// What must hold, whatever goes wrong. Looks at the engine's truth at each write that lands, and at
// everything after each event. What is found broken is thrown as a Violation.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/ledger/rules/rules.h"
#include "tests/simulation/count_checks.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/memory_engine.h"
#include "tests/simulation/moment.h"
#include "tests/simulation/ticket_checks.h"
#include "tests/simulation/world.h"

namespace semaphored::simulation {

// A lease as its holder sees it.
struct Belief {
  std::string semaphore;
  std::vector<uint32_t> slots;
  uint64_t token = 0;
  int64_t deadline_us = 0;  // On the holder's own clock.
  uint64_t epoch = 0;
  int64_t recall_us = std::numeric_limits<int64_t>::max();  // It is recalled: its end, likewise.
};

class Believer {
 public:
  virtual ~Believer() = default;
  virtual const std::string& name() const = 0;
  virtual int64_t ClockUs() const = 0;
  virtual const std::map<Id, Belief>& beliefs() const = 0;
};

class Checks {
 public:
  Checks(World* world, MemoryEngine* engine, const Faults* faults);

  TicketChecks& tickets() { return tickets_; }
  CountChecks& counts() { return counts_; }
  void AddBeliever(const Believer* believer) { believers_.push_back(believer); }
  // Acts may end leases that are counted on.
  void LetActsEndLeases() { acts_now_ = true; }

  // Those of all daemons. What they are about is exact where one daemon alone counts.
  void SetLimits(const ledger::Limits& limits, bool exclusive) {
    limits_ = limits;
    exclusive_ = exclusive;
  }

  // ---- what clients report ----
  // The client wants what it asked for with this request; the session's TTL, or the lease's. With
  // the number 0: what it is given as a worker.
  void Wants(const std::string& client_id, uint64_t sequence, int64_t ttl_ms);
  // It does not any more: it was refused, gave back, gave up, or is no more.
  void WantsNoMore(const std::string& client_id, uint64_t sequence);
  void IsGone(const std::string& client_id);
  // Of this client it is not known what it wants.
  void IsImpolite(const std::string& client_id) { impolite_.insert(client_id); }
  // It was told that this request has got this lease.
  void WasGranted(const std::string& client_id, uint64_t sequence, const Id& claim,
                  const Belief& belief);

  // It was told that there is no room for so many permits; it had asked at `since_us`.
  void WasRefused(const std::string& client_id, const std::string& semaphore, uint32_t permits,
                  int64_t since_us);

  // ---- what nodes do ----
  void OnHeartbeat(const NodeStore::Node& node) { heard_us_[node.ref.number] = world_->now(); }
  // Death needs a node TTL of silence.
  void OnDeclaredDead(const NodeStore::Node& node, int64_t node_ttl_ms) const;

  // ---- what is about the engine ----
  // Another client of it has taken or returned permits.
  void OnForeign(const std::string& name);
  // Whether the rows of a requester that a daemon has forgotten may go. Throws if the daemon must not
  // have forgotten it: as it alone writes to an exclusive engine, it knows how long the requester was silent.
  bool MayForget(const ledger::Transaction& transaction, uint32_t client, bool exclusive,
                 int64_t retention_ms);

  // ---- when ----
  void OnLanded(const ledger::Transaction& transaction,
                const std::map<std::string, StoredSemaphore>& before);
  void AfterEvent();
  // All faults have ended long ago and everybody has finished: nothing may be left.
  void AtTheEnd();

 private:
  struct Wish {
    int64_t ttl_ms = 0;
    int64_t until_us = 0;    // INT64_MAX while it is wanted.
    Id claim;                // Of the one effect; empty: none yet.
    int64_t granted_us = 0;  // In the engine; 0: not yet.
    bool told = false;
  };
  using Request = std::pair<std::string, uint64_t>;

  void CheckLimit(const ledger::Transaction& transaction, const ledger::SemaphoreDelta& delta,
                  const StoredSemaphore* before, const StoredSemaphore* after);
  void CheckSlots(const std::string& name, const StoredSemaphore& semaphore);
  void CheckTokens(const ledger::SemaphoreDelta& delta);
  // Of one semaphore in one commit: under what each grant was made.
  struct GrantScene {
    const ledger::SemaphoreDelta* delta = nullptr;
    const StoredSemaphore* before = nullptr;  // nullptr: it is new.
    const StoredSemaphore* after = nullptr;
    uint32_t limit = 0;       // The lower one, if the commit has changed it.
    std::set<Id> queued_now;  // Waiters that came with this commit.
  };
  void CheckLimits(const ledger::SemaphoreDelta& delta, const StoredSemaphore* before,
                   const StoredSemaphore& after) const;
  void CheckTotals() const;
  void CheckFiling(const ledger::SemaphoreDelta& delta, const StoredSemaphore* before,
                   const StoredSemaphore& after) const;
  void CheckOrder(const ledger::SemaphoreDelta& delta, const StoredSemaphore* before,
                  const StoredSemaphore& after) const;
  void CheckGrant(const GrantScene& scene, const Lease& lease, const Moment& moment) const;
  bool IsLeaving(const Waiter& waiter) const;
  bool HasLeft(const StoredSemaphore* before, const Waiter& waiter) const;
  uint32_t Servable(const StoredSemaphore& semaphore, std::string* who) const;
  void CheckForeign(const ledger::SemaphoreDelta& delta, const StoredSemaphore* before,
                    const StoredSemaphore* after) const;
  // `claims`: claims were changed on the way.
  void NoteRoom(const std::string& name, const StoredSemaphore* after, bool claims);
  void CheckOneEffect(const ledger::SemaphoreDelta& delta);
  void CheckRequests(const ledger::Transaction& transaction);
  void CheckInvariants(const ledger::Transaction& transaction);
  void CheckBeliefs();
  bool EndedByForce(EndCause cause) const;
  void CheckWaiters();
  void CheckOwners();
  Request RequestOf(const Claim& claim) const;
  [[noreturn]] void Fail(const std::string& what) const { throw Violation{what}; }

  World* world_;
  MemoryEngine* engine_;
  const Faults* faults_;
  ledger::Limits limits_;
  bool exclusive_ = false;
  TicketChecks tickets_;
  CountChecks counts_;
  std::vector<const Believer*> believers_;
  bool acts_now_ = false;
  std::map<Request, Wish> wishes_;
  std::map<std::pair<std::string, uint32_t>, uint64_t> highest_token_;  // By semaphore and slot.
  std::set<Request> accepted_;
  std::map<std::string, int64_t> used_at_us_;  // By client: when a request of it last landed.
  std::set<std::string> impolite_;
  std::map<Id, EndCause> ends_;
  // How many permits a newcomer could have got, from when on; the last changes of each semaphore.
  std::map<std::string, std::deque<std::pair<int64_t, uint32_t>>> room_;
  std::map<std::string, int64_t> servable_since_us_;
  std::map<uint32_t, int64_t> heard_us_;  // By node: when its counter last rose.
  int64_t looked_at_us_ = 0;
  uint64_t landed_ = 0;
};

}  // namespace semaphored::simulation
