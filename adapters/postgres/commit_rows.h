// What a commit brings, as arguments of commit_1 (schema_1.sql). For each of its types there is a
// function that writes a row, column for column in the order of the type; a unit test compares the
// names with the database's own description.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/ledger/state/transaction.h"
#include "adapters/postgres/array.h"
#include "adapters/postgres/connection.h"

namespace semaphored::postgres {

// The arguments of commit_1 that are arrays, by their names, and the payloads.
class CommitRows {
 public:
  struct Argument {
    const char* name = "";
    Array rows;
  };

 private:
  std::deque<Argument> all_;  // Before those that stand in it.

 public:
  CommitRows() = default;
  CommitRows(const CommitRows&) = delete;
  CommitRows& operator=(const CommitRows&) = delete;

  Array& hosts = Add("hosts");
  Array& semaphores_touched = Add("semaphores_touched");
  Array& semaphores_made = Add("semaphores_made");
  Array& semaphores_written = Add("semaphores_written");
  Array& semaphores_destroyed = Add("semaphores_destroyed");
  Array& semaphores_read = Add("semaphores_read");
  Array& session_epochs = Add("session_epochs");
  Array& sessions_before = Add("sessions_before");
  Array& sessions_gone = Add("sessions_gone");
  Array& sessions_written = Add("sessions_written");
  Array& requests_absent = Add("requests_absent");
  Array& requests_new = Add("requests_new");
  Array& requests_changed = Add("requests_changed");
  Array& requests_gone = Add("requests_gone");
  Array& request_floors = Add("request_floors");
  Array& clients_forgotten = Add("clients_forgotten");
  Array& leases_ended = Add("leases_ended");
  Array& leases_changed = Add("leases_changed");
  Array& leases_granted = Add("leases_granted");
  Array& waiters_gone = Add("waiters_gone");
  Array& waiters_new = Add("waiters_new");
  Array& tickets_gone = Add("tickets_gone");
  Array& tickets_changed = Add("tickets_changed");
  Array& tickets_new = Add("tickets_new");
  Array& notices = Add("notices");
  std::string payloads;  // Of tickets_new, one after the other.

  const std::deque<Argument>& all() const { return all_; }
  // Appends them all; nothing may be added after.
  void Take(Arguments* arguments);

 private:
  Array& Add(const char* name) { return all_.emplace_back(Argument{name, {}}).rows; }
};

// The statement that calls it, for the schema "semaphored", with the arguments of CommitPlace first.
std::string CommitSql();

// Of what was before.
struct EndedLease {
  const Lease& lease;
  const Slots& slots;  // Those that are given back.
  EndCause cause = EndCause::kNone;
  bool history = false;
  int64_t ended_at_unix_ms = 0;  // 0: now, by the database's clock.
};

// semaphore_touch, semaphore_start, semaphore_row, semaphore_revision
void AddTouch(std::string_view name, uint64_t revision, uint64_t next_order, Array* rows);
void AddStart(std::string_view name, uint64_t next_order, bool passing, Array* rows);
void AddSemaphore(const SemaphoreRow& row, Array* rows);
void AddRevision(std::string_view name, uint64_t revision, Array* rows);

// session_epoch, session_before, session_row
void AddEpoch(const ledger::EpochCondition& condition, Array* rows);
// As it is in the database; epoch 0: it is not there.
void AddBefore(const Id& id, uint32_t epoch, const NodeRef& host, Array* rows);
void AddSession(const Session& row, std::string_view client_id, Array* rows);

// request_key, request_row, request_change, request_floor
void AddKey(std::string_view client_id, uint64_t sequence, Array* rows);
void AddRequest(const ledger::RequestRow& row, std::string_view client_id, Array* rows);
void AddRequestChange(const ledger::RequestRow& row, std::string_view client_id, Array* rows);
void AddFloor(std::string_view client_id, uint64_t below, Array* rows);

// lease_end, lease_change, lease_grant
void AddEnd(std::string_view semaphore, const EndedLease& ended, Array* rows);
void AddLeaseChange(std::string_view semaphore, const Lease& after, Array* rows);
// cause kNone: it stands.
void AddGrant(std::string_view semaphore, const Lease& lease, std::string_view client_id,
              EndCause cause, int64_t ended_at_unix_ms, Array* rows);

// waiter_place, waiter_row
void AddWaiterPlace(std::string_view semaphore, const Waiter& waiter, Array* rows);
void AddWaiter(std::string_view semaphore, const Waiter& row, std::string_view client_id,
               Array* rows);

// ticket_place, ticket_change, ticket_row. `revision`: by which it became as it is; 0: only the
// database will know.
void AddTicketPlace(std::string_view semaphore, const Ticket& ticket, Array* rows);
// reasons nullopt: as they are.
void AddTicketChange(std::string_view semaphore, const Ticket& after, uint64_t revision,
                     const std::optional<std::string>& reasons, Array* rows);
void AddTicket(std::string_view semaphore, const Ticket& row, uint64_t revision,
               const PayloadPtr& payload, CommitRows* commit);

// notice
void AddNotice(uint32_t node, std::string_view message, std::string_view details, Array* rows);

}  // namespace semaphored::postgres
