// How an adapter on the ledger's rules works: its limits, what it remembers, and its clocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "adapters/adapter.h"
#include "adapters/ledger/limit_use.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/state/owner_book.h"
#include "adapters/watched_names.h"

namespace semaphored::ledger {

struct LedgerOptions {
  NodeRef self;
  Limits limits;
  // Answers remembered for each client; a request id that is lower by more is refused as too old.
  uint64_t request_window = 1024;
  // Clients that may be remembered. The ones silent for longest are forgotten first, after
  // client_retention.
  uint32_t clients_max = 200'000;
  std::chrono::milliseconds client_retention = std::chrono::hours(1);
  // Rows of requests with a one-shot id that this lane may have caused and remembers; the engine may take
  // fewer (Guarantees). With so many a new id is refused. Each stays for request_retention after its
  // claim has ended, or after its act.
  uint32_t one_shot_requests_max = 200'000;
  std::chrono::milliseconds request_retention = std::chrono::minutes(10);
  // Another daemon was first this many times, or until the Step's deadline: the batch then fails
  // with ABORTED. The store takes a lock well before.
  int attempts_max = 50;
  // Claims and tickets that one commit changes at most for acts that later commits carry on; fewer where the engine takes
  // fewer. And the time for which a Step carries them on before it returns.
  uint32_t changes_per_commit_max = 256;
  std::chrono::milliseconds carry_on_time{50};
  // Waiters that one commit grants to at most; fewer where the engine takes fewer (Guarantees). 0: no other bound.
  uint32_t grants_per_commit_max = 0;
  // Semaphores that one Step reads at most to move a session here, before it returns.
  uint32_t read_to_adopt_max = 2'048;
  // How often every semaphore with waiters of this daemon is read again, in case a notice was lost.
  std::chrono::milliseconds sweep_interval = std::chrono::seconds(5);
  // The time without commits to a semaphore that another client of the engine keeps locked.
  std::chrono::milliseconds busy_pause{1000};
  // The time without commits to a semaphore in quarantine: the first time, and at most.
  std::chrono::milliseconds quarantine_pause{1000};
  std::chrono::milliseconds quarantine_pause_max{60'000};
  // The names that clients watch: StepResult::changes has only their changes. Null: no changes.
  std::shared_ptr<const WatchedNames> watched;
  // Where this lane shows how much of its limits is in use. Null: nowhere.
  std::shared_ptr<LimitUse> use;
  // With which lanes this one counts what each identity has made. The book belongs to one life of a daemon.
  OwnerCounting owners;
  // Wall time, for people; steady time, for all that decides.
  std::function<int64_t()> now_unix_ms;
  std::function<SteadyTime()> now;
};

}  // namespace semaphored::ledger
