// One prune: finds and mends what a semaphore may have been left with: tokens twice, tokens above the limit, tokens
// that have gone, and messages that are no tokens. It never makes too many.
//
// An extra message of the recipe raises the limit: it is replaced by a token of a new slot.
//
// A consumer of the highest priority collects all that is free. A token that is then missing is either held or lost. A
// quorum queue counts everything that has a message of it as a consumer, even a consumer that was cancelled, and a
// client that asked for one message only: if none is left but ours, the missing tokens are lost, and are made again.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/common/upkeep.h"
#include "adapters/ledger/state/permits.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/rabbitmq/used_semaphores.h"

namespace semaphored::rabbitmq {

// Before a name, on the exchange of changes: a daemon is about to collect what is free of it.
inline constexpr std::string_view kPruning = "pruning ";

class TokenPrune {
 public:
  // All outlive it; `used` is one of `all`. `limit_max`: no extra message is taken in above it.
  TokenPrune(Connection* holding, TokenBroker* broker, Upkeep* upkeep, UsedSemaphores* all,
             UsedSemaphore* used, uint32_t limit_max);

  // Blocks for some seconds at most. REQUIRES: the caller has both mutexes of the semaphore. What was collected goes
  // back, also after an error. UNAVAILABLE: its permits pass from hand to hand, or the queue has gone meanwhile; it may
  // be tried again.
  absl::StatusOr<ledger::Pruned> Run();

 private:
  // The queue has gone: it is made again, with all tokens.
  absl::Status Remake();
  absl::Status CollectAndMend();
  void Add(Delivery delivery);
  // Until nothing has come for a while.
  absl::Status Collect();
  absl::Status Mend();
  // Second tokens, and tokens above the limit.
  absl::Status RemoveExcess();
  // Leaves in strangers_ what is to go back.
  absl::Status TakeInStrangers();
  absl::Status MakeLostAgain();
  absl::Status GiveBack();
  // How many consumers of the queue are ours.
  size_t OwnConsumers() const;
  absl::Status KeepIfThere(absl::StatusOr<std::optional<StoredSemaphore>> stored);

  Connection* const holding_;
  TokenBroker* const broker_;
  Upkeep* const upkeep_;
  UsedSemaphores* const all_;
  UsedSemaphore* const used_;
  const uint32_t limit_max_;
  ledger::Pruned pruned_;
  std::map<uint32_t, Delivery> tokens_;  // By slot.
  std::vector<Delivery> others_;         // Second tokens of a slot.
  std::vector<Delivery> strangers_;      // Messages that are not tokens.
  std::set<uint32_t> seen_;              // Slots of `tokens_`, and of what our leases hold.
};

}  // namespace semaphored::rabbitmq
