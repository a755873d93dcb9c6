// The semaphores that are in use here, and the claims that have lost their permits. It reads their rows from the broker
// when they are asked for and may have changed. Used by the thread of the connections; pointers are good until the
// next call that is not const.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/common/upkeep.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/permit_store.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/rabbitmq/used_semaphore.h"

namespace semaphored::rabbitmq {

class UsedSemaphores {
 public:
  // All outlive it. `holding`: the connection of the permits; `administering`: the broker's.
  UsedSemaphores(Connection* holding, Connection* administering, TokenBroker* broker,
                 Upkeep* upkeep)
      : holding_(holding), administering_(administering), broker_(broker), upkeep_(upkeep) {}

  // nullptr: it is not in use here. Does not block.
  UsedSemaphore* Find(const std::string& name);
  // The one with this channel, likewise.
  UsedSemaphore* OfChannel(Channel channel);
  // All, by name.
  std::map<std::string, UsedSemaphore>& all() { return used_; }

  // With its row of now: read again if it may be another, or else the queue of tokens is looked for; it is in use from
  // then on. nullptr: the semaphore is not there, and what was had of it is lost. DEADLINE_EXCEEDED: its queues do not
  // answer, or did not of late. OUT_OF_RANGE: the connection has no channel left.
  absl::StatusOr<UsedSemaphore*> Read(const std::string& name);
  // The row alone; it does not come to be in use by this. nullopt: there is none.
  absl::StatusOr<std::optional<StoredSemaphore>> ReadRow(const std::string& name);
  // In use from now on, with this row.
  UsedSemaphore* Keep(const std::string& name, StoredSemaphore stored);
  // In use no more; what it had goes back. `ended`: its claims have ended with it, and have not lost their permits.
  void Drop(const std::string& name, bool ended);
  // Begins and ends consumers. An error is reported to the upkeep: the next act, or event, tries again.
  void Tend(UsedSemaphore* used);

  // A daemon that holds permits and consumes nothing gets no notice that the queue has gone: if it has, they are lost.
  absl::Status LookForQueue(UsedSemaphore* used);
  // Its channel, opened unless it is open. Through another one than that which the broker has closed the claims would have
  // permits that have gone back: they are lost first. Not while a batch is decided.
  absl::StatusOr<Channel> Open(UsedSemaphore* used);
  // The channel, or the queue, has gone with all that was held through it.
  void Lose(UsedSemaphore* used);
  void LoseAll();
  // All whose channel the broker has closed, also where the event of that was not handled. Their names.
  std::vector<std::string> LoseClosed();
  bool any_lost() const { return !lost_.empty(); }
  std::vector<LostPermit> TakeLost() { return std::exchange(lost_, {}); }

 private:
  Connection* const holding_;
  Connection* const administering_;
  TokenBroker* const broker_;
  Upkeep* const upkeep_;
  std::map<std::string, UsedSemaphore> used_;
  std::vector<LostPermit> lost_;
  // Whose settings did not answer: they are not asked for before.
  std::map<std::string, SteadyTime> silent_until_;
};

}  // namespace semaphored::rabbitmq
