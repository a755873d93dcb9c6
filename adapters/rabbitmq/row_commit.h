// What the broker has to know of a transaction: the rows of the semaphores that it makes, changes or destroys. Each act
// has a number that is written with the row; by it the act is found when its answer was lost. Used by the thread of the
// connections; calls block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/rabbitmq/used_semaphores.h"

namespace semaphored::rabbitmq {

class RowCommit {
 public:
  // Both outlive it.
  RowCommit(TokenBroker* broker, UsedSemaphores* used) : broker_(broker), used_(used) {}

  // The row stays as it is, and so its revision, which is set. Does not block.
  static bool IsSame(ledger::SemaphoreDelta* delta);
  // Writes the row, and sets the revision; the semaphore is then in use here, or, destroyed, no more. nullopt: it is
  // not known whether it stands, and it is to be applied `again`, before any other. ALREADY_EXISTS, NOT_FOUND, ABORTED:
  // another daemon was first.
  std::optional<absl::Status> Apply(ledger::SemaphoreDelta* delta, bool again);

 private:
  std::optional<absl::Status> Destroy(const std::string& name, bool again);
  absl::StatusOr<StoredSemaphore> Write(const ledger::SemaphoreDelta& delta, bool again,
                                        bool* unknown);

  TokenBroker* const broker_;
  UsedSemaphores* const used_;
  uint64_t act_ = 0;        // The last one's number, …
  std::string act_failed_;  // … and why its answer was lost.
};

}  // namespace semaphored::rabbitmq
