// The requests that were accepted before, and the answers to repeated ones; and the requesters: which of them the store
// remembers, and which are forgotten. Used by one lane.
//
// The order of calls: BeginRun, then for each attempt BeginBatch, Find for each command, Finish; then
// Won or RolledBack.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/ledger/clients.h"
#include "adapters/ledger/ends.h"
#include "adapters/ledger/one_shots.h"
#include "adapters/ledger/options.h"
#include "adapters/ledger/request_rows.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::ledger {

class RequestBook {
 public:
  // What the book works on; all of it outlives the book. `shared`: other daemons write rows of requests
  // too. `untouchable`: why no commit may touch a semaphore now; OK: one may.
  struct Sources {
    RequestRows* rows = nullptr;
    LedgerState* state = nullptr;
    const RecentEnds* ends = nullptr;
    bool shared = false;
    std::function<absl::Status(const std::string& semaphore)> untouchable;
  };
  RequestBook(Sources sources, const LedgerOptions& options);

  ~RequestBook();
  RequestBook(const RequestBook&) = delete;
  RequestBook& operator=(const RequestBook&) = delete;

  void BeginRun();
  void BeginBatch();

  // The outcome of a request that was accepted before, or for which there is no room. nullopt: it is
  // new, or the command is none that may be repeated; `context` then names the requester and its
  // fingerprint. ABORTED: the state is older than a row; TakeStale names what to read again, and the
  // batch is to be decided again. Other errors are those of the store.
  absl::StatusOr<std::optional<Outcome>> Find(const Command& command, Editor& editor,
                                              Context* context);

  // Names the clients of the transaction to the store, raises their floors, and forgets clients and
  // one-shot requests.
  void Finish(Transaction* transaction);
  void Won(const Transaction& transaction);
  void RolledBack(const Transaction& transaction);

  // Reads the rows of all requests of the batch, since some of them have rows; until BeginRun they are
  // not read again.
  absl::Status LookUp(absl::Span<const Submission> batch);
  // A client that the store knows, with the number that names it in rows.
  void AddStored(uint32_t number, std::string client_id, uint64_t sequence_high);
  // A one-shot request that has a row in its last state, as the store was loaded.
  void AddStored(const Id& one_shot) { one_shots_.Add(one_shot); }
  // The highest sequence number of the client that is known to have a row; nullopt: the client is unknown.
  std::optional<uint64_t> SequenceHigh(std::string_view client_id) const;
  // For metrics: the numbers of remembered clients and requests after the last batch.
  size_t client_count() const { return clients_.size(); }
  size_t one_shot_count() const { return one_shots_.rows(); }
  size_t one_shots_max() const { return one_shots_.rows_max(); }
  bool Knows(uint32_t client) { return clients_.Find(client) != nullptr; }
  // Requests that this batch took for new without a look at the store.
  std::vector<NamedRequest>& assumed_new() { return assumed_new_; }
  // Semaphores whose state here is older than a row of a request about them.
  std::vector<std::string> TakeStale() { return std::exchange(stale_, {}); }
  // Until it is empty: the next command has this fingerprint, since it is the last part of a larger one,
  // whose other parts have concerned so many leases or tickets.
  void SetFingerprint(const Id& of_whole, uint32_t affected_before = 0) {
    of_whole_ = of_whole;
    affected_before_ = affected_before;
  }

 private:
  // The requester, added if it is new; nullptr: there is no room for one more.
  Client* FindOrAdd(std::string_view client_id);
  absl::StatusOr<std::optional<Outcome>> FindOneShot(const Command& command, const Id& one_shot,
                                                     Editor& editor, const Context& context);
  // What is known of a request before a row of it is looked for.
  struct Prospect {
    // Nothing that this lane has written is its row.
    bool seems_new = false;
    // Below the window: only a claim that waits or is held is an answer.
    bool old = false;
  };
  absl::StatusOr<std::optional<Outcome>> Replay(const Command& command, const RequestKey& request,
                                                const std::string& client_id, Prospect prospect,
                                                Editor& editor, const Context& context);
  // Also what LookUp has read, or what the store has.
  absl::StatusOr<RequestRows::FoundRequest> FindRow(const NamedRequest& named);
  absl::StatusOr<Outcome> ReplayRow(const Command& command, const RequestRow& row, Editor& editor,
                                    const Context& context);
  Outcome ReplayEnqueue(const RequestRow& row) const;
  // The row of the request, as its claim in the state says: it waits, or is held.
  std::optional<RequestRow> FindHere(const RequestKey& request) const;
  Id Fingerprint(const Command& command) const;
  void NameClients(Transaction* transaction);
  void RaiseFloor(const RequestKey& request, Transaction* transaction);
  void ForgetClients(Transaction* transaction);

  const Sources sources_;
  const std::function<SteadyTime()> now_;
  const uint64_t window_;
  const uint32_t clients_max_;
  const std::chrono::milliseconds client_retention_;
  Clients clients_;
  uint64_t batch_ = 0;           // Counts batches.
  std::vector<uint32_t> added_;  // Clients that are new since a commit won.
  std::vector<NamedRequest> assumed_new_;
  OneShots one_shots_;
  // By client id and the rest of the request's key: the client may have no number yet.
  using LookedUpKey = std::pair<std::string, RequestKey>;
  static LookedUpKey LookedUpKeyOf(const NamedRequest& named);
  absl::flat_hash_map<LookedUpKey, RequestRows::FoundRequest> looked_up_;
  std::vector<std::string> stale_;
  Id of_whole_;
  uint32_t affected_before_ = 0;
};

}  // namespace semaphored::ledger
