// Writes one transaction at a time: first the rows, inside the database's transaction, noting what
// the store's index will have to learn; then, once that has won, the index. Used by SqliteStore
// alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/sqlite/store.h"

namespace semaphored::sqlite {

// Prepared once.
struct SqliteStore::Statements {
  Statement add_semaphore, set_semaphore, remove_semaphore;
  Statement add_revision, set_revision, remove_revision;
  Statement add_lease, set_lease, remove_lease;
  Statement add_waiter, set_waiter, remove_waiter;
  Statement add_ticket, set_ticket, remove_ticket;
  Statement add_payload, get_payload, remove_payload;
  Statement add_session, set_session, remove_session;
  Statement add_client, remove_client;
  Statement add_requests, get_requests, cut_requests;
  Statement add_history, get_history, cut_history;
  Statement set_meta;
};

class SqliteStore::Writer {
 public:
  // All are the store's.
  Writer(const Database* database, Statements* statements, const Index* index,
         const RequestLog* requests, const HistoryLog* history)
      : database_(*database),
        statements_(*statements),
        index_(*index),
        requests_(*requests),
        history_(*history) {}

  // Writes all rows, and sets the tokens of the leases granted. Ends in
  //   OK; ABORTED: a condition does not hold, stale() says where; anything else: it cannot be
  //   written.
  // REQUIRES: a transaction is open. After an error it must be rolled back, and Forget called.
  absl::Status WriteRows(ledger::Transaction& transaction);
  const std::vector<std::string>& stale() const { return stale_; }

  // The rows did not come to stay: takes the tokens back.
  void Forget();
  // They did: brings the index and the logs up to them.
  void Learn(ledger::Transaction& transaction, Index* index, RequestLog* requests,
             HistoryLog* history);

 private:
  absl::Status WriteSemaphore(ledger::SemaphoreDelta& delta);
  absl::Status AddSemaphore(ledger::SemaphoreDelta& delta, uint32_t number);
  absl::Status RemoveSemaphore(const ledger::SemaphoreDelta& delta, uint32_t number);
  absl::Status WriteLeases(uint32_t semaphore, const std::vector<ledger::LeaseChange>& changes);
  absl::Status WriteWaiters(uint32_t semaphore, const std::vector<ledger::WaiterChange>& changes);
  absl::Status AddWaitersLeft(uint32_t semaphore);
  absl::Status WriteTickets(uint32_t semaphore, const std::vector<ledger::TicketChange>& changes);
  // A ticket as the transaction leaves it.
  struct PendingTicket {
    const Ticket* before = nullptr;  // Null: it was not there.
    const Ticket* after = nullptr;   // Null: it is not there any more.
    const std::string* payload = nullptr;
  };
  absl::Status AddTicket(uint32_t semaphore, const PendingTicket& pending);
  absl::Status ChangeTicket(uint32_t semaphore, const PendingTicket& pending);
  absl::Status WriteSessions(const std::vector<ledger::SessionChange>& changes);
  absl::Status CheckEpochs(const ledger::Transaction& transaction);
  absl::Status WriteClients(const ledger::Transaction& transaction);
  absl::Status WriteRequests(const ledger::Transaction& transaction);
  static void LearnRequests(const ledger::Transaction& transaction, RequestLog* requests);
  absl::Status MoveRequests(RequestLog::Range range);
  absl::Status WriteHistory(const std::vector<HistoryRow>& rows);
  absl::Status WriteMeta();

  void Begin();
  // The statement has been bound; `doing` completes "cannot …".
  absl::Status Run(Statement& statement, absl::string_view doing);
  // The same, and it must change exactly one row.
  absl::Status RunOnOne(Statement& statement, absl::string_view doing);
  // ABORTED. `semaphore` is the one to load again, if it is about one.
  absl::Status Lost(const std::string& semaphore, absl::string_view why);

  const Database& database_;
  Statements& statements_;
  const Index& index_;
  const RequestLog& requests_;
  const HistoryLog& history_;

  // What the index will learn. Kept from one commit to the next for their memory.
  Index counters_;               // Its counters only.
  std::vector<Lease*> granted_;  // Whose tokens were set.
  std::vector<const Lease*>
      rows_to_add_;  // By token - first token of the semaphore's; null: it ended again.
  std::vector<const Waiter*> waiters_to_add_;
  absl::flat_hash_map<Id, size_t> waiters_to_add_at_;
  std::vector<std::pair<const std::string*, uint32_t>>
      semaphores_added_;  // Names of the transaction's.
  std::vector<const std::string*> semaphores_removed_;
  std::vector<std::pair<Id, int64_t>> waiters_added_;
  std::vector<Id> waiters_removed_;
  std::vector<PendingTicket> tickets_pending_;
  absl::flat_hash_map<Id, size_t> tickets_pending_at_;
  std::vector<std::pair<Id, int64_t>> tickets_added_;
  std::vector<Id> tickets_removed_;
  absl::flat_hash_map<Id, SessionAtKey> sessions_set_;
  std::vector<Id> sessions_removed_;
  std::vector<RequestKey> requests_moved_;
  uint64_t requests_cut_below_ = 0;
  uint64_t history_cut_below_ = 0;
  std::vector<std::string> stale_;
  std::string bytes_;
  std::string requests_added_;
};

}  // namespace semaphored::sqlite
