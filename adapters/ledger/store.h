// Where the ledger's rows are kept: one implementation for each engine, each in the engine's own
// shape. A store knows no rules; it loads, commits under conditions, and waits. It is used by one
// thread at a time, but for Wake(), and never throws.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/ledger/change_notice.h"
#include "adapters/ledger/request_rows.h"
#include "adapters/ledger/state/permits.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/types.h"

namespace semaphored::ledger {

struct LoadedSemaphore {
  SemaphoreRow row;
  std::vector<LeasePtr> leases;         // In any order.
  std::vector<WaiterPtr> waiters;       // In any order.
  std::vector<TicketPtr> tickets = {};  // In any order.
  // Only by SharedStore::Look, which then reads no rows.
  std::optional<SemaphoreCounts> counts = {};
};
SemaphoreCounts CountsOf(const std::vector<LeasePtr>& leases, const std::vector<WaiterPtr>& waiters,
                         const std::vector<TicketPtr>& tickets);

struct LoadedClient {
  uint32_t number = 0;
  std::string client_id;
  uint64_t sequence_high = 0;  // The highest that has a row; 0: none.
};

struct Image {
  std::vector<LoadedSemaphore> semaphores;
  std::vector<SessionPtr> sessions;
  std::vector<LoadedClient> clients;
  // One-shot requests that have rows in their last state. Only of a store that is loaded as a whole: a
  // shared store itself removes the rows that other lives of daemons have left.
  std::vector<Id> one_shots;
  // Semaphores with rows that cannot be read, and why. The state keeps what it had of them, since no daemon can change
  // it; a request for one of them reports why.
  std::vector<std::pair<std::string, absl::Status>> damaged;
};

struct CommitResult {
  enum class Kind : uint8_t {
    kWon,      // Durable. Lease::token of each grant has been set.
    kLost,     // Nothing was written: a condition did not hold. `stale` names what must be loaded
               // again.
    kUnknown,  // Written, not written, or still to be written: only Settle finds out.
    kFailed,   // Nothing was written and nothing will be: `status` says why. OUT_OF_RANGE: it is
               // larger than a commit may be; a part of it may succeed.
  };
  Kind kind = Kind::kWon;
  std::vector<std::string> stale;
  // kLost: one of the requests to be inserted, or to be absent, has a row, or is below its floor.
  // They are looked up before the batch is decided again.
  bool requests_lost = false;
  // kFailed with these: other clients of the engine keep them locked. A commit without them may succeed.
  std::vector<std::string> busy;
  absl::Status status;
};

// kFailed, for this reason.
inline CommitResult Failed(absl::Status status) {
  return {CommitResult::Kind::kFailed, {}, false, {}, std::move(status)};
}

// The semaphores that it writes, and those that it rests upon.
std::vector<std::string> NamesIn(const Transaction& transaction);

class SharedStore;

class LedgerStore : public RequestRows {
 public:
  virtual const Guarantees& guarantees() const = 0;

  // This store, if other daemons may write to it. nullptr: the ledger's state has all of its rows, and no other daemon
  // changes them (Guarantees::exclusive).
  virtual SharedStore* shared() { return nullptr; }

  // Everything, as one snapshot. Called once, at the start, and not of a shared store.
  virtual absl::StatusOr<Image> LoadAll() = 0;

  // All or nothing, durable when it has won. Sets the token of each lease that it grants: higher
  // than every token that the slot has ever had, also under another semaphore of the same name.
  // Raises each touched semaphore's revision by one. Blocks for at most the engine's time-out.
  virtual CommitResult Commit(Transaction& transaction, SteadyTime deadline) = 0;

  // After kUnknown, for the same transaction: finds out, by a conditional write over the same
  // revisions, so that the lost commit can no longer land later. Answers as Commit does.
  virtual CommitResult Settle(Transaction& transaction, SteadyTime deadline) = 0;

  // The payloads of tickets that a commit which has won brought; null for one that is not there any
  // more. DATA_LOSS: one of them is damaged. Asked only of a store with durable_tickets.
  struct TicketAt {
    std::string semaphore;
    Id ticket;
  };
  virtual absl::StatusOr<std::vector<PayloadPtr>> ReadPayloads(absl::Span<const TicketAt> tickets);

  // Newest first, below `before` (0: from the newest). Empty name: of all.
  virtual absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string& semaphore,
                                                              uint64_t before,
                                                              uint32_t rows_max) = 0;

  // The semaphores that other clients of the engine have changed, as the engine reports them, in its order. Waits for one
  // until `deadline` or Wake(); with a deadline in the past it returns what has been reported. It may miss some, or report
  // too many.
  virtual absl::StatusOr<std::vector<ChangeNotice>> Wait(SteadyTime deadline) = 0;

  // Ends a Wait, this one or the next. Any thread.
  virtual void Wake() = 0;
};

}  // namespace semaphored::ledger
