// What the tests of the embedded store have in common: a folder that goes away, a store on a file
// in it, and short ways to write transactions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "adapters/sqlite/store.h"

namespace semaphored::sqlite {

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Everything that has the file open; destroyed, it is free again.
struct OpenStore {
  std::shared_ptr<Database> database;
  std::shared_ptr<NodeTable> nodes;
  std::unique_ptr<SqliteStore> store;
  NodeRef self;
  ledger::Image image;

  ledger::CommitResult Commit(ledger::Transaction& transaction) {
    return store->Commit(transaction, SteadyTime::max());
  }
  ledger::CommitResult Settle(ledger::Transaction& transaction) {
    return store->Settle(transaction, SteadyTime::max());
  }
};

// Joins as "node" and loads.
absl::StatusOr<OpenStore> TryOpen(const DatabaseOptions& database,
                                  const StoreOptions& options = {});
// Must succeed. An empty path: in memory. Without syncs it is quicker, and all the same to whoever
// does not pull the plug.
OpenStore Open(const std::string& path, const StoreOptions& options = {}, bool synchronous = true);

Id MakeId(uint64_t number);
SemaphoreRow MakeRow(const std::string& name, uint32_t limit = 4);
// Detached, of one permit on `slot`.
LeasePtr MakeLease(uint64_t number, uint32_t slot = 1);
WaiterPtr MakeWaiter(uint64_t number);
TicketPtr MakeTicket(uint64_t number);
ledger::RequestChange MakeRequest(uint32_t client, uint64_t sequence,
                                  const std::string& semaphore = "s");

// nullopt: the store has no row of it.
std::optional<ledger::RequestRow> FindRequest(const OpenStore& open, uint32_t client,
                                              uint64_t sequence);

// A transaction of this node, and one that creates a semaphore.
ledger::Transaction Begin(const OpenStore& open);
ledger::Transaction Create(const OpenStore& open, const std::string& name);
// The delta of a semaphore that stands at `row`.
ledger::SemaphoreDelta& Touch(ledger::Transaction& transaction, const SemaphoreRow& row);

const ledger::LoadedSemaphore* FindSemaphore(const ledger::Image& image, const std::string& name);

}  // namespace semaphored::sqlite
