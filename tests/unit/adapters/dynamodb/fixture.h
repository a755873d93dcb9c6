// What the tests of the DynamoDB store have in common: a table that goes away, one lane of a daemon
// on it, and a server between that does things to requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapters/dynamodb/client.h"
#include "adapters/dynamodb/node_table.h"
#include "adapters/dynamodb/notice_box.h"
#include "adapters/dynamodb/store.h"
#include "adapters/ledger/store.h"
#include "tests/unit/loopback_http.h"

namespace semaphored::dynamodb {

// A table in the DynamoDB of the tests, empty at first; it is removed in the end.
class StoreTable {
 public:
  StoreTable();
  ~StoreTable();
  StoreTable(const StoreTable&) = delete;
  StoreTable& operator=(const StoreTable&) = delete;

  uint16_t port() const;
  const Url& url() const { return url_; }
  // `endpoint`: of a relay, for example; empty: DynamoDB's own.
  Url UrlThrough(const std::string& endpoint, std::chrono::milliseconds timeout) const;

  // As anybody who can reach the table. They must succeed.
  Reply Ask(const Request& request) const;
  std::vector<json> Items(const std::string& partition) const;
  json Item(const Key& key) const;  // Null: there is none.
  void Put(const json& item) const;
  void Delete(const Key& key) const;

 private:
  Url url_;
  mutable std::unique_ptr<Client> client_;
};

std::shared_ptr<CredentialSource> TestCredentials();

constexpr SteadyTime kNever = SteadyTime::max();

// Passes requests on to DynamoDB, and counts them. What a test does to them is done for one at a
// time.
class DynamoProxy {
 public:
  explicit DynamoProxy(const StoreTable* table);
  std::string endpoint() const { return http_.address(); }

  struct Passing {
    std::string operation;
    json body;            // May be changed before it is passed on.
    bool refuse = false;  // It is not passed on, but answered by DynamoDB's name of an error,
    std::string error;    // … this one.
    bool lose = false;    // The answer, or the refusal, does not come.
  };
  // Called before each request is passed on.
  void OnRequest(std::function<void(Passing* passing)> hook);
  // Called with each answer before it is given.
  void OnAnswer(std::function<void(const std::string& operation, json* body)> hook);

  struct Counted {
    std::map<std::string, int> requests;  // By operation.
    size_t items = 0;                     // In transactions.
  };
  // Since the last call.
  Counted Take();

 private:
  LoopbackHttp::Answer Handle(const LoopbackHttp::Request& request);

  const StoreTable* const table_;
  std::mutex mutex_;
  std::function<void(Passing*)> on_request_;
  std::function<void(const std::string&, json*)> on_answer_;
  Counted counted_;
  LoopbackHttp http_;
};

// One lane of a daemon, without the ledger above it.
struct OpenStore {
  std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>();  // Of the notice_box and the store.
  std::unique_ptr<NodeTable> nodes;
  std::shared_ptr<NoticeBox> notice_box;
  std::unique_ptr<DynamoStore> store;
  NodeRef self;

  ledger::CommitResult Commit(ledger::Transaction& transaction) {
    return store->Commit(transaction, SteadyTime::max());
  }
  ledger::CommitResult Settle(ledger::Transaction& transaction) {
    return store->Settle(transaction, SteadyTime::max());
  }
};

struct HowToOpen {
  std::string node_id = "a";
  std::string endpoint = "";  // Of the store alone.
  std::chrono::milliseconds timeout{20000};
  std::function<int64_t()> now_unix_ms = nullptr;
  std::function<SteadyTime()> now = nullptr;
};
OpenStore Open(const StoreTable& table, const HowToOpen& how = {});

Id MakeId(uint64_t number);
LeasePtr MakeLease(const OpenStore& open, uint64_t number, uint32_t slot = 1);
WaiterPtr MakeWaiter(const OpenStore& open, uint64_t number, int32_t priority = 0);
ledger::Transaction Begin(const OpenStore& open);
ledger::Transaction Create(const OpenStore& open, const std::string& name, uint32_t limit = 4);
// One with no changes yet but that it touches the semaphore.
ledger::Transaction Touch(const OpenStore& open, const SemaphoreRow& row);
ledger::Transaction Grant(const OpenStore& open, const SemaphoreRow& row, const LeasePtr& lease);
// What a commit does to the request of `client` that claims MakeId(sequence) in "s".
ledger::RequestChange Insert(uint32_t client, uint64_t sequence, ledger::RequestRow::State state);
ledger::RequestChange Update(uint32_t client, uint64_t sequence, ledger::RequestRow::State state);
ledger::RequestChange Remove(uint32_t client, uint64_t sequence);
// The semaphore as it is stored. Must exist.
ledger::LoadedSemaphore LoadOne(OpenStore& open, const std::string& name);
// Commits that must win.
SemaphoreRow Make(OpenStore& open, const std::string& name, uint32_t limit = 4);
// The row as it is after the transaction has won.
SemaphoreRow After(const ledger::Transaction& transaction);

}  // namespace semaphored::dynamodb
