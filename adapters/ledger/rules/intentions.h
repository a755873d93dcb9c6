// What is left to do of an act that is larger than one commit. The act's own commit writes it into the
// semaphore's row, with all that binds from then on (the limit, `destroying`, the stored answer); later
// commits carry it on, a bounded number of changes each, whichever daemon makes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/ledger/rules/rules.h"

namespace semaphored::ledger {

// Leases to recall, or with kNow to end: those that stood when the act was committed. A token
// tells: later grants of the semaphore have higher ones.
struct Revocation {
  std::string holder;  // Empty: of any holder.
  int64_t grace_ms = 0;
  uint64_t token_max = 0;
};

struct Intentions {
  NodeRef host;  // The daemon that carries it on, while it lives.
  // Waiters that can never be granted are to leave the queue: of a semaphore that is destroyed all.
  bool dismiss = false;
  // Of one that is destroyed: leases are recalled with this grace, and tickets go, a worker's with its lease.
  std::optional<int64_t> force_grace_ms;
  // The leases beyond the limit are to be recalled, with this grace. A raised limit ends it early.
  std::optional<int64_t> shrink_grace_ms;
  std::vector<Revocation> revocations;

  bool empty() const {
    return !dismiss && !force_grace_ms && !shrink_grace_ms && revocations.empty();
  }
};

// Revocations of one semaphore that may be under way at the same time.
inline constexpr size_t kRevocationsMax = 16;

// JSON; of empty intentions the empty text.
std::string Encode(const Intentions& intentions);
// Of a text that Encode did not make: empty ones.
Intentions Decode(const std::string& text);

// Does as much of `left` as this commit may still change (Context::changes_max), and writes the rest
// into the row. `act`: the act itself calls it, so that leases of this very batch, which have no token
// yet, are among those that it revokes, whatever the bound is. Does not grant, and does not remove the
// semaphore: AfterRoom does both, and is to follow.
void CarryOn(Editor& editor, Semaphore* semaphore, Intentions left, const Context& context,
             bool act);

}  // namespace semaphored::ledger
