// What this daemon has of one semaphore's tokens: the permits of its claims, tokens that no claim has yet, extra
// messages, and consumers for the claims that wait. All of it is on one channel of the connection that holds permits,
// and goes back to the queue when that channel goes. Used by the thread of the connection; calls that ask the broker
// block for some round trips, and say so by returning a status, unless the comment says that they only send.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/types.h"

namespace semaphored::rabbitmq {

class UsedTokens {
 public:
  struct Held {
    uint64_t delivery_tag = 0;
    std::string consumer_tag;  // Empty: it was asked for by itself.
    uint32_t slot = 0;
  };

  // Opens nothing. `connection` outlives it. `queue`: of the tokens.
  UsedTokens(Connection* connection, std::string queue)
      : connection_(connection), queue_(std::move(queue)) {}

  // Opens the channel unless it is open. OUT_OF_RANGE: the connection has as many as may be.
  absl::StatusOr<Channel> Open();
  bool is_open() const { return connection_->is_open(channel_); }
  bool is_late() const { return connection_->is_late(channel_); }
  // It was opened, and the broker has closed it: Lose.
  bool is_closed() const { return channel_ != 0 && connection_->is_open() && !is_open(); }
  // 0: none was opened.
  Channel channel() const { return channel_; }
  // Closes the channel, and gives up all. The claims whose permits went with it.
  std::vector<Id> Lose();

  // ---- Permits ----

  const absl::flat_hash_map<Id, Held>& held() const { return held_; }
  // The claim has what was delivered.
  void Hold(const Id& claim, const Delivery& delivery, uint32_t slot);
  // Sends back what the claim has, if it has something. Should it not arrive, the channel has gone with it.
  absl::Status GiveBack(const Id& claim);
  // What was delivered first and is no claim's; nullopt: nothing is.
  std::optional<Delivery> TakeSpare();
  bool has_spare() const { return !spare_.empty(); }
  void AddSpare(Delivery delivery);
  // Removes what was delivered from the queue. Only sends.
  absl::Status Discard(const Delivery& delivery);
  // Permits of claims, and spare tokens.
  size_t here() const { return held_.size() + spare_.size(); }
  // When something was last given back: the broker counts it a moment later.
  SteadyTime given_back_at() const { return given_back_at_; }

  // ---- Extra messages, which only a prune takes in. They are kept out of the queue, whose head they would block. ----

  void KeepStranger(Delivery delivery);
  bool has_strangers() const { return !strangers_.empty(); }
  std::vector<Delivery> TakeStrangers() { return std::exchange(strangers_, {}); }
  // Sends them back.
  absl::Status GiveBackStrangers();

  // ---- Claims that wait, and their consumers ----

  void AddWaiting(int32_t priority) { ++waiting_[priority]; }
  void RemoveWaiting(int32_t priority);
  bool has_consumers() const { return !consumers_.empty(); }
  // A consumer for each priority that waits, with room for as many tokens as there are waiters; none for a semaphore
  // that is paused or going. REQUIRES: the channel is open, if a claim waits or there is a consumer or a spare token.
  absl::Status Tend(const SemaphoreRow& row);
  // Nothing waits, and there is neither a consumer nor a spare token.
  bool is_idle() const { return waiting_.empty() && consumers_.empty() && spare_.empty(); }
  // When consumers without waiters, or spare tokens, are to go back; SteadyTime::max(): there are none.
  SteadyTime NextDrop() const;
  // Cancels these consumers, and gives the tokens back if none waits.
  absl::Status DropUnwanted();
  // Gives back the spare tokens, too.
  absl::Status CancelAll();

  // ---- Consumers of any purpose. One that is begun or cancelled without an answer may stand, or come to. ----

  absl::Status Begin(const std::string& tag, size_t prefetch, int32_t priority);
  absl::Status Cancel(const std::string& tag);
  // The channel answers again: cancels those.
  absl::Status CancelDoubtful();

 private:
  struct Consumer {
    std::string tag;
    uint32_t prefetch = 0;
    uint32_t outstanding = 0;  // Deliveries that have not been given back.
  };

  // Of what this consumer has been sent, something goes back or away.
  void GetsRoom(const std::string& consumer_tag);
  absl::Status CancelTags(const std::vector<std::string>& tags);
  using Consumers = std::map<int32_t, Consumer>;
  // *at is then the next one.
  absl::Status CancelOne(Consumers::iterator* at);

  Connection* const connection_;
  const std::string queue_;
  Channel channel_ = 0;
  absl::flat_hash_map<Id, Held> held_;
  std::deque<Delivery> spare_;
  std::vector<Delivery> strangers_;
  std::map<int32_t, uint32_t> waiting_;  // By priority.
  Consumers consumers_;                  // By priority.
  uint64_t tags_ = 0;
  std::vector<std::string> doubtful_tags_;
  SteadyTime unwanted_since_{};  // Since then a consumer has had no waiters; 0: each has some.
  SteadyTime given_back_at_{};
};

}  // namespace semaphored::rabbitmq
