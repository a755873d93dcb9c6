// A store to which several daemons write: beside what every store does, it reports what other daemons have changed. Used
// by one thread at a time, except for Wake(); never throws.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/ledger/state/permits.h"
#include "adapters/ledger/store.h"

namespace semaphored::ledger {

class SharedStore : public LedgerStore {
 public:
  SharedStore* shared() override { return this; }

  // UNIMPLEMENTED: a shared store is not loaded as a whole.
  absl::StatusOr<Image> LoadAll() override {
    return absl::UnimplementedError("a shared store is not loaded as a whole");
  }

  // These semaphores, with the sessions and clients that their rows name: each semaphore as it was at one moment, all of them
  // at moments after the call. A name that does not exist is left out.
  virtual absl::StatusOr<Image> Load(absl::Span<const std::string> names) = 0;

  // The same, for answers that only show it: sessions and clients may be left out, and rows where `counts` are given
  // instead. No commit rests on it: the ledger keeps what Load returned.
  virtual absl::StatusOr<Image> Look(absl::Span<const std::string> names) { return Load(names); }

  // Names among `semaphores` whose revision in the engine is not that of the row (0: must not
  // exist). An answer that changes nothing rests on this.
  virtual absl::StatusOr<std::vector<std::string>> Changed(
      absl::Span<const SemaphoreRow* const> semaphores) = 0;
  // Names of the semaphores whose conditions do not hold.
  absl::StatusOr<std::vector<std::string>> StaleOf(absl::Span<const ReadCondition> reads);

  // A session's row and the names of the semaphores in which it has claims; nullptr row: there is
  // none.
  struct SessionAt {
    SessionPtr session;
    std::vector<std::string> semaphores;
  };
  virtual absl::StatusOr<SessionAt> LoadSession(const Id& session) = 0;

  // What is hosted on `nodes`, in these incarnations or earlier ones: the names of all semaphores
  // that have such claims, or tickets whose delay is counted there, and all such sessions, those
  // without claims too.
  struct Hosted {
    std::vector<std::string> semaphores;
    std::vector<SessionPtr> sessions;
  };
  virtual absl::StatusOr<Hosted> HostedBy(absl::Span<const NodeRef> nodes) = 0;

  // Names of existing semaphores from `after` (not itself) on.
  virtual absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                         const std::string& after,
                                                         uint32_t rows_max) = 0;

  // What the notice says of the change itself; nullopt: nothing that this daemon understands. Sends
  // no request.
  virtual std::optional<ChangeDetails> ReadDetails(const ChangeNotice&) { return std::nullopt; }

  // True if notices may have been lost since the last call (the connection was made again).
  virtual bool TakeMissedNotices() { return false; }

  // Ends what other clients of the engine have left behind on these semaphores, by those clients'
  // own rule, as they would themselves when they look next. For semaphores that have waiters.
  virtual absl::Status EndForeign(absl::Span<const std::string>) { return absl::OkStatus(); }

  // Why nothing can be granted of this semaphore, though there may be room, and what can be done;
  // as it was when it was last loaded. It is for the store to load it so that there is no room.
  // DATA_LOSS: a higher limit would make none either. Sends no request.
  virtual absl::Status WhyUnusable(const std::string&) { return absl::OkStatus(); }

  // Puts right what people or other clients of the engine have left of the semaphore; it is then
  // loaded again. nullopt: on this engine nothing has ever to be put right.
  virtual absl::StatusOr<std::optional<Pruned>> Repair(const std::string&) {
    return std::optional<Pruned>();
  }

  // What clients of a recipe keep under this name, and, if it has `limit` permits, is unused and can be adopted, adopts
  // it: the semaphore then exists and is loaded. 0: nothing is changed. nullopt: no recipe is known on this engine.
  // REQUIRES: no semaphore of this name is loaded.
  virtual absl::StatusOr<std::optional<Adoptable>> Adopt(const std::string& /*name*/,
                                                         uint32_t /*limit*/) {
    return std::optional<Adoptable>();
  }

  // True while nothing may be granted: the engine may have lost commits, and the leases in them
  // have not yet run out.
  virtual bool GrantsWithheld() { return false; }

  // Forgets the numbers of the clients for which `in_use` returns false. No later row names them.
  virtual void ForgetClientsBut(const std::function<bool(uint32_t)>&) {}
};

}  // namespace semaphored::ledger
