// The tickets of the sessions that work: makes the offers that their Workers decide on, assigns the tickets that meet
// them, and carries out the results that the sessions report. An offer is a claim of its session (ClaimRecord::offers)
// that becomes the lease of its ticket.
//
// A ticket that its worker cannot take is put back, and that does not count as an attempt. What fails is tried again by a
// sweep, which also looks for tickets that no lane has reported.
//
// Single-threaded (the reactor's).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/btree_set.h"
#include "server/base/timers.h"
#include "server/figures/semaphore_metrics.h"
#include "server/sessions/claim_book.h"
#include "server/sessions/lease_log.h"
#include "server/sessions/lists.h"
#include "server/sessions/recalls.h"
#include "server/sessions/session_book.h"
#include "server/sessions/sessions.h"
#include "server/sessions/vouching.h"
#include "server/sessions/worker_index.h"

namespace semaphored {

class WorkDesk {
 public:
  // What it works with. All of it outlives the desk.
  struct Parts {
    SessionsHost* host;
    Timers* timers;
    Lists* lists;
    ClaimBook* claims;
    SessionBook* sessions;
    const Vouching* vouching;
    Recalls* recalls;
    SemaphoreMetrics* metrics;
    LeaseLog* lease_log;
  };
  struct Actions {
    // Ends the claim in the engine, if it still waits there.
    std::function<void(ClaimRecord* record)> end_wait;
    // Forgets the claim, by its Worker's OnGone too. Removes its record.
    std::function<void(ClaimRecord* record)> drop;
  };

  // sweep_ms: how often it looks for tickets that no lane has reported, while a session works.
  WorkDesk(Parts parts, int64_t sweep_ms, Actions actions)
      : parts_(parts), sweep_ms_(sweep_ms), actions_(std::move(actions)) {}

  // ---- sessions ----
  // The session's stream, which is open, works. Hands it the tickets that the session has, and makes offers.
  void Start(SessionRecord* record, const WorkParams& work);
  // The stream has ended, or works no longer: ends its offers. Its tickets keep their leases. Without effect on a session
  // that does not work.
  void Stop(SessionRecord* record);
  // Before a session is closed: ends its offers, and puts all its tickets back. The order within each lane does it: an offer
  // that is given a ticket before it is ended has that put back after.
  void PutAllBack(SessionRecord* record);
  // As in Sessions.
  void Enqueue(EnqueueCommand command, Reply<EnqueueAnswer> reply);
  void SetTicketsMax(const Id& session, uint32_t tickets_max);
  void FinishIn(const Id& session, FinishCommand command, Reply<FinishAnswer> reply);
  size_t workers() const;

  // ---- offers and their tickets ----
  // Null: it is no offer, or its session does not work.
  static Worker* WorkerOf(const ClaimRecord& record);
  // An offer has become the lease of a ticket. `payload`: null if it is empty or was not read. Twice does no harm.
  void OnAssigned(ClaimRecord* record, LeasePtr lease, TicketPtr ticket, PayloadPtr payload);
  // A lane reports a ticket for an offer that has no record. Puts the ticket back, and reports nothing to the worker. Either
  // the session's last host made the offer before it knew that the session had left; or the lease was reported, has ended
  // and is forgotten, and another lane reports it late. Which of the two it is, the engine knows.
  void OnStrayTicket(const Event& event);
  // The offer has ended without a ticket. Removes its record.
  void DropOffer(ClaimRecord* record);
  // The lease of its ticket has ended: reports that to the worker, unless the worker has ended it. Removes its record.
  void EndAssignment(ClaimRecord* record, EndCause cause);
  // The worker does not take the ticket. Tried again, by the sweep, until it is done.
  void PutBack(ClaimRecord* record);

  // ---- where there is work ----
  // There are tickets at this semaphore, which may be new.
  void OnTicketsAt(const std::string& semaphore);
  // When the timer kWork is due.
  void Sweep();

  // The daemon ends: nothing more is offered, assigned or put back.
  void Shutdown() { stopping_ = true; }

 private:
  SteadyTime Now() const { return parts_.host->clock().Now(); }
  void Submit(const std::string& semaphore, Command command, Completion done);
  Id Offer(const Id& session, const std::string& semaphore, OfferKept keep);
  void OnOfferOutcome(const Id& id, absl::StatusOr<Outcome> outcome);
  void Fill(const Id& session);
  // Tells the worker of its ticket, unless nothing may be vouched for now.
  void TellAssigned(ClaimRecord* record, PayloadPtr payload);
  // Reads the payload first.
  void TellAssignedLater(ClaimRecord* record);

  void ArmSweep();
  // Assigns the tickets that could not be sent to the worker before, and lets it try again.
  void SweepWorker(SessionRecord* record);
  void LookUp(const std::string& prefix, const std::string& after);
  void OnLookedUp(const std::string& prefix, const Report& report);

  const Parts parts_;
  const int64_t sweep_ms_;
  const Actions actions_;
  WorkerIndex index_;                        // May name some that have ended.
  absl::btree_set<std::string> looking_up_;  // Prefixes.
  absl::btree_set<Id> to_put_back_;          // Claims for which that has failed.
  bool armed_ = false;
  bool stopping_ = false;
};

}  // namespace semaphored
