// layout=tokens, as the broker keeps it; ADR 0008 says why it is so.
//
//   <name>.semaphore            a quorum queue with one message for each permit: its slot, and the
//                               base of its fencing tokens
//   <name>.semaphore.settings   a quorum queue with one message: limit, settings, slots. (More than
//                               one after a crash: the highest version counts.)
//   <name>.semaphore.admin      an exclusive queue: the mutex of administrative acts
//   semaphored.generation       a quorum queue with one message: a number that rises each time that
//                               tokens are published
//
// On one connection, used by one thread; all calls block for some round trips.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/types.h"

namespace semaphored::rabbitmq {

// A semaphore as the broker has it.
struct StoredSemaphore {
  uint64_t version = 0;
  // revision and next_order are each daemon's own and not kept here.
  SemaphoreRow row;
  std::set<uint32_t> slots;     // That have a token.
  std::set<uint32_t> doubtful;  // Of these it is not known whether their token arrived.
};

// A permit's message.
struct Token {
  uint32_t slot = 0;
  uint64_t base = 0;
};
std::string TokenText(const Token& token);
// nullopt: it is none of ours.
std::optional<Token> ReadToken(const std::string& text);

std::string TokenQueue(const std::string& name);

class TokenBroker {
 public:
  // Outlives the broker; is open when a call is made.
  explicit TokenBroker(Connection* connection) : connection_(connection) {}

  // nullopt: there is none.
  absl::StatusOr<std::optional<StoredSemaphore>> Read(const std::string& name);

  // Makes it, with its tokens. ALREADY_EXISTS: it is there.
  absl::Status Create(const SemaphoreRow& row);
  // Also if it is not there, or only in part.
  absl::Status Destroy(const std::string& name);
  // Limit and settings as in `row`. More tokens are published at once; what is too much stays, for
  // whoever takes it out (Remove). What it comes to.
  absl::StatusOr<StoredSemaphore> Update(const SemaphoreRow& row);

  // Taking tokens out for good: while it is locked, a token that was acknowledged is struck from
  // the settings. UNAVAILABLE: another connection has the mutex.
  absl::Status Lock(const std::string& name);
  // Asks once.
  absl::Status TryLock(const std::string& name);
  absl::Status Unlock(const std::string& name);
  absl::Status Strike(const std::string& name, const std::set<uint32_t>& slots);

 private:
  absl::Status Write(Channel channel, StoredSemaphore* stored);
  absl::StatusOr<uint64_t> NextGeneration();
  // Publishes tokens of the slots that are missing up to the limit.
  absl::Status Fill(Channel channel, StoredSemaphore* stored);
  absl::StatusOr<std::optional<StoredSemaphore>> ReadOn(Channel channel, const std::string& name,
                                                        uint64_t drop_below);
  absl::StatusOr<Channel> NewChannel();

  Connection* connection_;
};

}  // namespace semaphored::rabbitmq
