// Removes the keys of dead nodes of which nothing is left: no claim, no session, no delay of a ticket. A dead
// node writes nothing more, so what is left of it only becomes less; and a row that is gone fences its daemon as
// a row that says "dead" does (node_table.h). Used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/consul/client.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/steady_clock.h"
#include "adapters/types.h"

namespace semaphored::consul {

// The key of a dead node, as it was read.
struct DeadNode {
  NodeRef ref;
  std::string key;
  uint64_t index = 0;
};

class DeadNodes {
 public:
  // Both pointers outlive this. `pause`: between the end of one look at all semaphores and the next.
  DeadNodes(Client* client, const Keys* keys, std::chrono::milliseconds pause)
      : client_(client), keys_(keys), pause_(pause) {}

  // Goes on with the look that is under way, or begins one if it is time; removes the keys of those that it has
  // found to have nothing left, and returns them. `dead`: all that are dead now. Blocks for about kTurn.
  absl::StatusOr<std::vector<NodeRef>> RemoveSome(const std::vector<DeadNode>& dead,
                                                  SteadyTime now);

  static constexpr std::chrono::milliseconds kTurn{100};

 private:
  // Sets `names_` and counts the sessions' hosts.
  absl::Status Begin(const std::vector<DeadNode>& dead);
  // Some more of `names_`: whose claims are in them.
  absl::Status LookAtSome();
  void Count(NodeRef host) { in_use_.insert(host.number); }
  // False: one of them does not stand as it was read.
  absl::StatusOr<bool> Remove(const std::vector<DeadNode>& nodes);

  Client* const client_;
  const Keys* const keys_;
  const std::chrono::milliseconds pause_;
  bool looking_ = false;
  std::vector<DeadNode> found_;           // Were dead when the look began.
  std::vector<std::string> names_;        // Semaphores that are looked at, …
  size_t next_ = 0;                       // … from this one on.
  absl::flat_hash_set<uint32_t> in_use_;  // Numbers of nodes of which something was found.
  SteadyTime look_at_{};
};

}  // namespace semaphored::consul
