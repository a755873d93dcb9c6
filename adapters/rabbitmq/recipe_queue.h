// A queue of the recipe, which is to become a semaphore.
//
// A queue's type and arguments cannot be changed, so it is deleted, and the semaphore's is made. Before that all of
// its messages are taken: then no program has a permit of it, and none gets one. One that comes meanwhile waits, and
// its consumer is cancelled when the queue goes. What dies in between gives the messages back.
//
// All calls block; errors as token_broker.h has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/ledger/store.h"
#include "adapters/rabbitmq/connection.h"

namespace semaphored::rabbitmq {

class RecipeQueue {
 public:
  // `connection` is open, and outlives it.
  RecipeQueue(Connection* connection, std::string queue)
      : connection_(connection), queue_(std::move(queue)) {}

  // nullopt: there is none.
  absl::StatusOr<std::optional<QueueState>> Find();
  // Takes all of its messages, and deletes it with them. FAILED_PRECONDITION: other programs consume from it, or it
  // does not have so many messages; DATA_LOSS: they are semaphored's own. Nothing was changed then (but a queue that
  // deletes itself may go).
  absl::Status Remove(uint32_t messages);

 private:
  absl::Status TakeAll(Channel channel, uint32_t messages);

  Connection* const connection_;
  const std::string queue_;
};

// What an adoption of `queue` would change, or why it is refused: Adoptable::refusal, without the adapter's name.
// `state`: of the queue; nullopt: there is none.
ledger::Adoptable DescribeRecipe(const std::string& queue, const std::optional<QueueState>& state,
                                 uint32_t limit_max);

}  // namespace semaphored::rabbitmq
