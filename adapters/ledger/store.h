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
#include "adapters/ledger/news.h"
#include "adapters/ledger/state/permits.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/types.h"

namespace semaphored::ledger {

struct LoadedSemaphore {
  SemaphoreRow row;
  std::vector<LeasePtr> leases;         // In any order.
  std::vector<WaiterPtr> waiters;       // In any order.
  std::vector<TicketPtr> tickets = {};  // In any order.
};

struct LoadedClient {
  uint32_t number = 0;
  std::string client_id;
  uint64_t sequence_high = 0;  // The highest that has a row; 0: none.
};

struct Image {
  std::vector<LoadedSemaphore> semaphores;
  std::vector<SessionPtr> sessions;
  std::vector<LoadedClient> clients;
  // Of these something is there that is not understood, and why. What was known of them before
  // stays as it was, since nobody can change it; whoever asks is told.
  std::vector<std::pair<std::string, absl::Status>> damaged;
};

struct CommitResult {
  enum class Kind : uint8_t {
    kWon,      // Durable. Lease::token of each grant has been set.
    kLost,     // Nothing was written: a condition did not hold. `stale` names what must be loaded
               // again.
    kUnknown,  // Perhaps written, perhaps not, perhaps yet to come: only Settle can tell.
    kFailed,   // Nothing was written and nothing will be: `status` says why. OUT_OF_RANGE: it is
               // more than the engine takes at once; a part of it may go through.
  };
  Kind kind = Kind::kWon;
  std::vector<std::string> stale;
  // kLost: one of the requests to be inserted, or to be absent, has a row, or is below its floor.
  // They are looked up before the batch is decided again.
  bool requests_lost = false;
  // kFailed with these: other clients of the engine keep them locked. Without them it may go
  // through.
  std::vector<std::string> busy;
  absl::Status status;
};

class LedgerStore {
 public:
  virtual ~LedgerStore() = default;

  virtual const Guarantees& guarantees() const = 0;

  // All that it has is in the ledger's state, and nobody else changes it. Where it says "exclusive
  // store" below, this is meant.
  virtual bool owns_state() const { return guarantees().exclusive; }

  // Set for a store that hands out permits; it then owns its state, keeps no claims, and
  //   * Load gives rows only, asked for when a semaphore is first spoken of and now and then after;
  //     their revision rises with each change of the row, by whatever daemon, and never with a
  //     claim;
  //   * Commit gives back what has ended, and sets SemaphoreDelta::revision where the row changed;
  //   * a hint with a revision other than the known one: the row is to be read; without: permits
  //     have come, or there may be some.
  virtual PermitSource* permits() { return nullptr; }

  // Everything, as one snapshot. An exclusive store is asked for this once, at the start.
  virtual absl::StatusOr<Image> LoadAll() = 0;

  // One snapshot of these semaphores, the sessions and clients that they speak of. A name that does
  // not exist is left out. Not asked of an exclusive store.
  virtual absl::StatusOr<Image> Load(absl::Span<const std::string> names) = 0;

  // The same for being shown only: sessions and clients may be left out, and no later commit rests
  // on it, as the ledger goes on with what it was told by Load.
  virtual absl::StatusOr<Image> Look(absl::Span<const std::string> names) { return Load(names); }

  // Names among `semaphores` whose revision in the engine is not that of the row (0: must not
  // exist). An answer that changes nothing rests on this. Not asked of an exclusive store.
  virtual absl::StatusOr<std::vector<std::string>> Changed(
      absl::Span<const SemaphoreRow* const> semaphores) = 0;

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

  // The rows of requests, one for each that is asked for, in that order. `too_old`: there is no row,
  // and one that there was may have been forgotten: the sequence number is below the client's floor,
  // or a row with a number that is higher by `window` exists. Row and floor are those of one moment.
  // The rows name the clients by the numbers asked with.
  struct FoundRequest {
    std::optional<RequestRow> row;
    bool too_old = false;
  };
  virtual absl::StatusOr<std::vector<FoundRequest>> FindRequests(
      absl::Span<const NamedRequest> requests, uint64_t window) = 0;

  // A session's row and the names of the semaphores in which it has claims; nullptr row: there is
  // none. Not asked of an exclusive store.
  struct SessionAt {
    SessionPtr session;
    std::vector<std::string> semaphores;
  };
  virtual absl::StatusOr<SessionAt> LoadSession(const Id& session) = 0;

  // What is hosted on `nodes`, in these incarnations or earlier ones: the names of all semaphores
  // that have such claims, or tickets whose delay is counted there, and all such sessions, those
  // without claims too. Not asked of an exclusive store.
  struct Hosted {
    std::vector<std::string> semaphores;
    std::vector<SessionPtr> sessions;
  };
  virtual absl::StatusOr<Hosted> HostedBy(absl::Span<const NodeRef> nodes) = 0;

  // Names of existing semaphores from `after` (not itself) on. Not asked of an exclusive store.
  virtual absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                         const std::string& after,
                                                         uint32_t rows_max) = 0;

  // Newest first, below `before` (0: from the newest). Empty name: of all.
  virtual absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string& semaphore,
                                                              uint64_t before,
                                                              uint32_t rows_max) = 0;

  // Which semaphores others have changed, as far as the engine has told, in the order in which it
  // did. Waits for one until `deadline` or Wake(); a deadline in the past: only takes what is
  // there. It may miss, or tell too much.
  virtual absl::StatusOr<std::vector<Hint>> Wait(SteadyTime deadline) = 0;

  // What the hint says of the change itself; nullopt: nothing that this daemon understands. Asks
  // nobody.
  virtual std::optional<News> ReadNews(const Hint&) { return std::nullopt; }

  // True if hints may have been lost since the last call (the connection was made anew).
  virtual bool TakeMissedHints() { return false; }

  // Ends what other clients of the engine have left behind on these semaphores, by those clients'
  // own rule, as they would themselves when they look next. For semaphores on which somebody waits.
  virtual absl::Status EndForeign(absl::Span<const std::string>) { return absl::OkStatus(); }

  // Why nothing can be granted of this semaphore, though there may be room, and what can be done;
  // as it was when it was last loaded. It is for the store to load it so that there is no room.
  // DATA_LOSS: a higher limit would make none either. Asks nobody.
  virtual absl::Status WhyUnusable(const std::string&) { return absl::OkStatus(); }

  // Puts right what people or other clients of the engine have left of the semaphore; it is then
  // loaded again. nullopt: on this engine nothing has ever to be put right.
  virtual absl::StatusOr<std::optional<Pruned>> Repair(const std::string&) {
    return std::optional<Pruned>();
  }

  // True while nothing may be granted: the engine may have lost commits, and the leases in them
  // have not yet run out.
  virtual bool GrantsWithheld() { return false; }

  // Clients of whom `in_use` says no are not spoken of any more by their numbers.
  virtual void ForgetClientsBut(const std::function<bool(uint32_t)>&) {}

  // Ends a Wait, this one or the next. Any thread.
  virtual void Wake() = 0;
};

}  // namespace semaphored::ledger
