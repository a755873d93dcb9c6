// What is in a semaphore's partition, and reading it so that all of it is of one moment. DynamoDB reads a partition page
// by page while others write to it; the HEAD's digest tells whether what was read belongs together.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/dynamodb/items.h"
#include "adapters/dynamodb/requests.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {

struct Folder {
  std::string name;
  Head head;
  std::vector<LeasePtr> leases;
  std::vector<WaiterPtr> waiters;
  std::vector<TicketPtr> tickets;
  bool exists = false;
  bool is_moment = true;  // All of it is of one moment: the digest is that of the head.
  absl::Status damage;    // Not OK: something is not understood, and nothing else in here counts.
};

// One lane's; used by its thread.
class FolderReader {
 public:
  // `client` outlives it. `timeout`: of each request.
  FolderReader(Client* client, std::string table, NumberOfClient number_of_client,
               std::chrono::milliseconds timeout)
      : client_(client),
        table_(std::move(table)),
        number_of_client_(std::move(number_of_client)),
        timeout_(timeout) {}

  // One for each name, in order. Each of one moment, or damaged; of one that changes faster than it can be read, though
  // its writers were made to pause, the damage is UNAVAILABLE. Blocks; an error says that DynamoDB does not answer.
  absl::StatusOr<std::vector<Folder>> Read(const std::vector<std::string>& names);

 private:
  SteadyTime Deadline() const { return SteadyClock::now() + timeout_; }
  Folder ReadOne(const std::string& name, const std::vector<json>& items);
  uint64_t MakeWritersPause(const std::string& name);

  Client* const client_;
  const std::string table_;
  const NumberOfClient number_of_client_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace semaphored::dynamodb
