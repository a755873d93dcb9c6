#include "tests/unit/adapters/ledger/support.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace semaphored::ledger {
namespace {

std::string ClaimText(const Claim& claim) {
  return absl::StrCat(claim.id.Hex(), " session ", claim.session.Hex(), " request ",
                      claim.request.client, ":", claim.request.sequence, " host ",
                      claim.host.number, ".", claim.host.incarnation, " epoch ", claim.epoch,
                      " permits ", claim.permits, " priority ", claim.priority, " ttl ",
                      claim.ttl_ms, " order ", claim.order, " holder ", claim.holder);
}

std::string LeaseText(const Lease& lease) {
  return absl::StrCat(ClaimText(lease), " slots ", absl::StrJoin(lease.slots, ","), " token ",
                      lease.token, " granted ", lease.granted_at_unix_ms, " recall ",
                      static_cast<int>(lease.recall.reason), "/", lease.recall.grace_ms,
                      " foreign ", lease.foreign, " ticket ", lease.ticket.Hex(), "/",
                      lease.attempt);
}

std::string TicketText(const Ticket& ticket) {
  std::string text =
      absl::StrCat(ticket.id.Hex(), " state ", static_cast<int>(ticket.state), " priority ",
                   ticket.priority, " order ", ticket.order, " attempt ", ticket.attempt, "/",
                   ticket.max_attempts, " delay ", ticket.delay_ms, " number ", ticket.delays,
                   " host ", ticket.host.number, " lease ", ticket.lease.Hex());
  for (const TicketReason& reason : ticket.reasons)
    absl::StrAppend(&text, " because ", reason.attempt, " ", reason.text);
  return text;
}

std::string RowText(const SemaphoreRow& row) {
  const Settings& settings = row.settings;
  return absl::StrCat(row.name, " limit ", row.limit, " settings ", settings.backfill, ",",
                      settings.longest_hold_ms, ",", settings.recall_grace_ms, ",",
                      settings.permits_per_holder, ",", settings.waiters_max, " paused ",
                      row.paused, " destroying ", row.destroying, " next ", row.next_order,
                      " revision ", row.revision, " created ", row.created_at_unix_ms,
                      " made on use ", row.made_on_use);
}

void AppendSemaphore(const Semaphore& semaphore, std::string* text) {
  absl::StrAppend(text, RowText(semaphore.row), " held ", semaphore.held, "\n");
  std::map<Id, LeasePtr> leases(semaphore.leases.begin(), semaphore.leases.end());
  for (const auto& [id, lease] : leases) {
    absl::StrAppend(text, "  lease ", LeaseText(*lease), "\n");
    for (const uint32_t slot : lease->slots) {
      absl::StrAppend(text, "    slot ", slot, " of ", semaphore.slots.At(slot).Hex(), "\n");
    }
  }
  absl::StrAppend(text, "  free ", absl::StrJoin(semaphore.slots.LowestFree(5), ","), "\n");
  for (const auto& [place, waiter] : semaphore.queue) {
    absl::StrAppend(text, "  waiter ", semaphore.PositionOf(*waiter), " ", ClaimText(*waiter),
                    "\n");
  }
  for (const auto& [place, offer] : semaphore.offers) {
    absl::StrAppend(text, "  offer ", semaphore.PositionOf(*offer), " ", ClaimText(*offer), "\n");
  }
  for (const auto& [place, ticket] : semaphore.eligible) {
    absl::StrAppend(text, "  eligible ", semaphore.PositionOf(*ticket), " ", ticket->id.Hex(),
                    "\n");
  }
  std::map<Id, TicketPtr> tickets(semaphore.tickets.begin(), semaphore.tickets.end());
  for (const auto& [id, ticket] : tickets)
    absl::StrAppend(text, "  ticket ", TicketText(*ticket), "\n");
  const TicketCounts& counts = semaphore.ticket_counts;
  absl::StrAppend(text, "  tickets ", counts.queued, " ", counts.delayed, " ", counts.assigned, " ",
                  counts.dead, "\n");
  std::map<std::string, uint32_t> held_by(semaphore.held_by.begin(), semaphore.held_by.end());
  for (const auto& [holder, permits] : held_by)
    absl::StrAppend(text, "  by ", holder, " ", permits, "\n");
}

void Rise(LeasePtr lease, uint64_t* tokens) {
  if (lease && lease->token == 0) lease->token = ++*tokens;
}

}  // namespace

SemaphoreRow MakeRow(const std::string& name, uint32_t limit) {
  SemaphoreRow row;
  row.name = name;
  row.limit = limit;
  return row;
}

LeasePtr MakeLease(uint64_t id, Slots slots, const std::string& holder) {
  auto lease = std::make_shared<Lease>();
  lease->id = MakeId(id);
  lease->session = lease->id;
  lease->permits = static_cast<uint32_t>(slots.size());
  lease->slots = std::move(slots);
  lease->holder = holder;
  return lease;
}

WaiterPtr MakeWaiter(uint64_t id, int32_t priority, uint64_t order, uint32_t permits) {
  auto waiter = std::make_shared<Waiter>();
  waiter->id = MakeId(id);
  waiter->session = waiter->id;
  waiter->priority = priority;
  waiter->order = order;
  waiter->permits = permits;
  return waiter;
}

AcquireCommand AcquireOf(const std::string& semaphore, uint64_t id, uint32_t permits, bool wait) {
  AcquireCommand command;
  command.semaphore = semaphore;
  command.claim = MakeId(id);
  command.session = command.claim;
  command.permits = permits;
  command.wait = wait;
  command.holder = "h";
  return command;
}

ReleaseCommand ReleaseOf(const std::string& semaphore, uint64_t id, Slots slots) {
  ReleaseCommand command;
  command.semaphore = semaphore;
  command.claim = MakeId(id);
  command.slots = std::move(slots);
  return command;
}

AdminCommand AdminOf(const std::string& semaphore, decltype(AdminCommand::act) act) {
  AdminCommand command;
  command.semaphore = semaphore;
  command.act = std::move(act);
  return command;
}

std::string Picture(const LedgerState& state) {
  std::string text =
      absl::StrCat(state.semaphore_count(), " semaphores, ", state.lease_count(), " leases, ",
                   state.waiter_count(), " waiters, ", state.ticket_count(), " tickets, ",
                   state.session_count(), " sessions\n");
  for (const auto& [name, semaphore] : state) AppendSemaphore(*semaphore, &text);
  std::map<Id, SessionPtr> sessions(state.sessions().begin(), state.sessions().end());
  for (const auto& [id, session] : sessions) {
    absl::StrAppend(&text, "session ", id.Hex(), " host ", session->host.number, ".",
                    session->host.incarnation, " epoch ", session->epoch, " ttl ", session->ttl_ms,
                    "\n");
    std::vector<std::string> claims;
    for (const auto& [claim, semaphore] : state.ClaimsOf(id)) {
      claims.push_back(absl::StrCat("  claim ", claim.Hex(), " of ", semaphore->row.name, "\n"));
    }
    std::ranges::sort(claims);
    absl::StrAppend(&text, absl::StrJoin(claims, ""));
  }
  return text;
}

void Bench::Win() {
  editor->Finish();
  for (const SemaphoreDelta& delta : transaction.semaphores) {
    for (const LeaseChange& change : delta.leases) Rise(change.after, &tokens_);
    Semaphore* semaphore = state.Find(delta.name);
    if (semaphore != nullptr)
      semaphore->row.revision = (delta.before ? delta.before->revision : 0) + 1;
  }
  transaction = {};
  editor = std::make_unique<Editor>(&state, &transaction);
}

void Bench::Lose() {
  editor->Finish();
  Revert(transaction, &state);
  transaction = {};
  editor = std::make_unique<Editor>(&state, &transaction);
}

}  // namespace semaphored::ledger
