// What the tests of the Consul store have in common: a prefix that goes away, one lane of a daemon
// on it, and a foreign client.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "adapters/consul/client.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/lock_record.h"
#include "adapters/consul/store.h"
#include "adapters/consul/url.h"
#include "adapters/ledger/store.h"
#include "adapters/open.h"

namespace semaphored::consul {

// A prefix in the Consul of the tests, empty at first; all under it is removed in the end.
class TestPrefix {
 public:
  TestPrefix();
  ~TestPrefix();
  TestPrefix(const TestPrefix&) = delete;
  TestPrefix& operator=(const TestPrefix&) = delete;

  uint16_t port() const { return port_; }
  // For OpenEngine; `port` of a relay, for example. `options` begin with '?'.
  std::string UrlText(const std::string& options = "", uint16_t port = 0) const;
  Url ParsedUrl(const std::string& options = "", uint16_t port = 0) const;
  Keys keys() const { return Keys(prefix_); }
  const std::string& prefix() const { return prefix_; }

  // As anybody who can reach Consul. They must succeed.
  std::vector<Entry> Tree(const std::string& key) const;
  // Empty: there is none.
  std::string Value(const std::string& key) const;
  void Put(const std::string& key, const std::string& value,
           uint64_t flags = kSemaphoreFlags) const;
  void Delete(const std::string& key) const;
  // Takes the key for this session.
  void Lock(const std::string& key, const std::string& session, uint64_t flags) const;
  void DestroySession(const std::string& session) const;

 private:
  uint16_t port_ = 0;
  std::string prefix_;
};

// One who contends as HashiCorp's client does, by its own steps.
class ForeignClient {
 public:
  ForeignClient(const TestPrefix* prefix, std::string name, uint32_t limit);
  ~ForeignClient();
  ForeignClient(const ForeignClient&) = delete;
  ForeignClient& operator=(const ForeignClient&) = delete;

  const std::string& session() const { return session_; }
  // One attempt. False: full, or somebody else was first.
  bool TryAcquire();
  void Release();
  // Its process is gone, and its session with it.
  void Die();

 private:
  const TestPrefix* const prefix_;
  const std::string name_;
  const uint32_t limit_;
  std::string session_;
};

// One lane of a daemon, without the ledger above it.
struct OpenStore {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Pulse> pulse;  // If permits end with the daemon.
  std::unique_ptr<ConsulStore> store;
  NodeRef self;

  ledger::CommitResult Commit(ledger::Transaction& transaction) {
    return store->Commit(transaction, SteadyTime::max());
  }
  ledger::CommitResult Settle(ledger::Transaction& transaction) {
    return store->Settle(transaction, SteadyTime::max());
  }
};

// The record that foreign clients share. Must be there and be understood.
LockRecord Record(const TestPrefix& prefix, const std::string& name);

OpenStore Open(const TestPrefix& prefix, uint16_t port = 0,
               std::chrono::milliseconds timeout = std::chrono::milliseconds(5000));

// The lane of a daemon with which its permits end (sessions=daemon).
OpenStore OpenWithPulse(const TestPrefix& prefix, const std::string& node_id);

Id MakeId(uint64_t number);
// Of a client with the number 0, with a fingerprint and a claim of its own.
ledger::RequestRow MakeRow(uint64_t sequence, ledger::RequestRow::State state,
                           const std::string& semaphore = "s");
LeasePtr MakeLease(const OpenStore& open, uint64_t number, uint32_t slot = 1);
ledger::Transaction Begin(const OpenStore& open);
ledger::Transaction Create(const OpenStore& open, const std::string& name, uint32_t limit = 4);
ledger::Transaction Grant(const OpenStore& open, const SemaphoreRow& row, const LeasePtr& lease);
// The semaphore as it is stored. Must exist.
ledger::LoadedSemaphore LoadOne(OpenStore& open, const std::string& name);
// Commits that must win.
SemaphoreRow Make(OpenStore& open, const std::string& name, uint32_t limit = 4);

}  // namespace semaphored::consul
