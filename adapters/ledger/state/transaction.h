// What one batch of commands changes, as rows that come and go: written by the rules, carried out
// in the memory's state at once, in the store by LedgerStore::Commit, and taken back by Revert if
// that does not win.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/ledger/state/permits.h"
#include "adapters/ledger/state/request.h"
#include "adapters/ledger/state/state.h"
#include "adapters/types.h"

namespace semaphored::ledger {

struct SemaphoreDelta {
  std::string name;
  std::optional<SemaphoreRow> before;  // nullopt: it is created by this batch.
  std::optional<SemaphoreRow>
      after;  // nullopt: it is destroyed by this batch. The revision is not raised in it.
  std::vector<LeaseChange> leases;  // In the order in which they happened; a lease may occur again.
  std::vector<WaiterChange> waiters;
  std::vector<TicketChange> tickets;  // In the order in which they happened, as leases.
  // After this batch. Only on a store that is not exclusive.
  SemaphoreCounts counts;
  // Set by the commit that wins: what the semaphore's revision now is. A number that this name has
  // never had, also when it was destroyed and is made again: before->revision + 1, or, for a new
  // one, from a counter of the whole store. (A daemon that still remembers the old one must not
  // take the new one for it.)
  uint64_t revision = 0;
  // Editor::Touch: a daemon that has the semaphore loaded is to read it again.
  bool touched = false;
};

// A client whose name the store does not know yet. Numbers below 2^31 are given by the ledger, for
// this one store object (an exclusive store keeps them); a store that loads rows of a client that
// it does not know gives it a number from 2^31 on, and names it in Image::clients. A shared store
// keeps names, and translates at its border.
struct NewClient {
  uint32_t number = 0;
  std::string client_id;
};

struct EpochCondition {
  Id session;
  uint32_t epoch = 0;
};

// What an answer rests upon that changes nothing in this semaphore.
struct ReadCondition {
  std::string semaphore;
  uint64_t revision = 0;  // 0: it does not exist.
};

struct Transaction {
  // Lands only if this is still the node's incarnation and it was not declared dead,
  NodeRef node;
  // … if each semaphore still stands at before->revision (or does not exist),
  std::vector<SemaphoreDelta> semaphores;
  // … if each session's row still is as `before`,
  std::vector<SessionChange> sessions;
  // … if these sessions still have these epochs,
  std::vector<EpochCondition> epochs;
  // … if the engine has no row of those requests that it inserts (RequestChange),
  std::vector<RequestChange> requests;
  // … nor of these, of which no row is written, and which are not below their client's floor; and if
  // these semaphores stand as they were read. Both only on a store that is not exclusive.
  std::vector<NamedRequest> absent_requests;
  std::vector<ReadCondition> reads;

  std::vector<HistoryRow> history;
  // Other nodes whose claims it changes, or which hold where a claim waits, and in which semaphore:
  // they get a notice, if the engine can. Each pair once. Only on a store that is not exclusive.
  std::vector<std::pair<uint32_t, std::string>> concerns;
  std::vector<NewClient> new_clients;
  std::vector<RequestFloor> request_floors;
  // Silent here for long, and without claims. A shared store may drop what it knows of one only if
  // it is silent at all daemons: elsewhere its requests may still be repeated.
  std::vector<uint32_t> forgotten_clients;
  // One-shot requests whose rows may go: this node has known them as ended or done for
  // request_retention. A row that another node has written since, or that waits or stands, stays. No
  // condition: the store may remove them a little later, or not find them.
  std::vector<Id> forgotten_requests;
  // For other daemons. Only of a store that hands out permits, and administers_all.
  std::vector<AskedRecall> asked_recalls;
  // Where there may be room left for waiters: this batch had let in as many as a commit may.
  std::vector<std::string> to_advance;
  // Times that this batch was decided again because another daemon was first.
  int attempt = 0;

  // Nothing to write; then `absent_requests` and `reads` are for the adapter to look at.
  bool empty() const {
    return semaphores.empty() && sessions.empty() && requests.empty() && history.empty() &&
           new_clients.empty() && forgotten_clients.empty() && forgotten_requests.empty() &&
           asked_recalls.empty();
  }
};

// Records changes in a transaction while it makes them in the state. The rules change the state
// only through it.
class Editor {
 public:
  // Both outlive the editor. `commands`: about how many there are.
  Editor(LedgerState* state, Transaction* transaction, size_t commands = 0);

  LedgerState& state() { return *state_; }
  Semaphore* Find(std::string_view name) { return state_->Find(name); }

  Semaphore* Create(SemaphoreRow row);
  void Destroy(Semaphore* semaphore);
  // Calls `change` on a copy of the row and puts it in place.
  template <typename Change>
  void ChangeRow(Semaphore* semaphore, Change&& change) {
    SemaphoreRow row = semaphore->row;
    std::forward<Change>(change)(row);
    SetRow(semaphore, row);
  }
  // The rows of requests follow the claims: these five write them.
  void Grant(Semaphore* semaphore, LeasePtr lease);
  void Replace(Semaphore* semaphore, const LeasePtr& before, LeasePtr after);
  void End(Semaphore* semaphore, const LeasePtr& lease, EndCause cause, int64_t now_unix_ms);
  void Enqueue(Semaphore* semaphore, WaiterPtr waiter);
  void Replace(Semaphore* semaphore, const WaiterPtr& before, WaiterPtr after);
  // cause kNone: it is granted, and Grant follows. A client that gave up its wait receives no answer,
  // so its request is forgotten; a wait that ended otherwise is remembered.
  void Leave(Semaphore* semaphore, const WaiterPtr& waiter, EndCause cause);
  void Add(Semaphore* semaphore, TicketPtr ticket, PayloadPtr payload);
  void Replace(Semaphore* semaphore, const TicketPtr& before, TicketPtr after);
  void Remove(Semaphore* semaphore, const TicketPtr& ticket);
  void ChangeSession(SessionPtr before, SessionPtr after);
  // The transaction then lands only if the claim's session still has the epoch that the state
  // shows.
  void RequireEpoch(const Claim& claim);
  // The semaphore's revision rises, so that other daemons read it again, though no row of it changes.
  void Touch(Semaphore* semaphore) { DeltaOf(semaphore).touched = true; }
  // The next batch goes on letting waiters in.
  void AdvanceLater(const Semaphore& semaphore) {
    transaction_->to_advance.push_back(semaphore.row.name);
  }
  // A waiter was looked at, to see whether it is let in. The count is for tests.
  void CountLook() { ++looks_; }
  uint64_t looks() const { return looks_; }
  // How many of those who waited it has let in since BeginCommand.
  uint32_t let_in() const { return let_in_; }
  // A batch that lets in more than a commit takes is divided by its commands; so each may let in as
  // many as one commit.
  void BeginCommand() { let_in_ = 0; }
  // How many rows more this commit may change for acts that later commits carry on. `changes_max` 0:
  // no bound.
  size_t LeftToCarryOn(uint32_t changes_max) const {
    if (changes_max == 0) return SIZE_MAX;
    return changes_max - std::min(changes_max, carried_on_);
  }
  // Counts one of them; false: there is none.
  bool MayCarryOn(uint32_t changes_max) {
    if (LeftToCarryOn(changes_max) == 0) return false;
    ++carried_on_;
    return true;
  }
  void AskOthers(AskedRecall recall) { transaction_->asked_recalls.push_back(std::move(recall)); }
  // The row of a request that makes no claim, with its effect. Without a request id: does nothing.
  void Remember(RequestRow row);
  // What this batch has made of a request so far. nullptr: nothing. An empty `row`: the request is
  // not there any more.
  struct RequestNow {
    bool existed = false;  // Before this batch.
    std::optional<RequestRow> row;
    RequestRow before;  // Without `row`: the last one that it had in this batch.
  };
  const RequestNow* FindRequest(const RequestKey& request) const;
  // The semaphore's next order number, and counts on.
  uint64_t TakeOrder(Semaphore* semaphore);
  // True if this transaction has changed the semaphore: its revision then is not yet known.
  bool Touched(const Semaphore& semaphore) const { return Touched(semaphore.row.name); }
  bool Touched(const std::string& name) const;
  const Transaction& transaction() const { return *transaction_; }
  // Fills in SemaphoreDelta::after and the transaction's requests. To be called once, at the end of
  // the batch.
  void Finish();

 private:
  void SetRow(Semaphore* semaphore, const SemaphoreRow& row);
  SemaphoreDelta& DeltaOf(Semaphore* semaphore);
  // nullopt: the row goes.
  void SetRequest(const RequestKey& request, bool existed, std::optional<RequestRow> row);

  LedgerState* state_;
  Transaction* transaction_;
  // The last one used: a batch is mostly about few semaphores.
  Semaphore* last_ = nullptr;
  size_t last_index_ = 0;
  uint32_t let_in_ = 0;
  uint64_t looks_ = 0;
  uint32_t carried_on_ = 0;
  absl::flat_hash_map<std::string, size_t> index_;
  // Places in requests_, which are in the order of their first change.
  absl::flat_hash_map<RequestKey, size_t> requests_index_;
  std::vector<RequestNow> requests_;
};

// The row of the request that made this claim.
RequestRow RequestOf(const std::string& semaphore, const Claim& claim, RequestRow::State state,
                     EndCause cause = EndCause::kNone);

// Carries out the delta's changes of claims and tickets, each of which occurs once: first
// everything that goes, then everything that comes, since a slot may have changed hands.
void ApplyAtOnce(const SemaphoreDelta& delta, Semaphore* semaphore, LedgerState* state);

// Gives each lease that the transaction granted, in all its forms, its token.
void SetTokens(const absl::flat_hash_map<Id, uint64_t>& tokens, Transaction* transaction);

// Takes back in the state what the transaction did. REQUIRES: nothing else was changed since.
void Revert(const Transaction& transaction, LedgerState* state);

}  // namespace semaphored::ledger
