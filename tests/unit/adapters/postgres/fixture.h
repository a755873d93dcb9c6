// What the tests of the Postgres store have in common: a schema that goes away, a store on it,
// another client of the database, and short ways to write transactions.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <pqxx/pqxx>

#include "adapters/open.h"
#include "adapters/postgres/connection.h"
#include "adapters/postgres/store.h"

namespace semaphored::postgres {

// Somebody else in the same database. Throws what the server says.
class Client {
 public:
  Client(const std::string& url, std::string schema);

  // Statements without arguments; "semaphored." stands for the schema. Outside of a transaction
  // unless one was begun with BEGIN.
  pqxx::result Run(const std::string& sql);
  // The only value of the only row.
  int64_t Number(const std::string& sql) { return Run(sql)[0][0].as<int64_t>(); }
  std::string Text(const std::string& sql) { return Run(sql)[0][0].as<std::string>(); }
  pqxx::connection& connection() { return connection_; }

 private:
  const std::string schema_;
  pqxx::connection connection_;
};

// A name for a schema on the server of the tests. It is dropped in the end; until an engine or a
// test makes it, it is not there.
class TestSchema {
 public:
  TestSchema();
  ~TestSchema();
  TestSchema(const TestSchema&) = delete;
  TestSchema& operator=(const TestSchema&) = delete;

  const std::string& name() const { return name_; }
  // Of the server, without options of ours; `port` of a relay, for example.
  std::string ServerUrl(uint16_t port = 0) const;
  uint16_t port() const { return port_; }
  // For OpenEngine. `options` begin with '&'.
  std::string Url(const std::string& options = "", uint16_t port = 0) const;
  std::string For(const std::string& sql) const;
  Client Connect() const { return {ServerUrl(), name_}; }

 private:
  std::string url_;
  uint16_t port_ = 0;
  std::string name_;
};

// A URL without its options, through another port of the same host.
std::string WithPort(const std::string& url, uint16_t port);

struct OpenOptions {
  std::string node_id = "a";
  uint16_t port = 0;  // 0: the server's.
  std::chrono::milliseconds timeout{10000};
  std::chrono::milliseconds lock_timeout{500};
  StoreOptions store = {};  // Schema and self are set by Open.
};

// One lane of a daemon, without the ledger above it. What it owns outlives the store.
struct OpenStore {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Guard> guard;
  std::unique_ptr<PostgresStore> store;
  Connection* connection = nullptr;  // The store's.
  NodeRef self;

  ledger::CommitResult Commit(ledger::Transaction& transaction) {
    return store->Commit(transaction, SteadyTime::max());
  }
  ledger::CommitResult Settle(ledger::Transaction& transaction) {
    return store->Settle(transaction, SteadyTime::max());
  }
};

// Makes the schema if it is absent, and joins. Must succeed. Its connection behaves as the engine's
// do.
OpenStore Open(const TestSchema& schema, const OpenOptions& options = {});

// As another daemon does that has not heard of it for long. Must succeed.
void DeclareDead(const TestSchema& schema, const NodeRef& dead);

Id MakeId(uint64_t number);
// Detached, on one slot, of this daemon.
LeasePtr MakeLease(const OpenStore& open, uint64_t number, uint32_t slot = 1);

// A transaction of this daemon, and one that creates a semaphore.
ledger::Transaction Begin(const OpenStore& open);
ledger::Transaction Create(const OpenStore& open, const std::string& name, uint32_t limit = 4);
// The delta of a semaphore that stands at `row`.
ledger::SemaphoreDelta& Touch(ledger::Transaction& transaction, const SemaphoreRow& row);
// One that grants `lease` on the semaphore at `row`.
ledger::Transaction Grant(const OpenStore& open, const SemaphoreRow& row, const LeasePtr& lease);

// Commits that must win.
SemaphoreRow Make(OpenStore& open, const std::string& name, uint32_t limit = 4);
// The semaphore as it is stored. Must exist.
ledger::LoadedSemaphore LoadOne(OpenStore& open, const std::string& name);

// Of a request of client number 1, on semaphore "s". Its fingerprint follows from its number.
ledger::RequestRow MakeRequest(uint64_t sequence, ledger::RequestRow::State state,
                               const Id& claim = {});
ledger::LedgerStore::FoundRequest Find(OpenStore& open, uint64_t sequence,
                                       const std::string& client_id = "c");

// True as soon as the condition holds; false if it does not within ten seconds.
bool Within10s(const std::function<bool()>& condition);
// Of statements that wait for a lock, in transactions that have to do with the schema.
int64_t WaitingForLocks(Client& client, const TestSchema& schema);

}  // namespace semaphored::postgres
