// The ledger's rows in an SQLite file, which one daemon has for itself. See schema.h for the
// tables.
//
// Nothing of the state is cached here but what finds rows again: which key a claim's row has. That,
// the counters and the logs' indexes change only when a commit has won, so a commit that fails
// needs no repair.
//
// Conditions. No other daemon writes, so they can fail only when the transaction itself is wrong,
// or made by a node that has been replaced. They are still checked, where it costs nothing: the
// revision in the UPDATE that raises it, the rest in memory.
//
// Tokens. The high 16 bits are the store's epoch, the low 48 a counter of the whole store, so that
// a slot's tokens rise whatever becomes of its semaphore. The counter is reserved ahead in blocks,
// in the commit that grants: most commits need not write it, and a start goes on above whatever was
// reserved.
//
// Settle writes the transaction once more: the commit that was lost stands where this one now is
// written, so when this one has won it is the only one (database.h has the reasoning), and it is
// carried out after all. Its conditions still hold, as nothing can have been committed in between;
// Commit refuses until then.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/store.h"
#include "adapters/sqlite/database.h"
#include "adapters/sqlite/history_log.h"
#include "adapters/sqlite/node_table.h"
#include "adapters/sqlite/request_log.h"
#include "adapters/sqlite/spare_pages.h"

namespace semaphored::sqlite {

struct StoreOptions {
  // Leases that have ended, to remember. 0: none.
  uint64_t history_rows = 100'000;
  // Where errors of the upkeep are reported; not null.
  std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>();
};

inline constexpr int kTokenCounterBits = 48;

class SqliteStore : public ledger::LedgerStore {
 public:
  // REQUIRES: PrepareSchema has been called on `database`; no other SqliteStore is on it.
  SqliteStore(std::shared_ptr<Database> database, std::shared_ptr<NodeTable> nodes,
              const StoreOptions& options);
  ~SqliteStore() override;

  const Guarantees& guarantees() const override { return guarantees_; }
  // Must be called before all others.
  absl::StatusOr<ledger::Image> LoadAll() override;
  ledger::CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) override;
  ledger::CommitResult Settle(ledger::Transaction& transaction, SteadyTime deadline) override;
  absl::StatusOr<std::vector<PayloadPtr>> ReadPayloads(absl::Span<const TicketAt> tickets) override;
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(
      absl::Span<const ledger::NamedRequest> requests, uint64_t window) override;
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string& semaphore, uint64_t before,
                                                      uint32_t rows_max) override;
  // Tells nothing: no other daemon is there. Having waited for a while it tidies the log, and gives
  // space that is free back to the file system, until there is something to do.
  absl::StatusOr<std::vector<ledger::ChangeNotice>> Wait(SteadyTime deadline) override;
  void Wake() override;

 private:
  absl::StatusOr<ledger::RequestRow> ReadRequest(uint64_t row, const RequestKey& request);

  struct Statements;  // Those of a commit.
  struct SessionAtKey {
    int64_t key = 0;
    uint32_t epoch = 0;
  };
  // What finds rows, and where the counters stand.
  struct Index {
    absl::flat_hash_map<std::string, uint32_t> semaphores;  // Numbers by name.
    absl::flat_hash_map<Id, int64_t> waiters;               // Keys.
    absl::flat_hash_map<Id, int64_t> tickets;               // Keys, of payloads too.
    absl::flat_hash_map<Id, SessionAtKey> sessions;
    uint32_t next_semaphore = 1;
    int64_t next_waiter = 1;
    int64_t next_session = 1;
    int64_t next_ticket = 1;
    uint64_t last_token = 0;       // With the epoch.
    uint64_t tokens_reserved = 0;  // Up to this one; with the epoch.
    uint64_t revision_floor = 0;
  };
  class Loader;  // load.cc
  class Writer;  // writer.h

  ledger::CommitResult Write(ledger::Transaction& transaction);
  absl::Status Prepare();
  // With the database's mutex held:
  absl::Status WriteSomething();
  void ReturnTokens();
  void Checkpoint();
  // A step of what is due when there is nothing else to do. False: nothing more is due. Takes the
  // mutex.
  bool Tidy();

  const std::shared_ptr<Database> database_;
  const std::shared_ptr<NodeTable> nodes_;
  const StoreOptions options_;
  Guarantees guarantees_;
  std::unique_ptr<Statements> statements_;  // Null until LoadAll.
  Index index_;
  RequestLog requests_;
  HistoryLog history_;
  std::unique_ptr<Writer> writer_;
  SparePages spare_pages_;

  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
};

}  // namespace semaphored::sqlite
