// What lists show of semaphores that are not in use here: their rows, kept until a change notice comes, and how many
// permits are held, asked of the broker each time. Used by the thread of the connections.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/permit_store.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/types.h"

namespace semaphored::rabbitmq {

class ShownSemaphores {
 public:
  // Reads a row; nullopt: there is none.
  using ReadRow =
      std::function<absl::StatusOr<std::optional<StoredSemaphore>>(const std::string& name)>;

  // Both outlive it.
  ShownSemaphores(Connection* connection, const TokenBroker* broker, ReadRow read)
      : connection_(connection), broker_(broker), read_(std::move(read)) {}

  // As PermitStore::Look. Blocks for a round trip, or some more where the row is not known.
  absl::StatusOr<std::optional<PermitStore::Shown>> Look(const std::string& semaphore);
  // It has changed, or is in use here now.
  void Forget(const std::string& semaphore) { rows_.erase(semaphore); }
  // The connection is a new one: change notices may have been missed, and the channel's number may be another's.
  void BeginLife() {
    rows_.clear();
    channel_ = 0;
  }

 private:
  struct Row {
    SemaphoreRow row;
    uint32_t tokens = 0;
    SteadyTime read_at{};
  };

  Connection* const connection_;
  const TokenBroker* const broker_;
  const ReadRow read_;
  absl::flat_hash_map<std::string, Row> rows_;
  Channel channel_ = 0;
};

}  // namespace semaphored::rabbitmq
