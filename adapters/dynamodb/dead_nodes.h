// Removes the items of dead nodes of which nothing is left: no session, no claim without a session, no delay of a
// ticket. A dead node writes nothing more, so what is left of it only becomes less. Used by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/common/upkeep.h"
#include "adapters/dynamodb/client.h"
#include "adapters/dynamodb/items.h"
#include "adapters/steady_clock.h"
#include "adapters/types.h"

namespace semaphored::dynamodb {

class DeadNodes {
 public:
  // Something was left of a node: for so long, doubled each time, it is not looked at again.
  static constexpr std::chrono::milliseconds kFirstPause = std::chrono::minutes(1);
  static constexpr int kDoublings = 4;

  // `client` outlives this. What is not removed now, and is found again, is reported to `upkeep`.
  DeadNodes(Client* client, std::string table, std::chrono::milliseconds first_pause,
            std::shared_ptr<Upkeep> upkeep)
      : client_(client),
        table_(std::move(table)),
        first_pause_(first_pause),
        upkeep_(std::move(upkeep)) {}

  // Looks at those of the nodes that are dead and due, removes the items of those of which nothing is left, and returns these. Costs a
  // read unit for each, and one for each semaphore in which it had claims. Blocks for about kTurn, or until
  // `deadline` if the engine is slow.
  absl::StatusOr<std::vector<NodeRef>> RemoveSome(const std::vector<NodeStore::Node>& nodes,
                                                  SteadyTime now, SteadyTime deadline);

  static constexpr std::chrono::milliseconds kTurn{100};

 private:
  enum class Left : uint8_t { kNothing, kSomething, kPerhaps };
  struct Seen {
    int looks = 0;  // In vain.
    SteadyTime due{};
  };

  // Of each of them: what is left. kPerhaps: a part of it was looked at, and is removed.
  absl::StatusOr<std::vector<Left>> LookAt(absl::Span<const NodeStore::Node* const> nodes,
                                           SteadyTime deadline);
  // Whether the node has claims without sessions, or counts delays, in each of these semaphores.
  absl::StatusOr<std::vector<bool>> HasClaims(
      const std::vector<std::pair<uint32_t, std::string>>& at, SteadyTime deadline);

  Client* const client_;
  const std::string table_;
  const std::chrono::milliseconds first_pause_;
  const std::shared_ptr<Upkeep> upkeep_;
  std::map<std::pair<uint32_t, uint32_t>, Seen> seen_;  // By number and incarnation.
};

}  // namespace semaphored::dynamodb
