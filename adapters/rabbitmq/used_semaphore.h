// A semaphore that is in use here: its row as it was last read, this daemon's tokens of it, and, where it has more
// tokens than its limit, the taking out of what is too much. One daemon takes tokens out at a time, under a mutex in
// the broker, with a consumer that comes before all others. Used by the thread of the connections.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/rabbitmq/used_tokens.h"

namespace semaphored::rabbitmq {

class UsedSemaphore {
 public:
  // All outlive it. `holding`: the connection of the permits; `administering`: the broker's.
  UsedSemaphore(std::string name, Connection* holding, Connection* administering,
                TokenBroker* broker)
      : name_(std::move(name)),
        holding_(holding),
        administering_(administering),
        broker_(broker),
        tokens_(holding, broker->TokenQueue(name_)) {}

  const std::string& name() const { return name_; }
  UsedTokens& tokens() { return tokens_; }
  const UsedTokens& tokens() const { return tokens_; }

  // ---- The row ----

  const StoredSemaphore& stored() const { return stored_; }
  void Keep(StoredSemaphore stored);
  // The broker's may be another by now.
  void MarkStale() { stale_ = true; }
  bool is_stale() const { return stale_; }
  // It is stale, or was read so long ago that a change notice may have been lost.
  bool IsOld(SteadyTime now) const;

  // ---- In which step of the store something was last asked of the broker, which one step asks once ----

  uint64_t asked_in_step() const { return asked_in_step_; }
  void MarkAsked(uint64_t step) { asked_in_step_ = step; }
  // True: its queue was looked for in this step before.
  bool MarkChecked(uint64_t step) { return std::exchange(checked_in_step_, step) == step; }

  // ---- What falls due ----

  // Begins and ends consumers as the row and the waiters want it, and the taking out of tokens. Blocks. Without a
  // connection it does nothing.
  absl::Status Tend();
  // What a consumer of the channel was sent. True: a permit may have come. Only sends.
  bool OnDelivery(Delivery delivery);
  // An extra message; the first one is logged.
  void KeepStranger(Delivery delivery);
  // Gives up all that was had through the channel. The claims whose permits went with it.
  std::vector<Id> Lose();

  // ---- Taking out ----

  bool is_shrinking() const { return shrinking_ != nullptr; }
  // When to look whether the daemon that takes tokens out still does; SteadyTime::max(): none need.
  SteadyTime NextShrink() const;
  // Not before some seconds from now.
  void PutShrinkOff();
  // This daemon takes no more out; the mutex, if it has had it.
  std::unique_ptr<Mutex> StopShrinking();
  // Slots whose tokens were taken out, and which are not struck.
  const std::set<uint32_t>& removed() const { return removed_; }
  // Strikes them; blocks. True: the row is another one. An error: it is to be tried again.
  absl::StatusOr<bool> StrikeRemoved();

 private:
  absl::Status Shrink();
  void OnShrinking(Delivery delivery);

  const std::string name_;
  Connection* const holding_;
  Connection* const administering_;
  TokenBroker* const broker_;
  UsedTokens tokens_;
  StoredSemaphore stored_;
  bool stale_ = false;
  SteadyTime read_at_{};
  uint64_t asked_in_step_ = 0;
  uint64_t checked_in_step_ = 0;
  std::set<uint32_t> removed_;
  std::unique_ptr<Mutex> shrinking_;  // Set: this daemon takes out what is too much.
  SteadyTime shrink_again_{};
};

}  // namespace semaphored::rabbitmq
