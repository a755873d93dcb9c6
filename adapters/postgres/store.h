// The ledger's rows in Postgres, which any number of daemons share; schema_1.sql has the tables.
//
// Commit is one call of commit_1, a function in the database: one round trip, all conditions in it.
// It first raises this lane's number from n to n + 1. So Settle can find out what became of a
// commit whose answer was lost: it raises the number itself. If that works the lost commit can
// never land; if it does not, it has landed, and the lane's row has what it gave. (A commit that is
// still under way holds the row's lock: Settle waits for it.)
//
// After a few losses the semaphores are locked, in order of their names, before they are read
// again: no other daemon can be first any more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "adapters/common/client_names.h"
#include "adapters/common/upkeep.h"
#include "adapters/ledger/shared_store.h"
#include "adapters/postgres/commit.h"
#include "adapters/postgres/connection.h"
#include "adapters/postgres/pruning.h"
#include "adapters/postgres/statements.h"
#include "adapters/postgres/ticket_cache.h"
#include "adapters/steady_clock.h"

namespace semaphored::postgres {

struct StoreOptions {
  std::string schema;
  NodeRef self;
  uint32_t lane = 0;
  PruneOptions prune;  // Only lane 0 does it.
  // Losses in a row after which it locks.
  int attempts_without_lock = 3;
  // Where errors of the upkeep are reported; not null.
  std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>();
};

class PostgresStore : public ledger::SharedStore {
 public:
  // `connection` is open.
  PostgresStore(std::unique_ptr<Connection> connection, const Guarantees& guarantees,
                StoreOptions options);
  ~PostgresStore() override;

  // Makes this lane's row, and listens.
  absl::Status Start();

  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<ledger::Image> Load(absl::Span<const std::string> names) override;
  // Of tickets only how many there are in each state: nothing else of them is set.
  absl::StatusOr<ledger::Image> Look(absl::Span<const std::string> names) override;
  absl::StatusOr<std::vector<std::string>> Changed(
      absl::Span<const SemaphoreRow* const> semaphores) override;
  ledger::CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) override;
  ledger::CommitResult Settle(ledger::Transaction& transaction, SteadyTime deadline) override;
  absl::StatusOr<std::vector<PayloadPtr>> ReadPayloads(absl::Span<const TicketAt> tickets) override;
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(
      absl::Span<const ledger::NamedRequest> requests, uint64_t window) override;
  absl::StatusOr<SessionAt> LoadSession(const Id& session) override;
  absl::StatusOr<Hosted> HostedBy(absl::Span<const NodeRef> nodes) override;
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const std::string& after,
                                                 uint32_t rows_max) override;
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string& semaphore, uint64_t before,
                                                      uint32_t rows_max) override;
  absl::StatusOr<std::vector<ledger::ChangeNotice>> Wait(SteadyTime deadline) override;
  std::optional<ledger::ChangeDetails> ReadDetails(const ledger::ChangeNotice& notice) override;
  bool TakeMissedNotices() override;
  absl::Status EndForeign(absl::Span<const std::string> names) override;
  bool GrantsWithheld() override;
  void ForgetClientsBut(const std::function<bool(uint32_t)>& in_use) override;
  void Wake() override;

 private:
  class Reader;

  // What HostedBy reads, in pages; `nodes` are the first arguments of the statements.
  absl::Status ReadSessionsOf(const Arguments& nodes, std::vector<ledger::SessionPtr>* sessions,
                              absl::flat_hash_set<std::string>* names);
  absl::Status WalkAlong(const Statement& walk, const Arguments& nodes,
                         absl::flat_hash_set<std::string>* names);
  // One statement, so one snapshot. REQUIRES: no name stands twice.
  absl::StatusOr<ledger::Image> LoadPage(absl::Span<const std::string> names);
  // Opens the connection again if it has broken, and listens again.
  absl::Status Ready();
  Answered Query(const Statement& statement, const Arguments& arguments);
  absl::Status RollBack();  // Ends the transaction that holds locks, if there is one.
  ledger::CommitResult Lose(const ledger::Transaction& transaction, bool requests_lost);
  ledger::CommitResult Judge(const ledger::Transaction& transaction, const Failure& failure);
  absl::Status ReadWithheld();
  ledger::CommitResult FindBusy(const ledger::Transaction& transaction, const absl::Status& status);
  // Its status is OK if they are locked.
  Failure LockFor(const ledger::Transaction& transaction);

  // This store's number of a client; made if it has none.

  const std::unique_ptr<Connection> connection_;
  const Guarantees guarantees_;
  const StoreOptions options_;
  uint64_t life_ = 0;  // The connection's, when it was last prepared for listening.
  bool missed_ = false;
  uint64_t commits_ = 0;          // Of this lane, as far as known.
  std::string lane_place_;        // Of this lane's row, after the last commit; empty: not known.
  std::set<std::string> locked_;  // Semaphores locked by the transaction that is open.
  bool in_transaction_ = false;
  int wake_ = -1;  // An eventfd.
  // The store's epoch since which nothing may be granted, 0: none; and for how long this store
  // waits.
  int64_t withheld_epoch_ = 0;
  std::string secret_;  // With which messages between daemons are sealed.
  SteadyTime withheld_until_{};
  ledger::ClientNames names_;
  TicketCache tickets_;                          // What this connection has read.
  const std::unique_ptr<const Statements> sql_;  // For this schema.
  Pruner pruner_;
};

}  // namespace semaphored::postgres
