// Short ways to write tickets and offers in tests of the Postgres store.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/adapters/postgres/fixture.h"

namespace semaphored::postgres {

// Queued, for the payload that Put gives it. Its id is MakeId(number), its order that too unless it
// is given.
inline std::shared_ptr<Ticket> MakeTicket(uint64_t number, uint64_t order = 0) {
  auto ticket = std::make_shared<Ticket>();
  ticket->id = MakeId(number);
  ticket->order = order == 0 ? number : order;
  ticket->content_type = "text/plain";
  ticket->payload_bytes = 7;
  ticket->enqueued_at_unix_ms = 1000;
  return ticket;
}

inline TicketPtr WithAttempt(const Ticket& ticket, uint32_t attempt) {
  auto changed = std::make_shared<Ticket>(ticket);
  changed->attempt = attempt;
  return changed;
}

inline TicketPtr Delayed(const Ticket& ticket, const NodeRef& host, int64_t delay_ms) {
  auto delayed = std::make_shared<Ticket>(ticket);
  delayed->state = TicketState::kDelayed;
  delayed->delay_ms = delay_ms;
  delayed->host = host;
  ++delayed->delays;
  return delayed;
}

// With its next attempt.
inline TicketPtr Assigned(const Ticket& ticket, const Id& lease) {
  auto assigned = std::make_shared<Ticket>(ticket);
  assigned->state = TicketState::kAssigned;
  assigned->lease = lease;
  ++assigned->attempt;
  return assigned;
}

// Its order is `number`. Without a session: detached.
inline WaiterPtr MakeOffer(const OpenStore& open, uint64_t number, const Id& session = Id()) {
  auto offer = std::make_shared<Waiter>();
  offer->id = MakeId(number);
  offer->session = session.empty() ? offer->id : session;
  offer->host = open.self;
  offer->ttl_ms = 1000;
  offer->holder = "worker";
  offer->order = number;
  offer->works = true;
  return offer;
}

inline void Add(ledger::SemaphoreDelta* delta, const TicketPtr& ticket, std::string payload) {
  auto bytes = std::make_shared<const std::string>(std::move(payload));
  delta->tickets.push_back({nullptr, ticket, bytes});
}

// In one commit that must win, each with "payload".
inline void Put(OpenStore& open, const std::string& semaphore,
                const std::vector<TicketPtr>& tickets) {
  ledger::Transaction transaction = Begin(open);
  ledger::SemaphoreDelta& delta = Touch(transaction, LoadOne(open, semaphore).row);
  for (const TicketPtr& ticket : tickets) Add(&delta, ticket, "payload");
  const ledger::CommitResult result = open.Commit(transaction);
  if (result.kind != ledger::CommitResult::Kind::kWon)
    throw std::runtime_error("not put: " + result.status.ToString());
}

// Null: there is none.
inline TicketPtr FindTicket(const ledger::LoadedSemaphore& loaded, uint64_t number) {
  for (const TicketPtr& ticket : loaded.tickets) {
    if (ticket->id == MakeId(number)) return ticket;
  }
  return nullptr;
}

inline PayloadPtr PayloadOf(OpenStore& open, uint64_t number) {
  const ledger::LedgerStore::TicketAt asked[] = {{"s", MakeId(number)}};
  return open.store->ReadPayloads(asked).value().at(0);
}

}  // namespace semaphored::postgres
