// The shared truth of one simulated engine: rows in memory, changed only by transactions whose
// conditions hold. Single-threaded. Rows inside belong to the engine alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "adapters/adapter.h"
#include "adapters/common/beat_counter.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::simulation {

struct StoredSemaphore {
  SemaphoreRow row;
  std::map<Id, Lease> leases;
  std::map<Id, Waiter> waiters;
  std::map<Id, Ticket> tickets;
  std::map<Id, std::string> payloads;  // Of each ticket.

  uint32_t held() const;
  // In the order in which they are to be served; without offers.
  std::vector<const Waiter*> Queue() const;
  // The one that is to be given next to somebody who offers to carry it out; nullptr: there is no
  // ticket, or nobody.
  const Ticket* NextTicket() const;
};

struct StoredClient {
  std::string client_id;
  std::map<uint64_t, ledger::RequestRow> requests;  // By sequence number.
  uint64_t floor = 0;                               // Rows below may have been forgotten.
  uint64_t high = 0;                                // The highest that ever had a row.
};

struct StoredEnd {
  uint64_t number = 0;
  std::string semaphore;
  Lease lease;
  int64_t ended_at_unix_ms = 0;
  EndCause cause = EndCause::kNone;
};

// The conditions of a commit. All are on but in a mutant.
struct Conditions {
  bool revision = true;
  bool incarnation = true;
  bool epoch = true;
  bool session_row = true;
  bool request = true;
};

// A transaction with the engine's own client numbers and rows of its own: it can land later than
// its writer lives.
struct Write {
  uint64_t id = 0;  // The same write landing twice lands once.
  ledger::Transaction transaction;
};

class MemoryEngine {
 public:
  struct Landing {
    bool landed = false;
    std::vector<std::string> stale;  // When it was lost.
    bool requests_lost = false;      // … since a request of it has a row, or is below its floor.
    absl::Status status;             // FAILED_PRECONDITION: the node is dead or replaced.
  };

  // Tests the conditions and carries the write out, or not. A write that has landed before lands
  // again without effect. Sets tokens and revisions in `write`.
  Landing Land(Write& write);
  bool HasLanded(uint64_t write_id) const { return landed_.contains(write_id); }
  uint64_t NewWriteId() { return ++last_write_; }

  // ---- damage ----
  // Records that cannot be read: nothing lands on them, since what a writer knew has changed.
  std::set<std::string, std::less<>> unreadable;
  // No write to these succeeds: DATA_LOSS.
  std::set<std::string, std::less<>> unwritable;

  // ---- other clients of the engine ----
  // Takes the lowest free slots. False: there is no such semaphore, it is damaged or being destroyed, or
  // there is no room.
  bool TakeForeign(const std::string& name, const Id& lease, uint32_t permits);
  // By its holder, or by a daemon once the holder is dead. False: it is not there, or damaged.
  bool ReturnForeign(const std::string& name, const Id& lease);
  // The holder is dead, and its permits are left behind.
  void LeaveForeign(const Id& lease) { left_behind_.insert(lease); }
  bool IsLeftBehind(const Id& lease) const { return left_behind_.contains(lease); }

  // ---- nodes ----
  // Takes the id whatever its row says.
  NodeRef Join(const std::string& node_id, const std::string& daemon = "");
  // False: not this incarnation any more, or dead, or the counter cannot be this node's.
  bool Heartbeat(const NodeRef& node, const BeatCounter& counter);
  // False: not this incarnation any more, or dead.
  bool Leave(const NodeRef& node);
  // As another process that counts for the node, or as a store that is put back.
  void AddToCounter(const std::string& node_id, int by);
  std::vector<NodeStore::Node> Nodes() const;
  bool DeclareDead(const NodeStore::Node& seen);
  bool MayWrite(const NodeRef& node) const;

  // ---- what there is ----
  const std::map<std::string, StoredSemaphore>& semaphores() const { return semaphores_; }
  const StoredSemaphore* Find(const std::string& name) const;
  // What has moved to a daemon that dies is kept for so much longer: a node TTL and a sweep's interval at most.
  static constexpr int64_t kUnawareUs = 9'000'000;
  // For how much longer the claim is kept, after its host has died, than its TTL.
  int64_t KeptForUs(const Claim& claim) const {
    const auto session = sessions_.find(claim.session);
    const bool moved = claim.epoch > 1 || (session != sessions_.end() && session->second.epoch > 1);
    return moved ? kUnawareUs : 0;
  }
  const std::map<Id, Session>& sessions() const { return sessions_; }
  const std::map<uint32_t, StoredClient>& clients() const { return clients_; }
  const std::vector<StoredEnd>& history() const { return history_; }
  // The engine's number of a client; made if it is new.
  uint32_t NumberOf(const std::string& client_id);
  const std::string& NameOf(uint32_t client) const { return clients_.at(client).client_id; }

  Conditions conditions;
  // Whether the rows of a requester may be dropped that a daemon has forgotten. Empty: never.
  std::function<bool(const ledger::Transaction&, uint32_t client)> may_forget;
  // Called after each change by another client of the engine.
  std::function<void(const std::string& name)> on_foreign;

  // Mutant: tokens begin anew with each semaphore that is made.
  bool tokens_repeat = false;
  // Mutant: who comes last is filed first.
  bool lifo = false;

  std::function<void(const NodeStore::Node&)> on_heartbeat;  // On Join, too.
  std::function<void(const NodeStore::Node&)> on_declared_dead;
  // Called after each write that landed; `before`: the touched semaphores as they were, absent if
  // new.
  std::function<void(const ledger::Transaction&,
                     const std::map<std::string, StoredSemaphore>& before)>
      on_landed;

 private:
  bool SemaphoresStand(const ledger::Transaction& transaction,
                       std::vector<std::string>* stale) const;
  bool SessionsStand(const ledger::Transaction& transaction) const;
  bool RequestsStand(const ledger::Transaction& transaction) const;
  void WriteRequests(const ledger::Transaction& transaction);
  // A write that damage stood in the way of never lands any more.
  bool Refuses(const Write& write);
  bool IsUnwritable(const ledger::Transaction& transaction) const;
  void Forget(const ledger::Transaction& transaction);
  void Carry(ledger::Transaction& transaction);
  void WriteSemaphore(ledger::SemaphoreDelta& delta);
  void SetTokens(ledger::Transaction& transaction);

  std::map<std::string, StoredSemaphore> semaphores_;
  std::map<Id, Session> sessions_;
  std::map<uint32_t, StoredClient> clients_;
  std::map<std::string, uint32_t> client_numbers_;
  std::vector<StoredEnd> history_;
  std::vector<NodeStore::Node> nodes_;
  // The writes that landed, with the tokens and revisions that they were given.
  struct Given {
    absl::flat_hash_map<Id, uint64_t> tokens;
    std::map<std::string, uint64_t> revisions;
  };
  std::map<uint64_t, Given> landed_;
  std::set<uint64_t> refused_;  // Writes, by id.
  std::set<Id> left_behind_;    // Leases of foreign holders that are dead.
  uint64_t last_write_ = 0;
  uint64_t last_token_ = 0;
  uint64_t last_revision_ = 0;
};

// Copies of all rows of a transaction, so that nobody else can change them.
ledger::Transaction DeepCopy(const ledger::Transaction& transaction);

}  // namespace semaphored::simulation
