// The interface between the server and an engine.
//
// An adapter keeps semaphores. It is synchronous and batched, is used by one thread at a time (the
// lane that owns it), and never throws. Only Wake() may be called from any thread.
//
// Losing is a value (kFull, kQueued, …), not knowing is a value (kUnknown); only breakage is an
// error.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/commands.h"
#include "adapters/outcomes.h"
#include "adapters/steady_clock.h"
#include "adapters/types.h"

namespace semaphored {

// A command with the number by which the lane knows it.
struct Submission {
  uint64_t number = 0;
  Command command;
};

class Adapter {
 public:
  virtual ~Adapter() = default;

  // Does not change while the adapter lives.
  virtual const Guarantees& guarantees() const = 0;

  // Carries out a batch as if one command after the other, together and durably, and reads what has
  // happened in the engine. With an empty batch it waits for events until `deadline`, or Wake().
  // With commands it does not wait for events; `deadline` then bounds how long the engine may take.
  //
  // After kUnknown, only Step with an empty batch may be called until all unknown commands were
  // settled.
  //
  // Error: nothing of the batch was done, and what was told before still holds. UNAVAILABLE: the
  // engine cannot be reached; RESOURCE_EXHAUSTED: it has no room; DATA_LOSS: what it keeps is
  // damaged; FAILED_PRECONDITION: this node has been declared dead or replaced, and must not go on.
  virtual absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                          SteadyTime deadline) = 0;

  // Ends a waiting Step soon, or the next one if none waits. Any thread.
  virtual void Wake() = 0;
};

// A daemon's own row among the nodes on one engine. Used by one thread at a time, another one than
// the lanes'; on a connection of its own. Never throws.
class NodeStore {
 public:
  struct Node {
    NodeRef ref;
    std::string node_id;
    uint64_t counter = 0;
    bool dead = false;
  };

  virtual ~NodeStore() = default;

  // Takes the node id for this process: a new incarnation. Whoever had it before can write nothing
  // more.
  virtual absl::StatusOr<NodeRef> Join(const std::string& node_id) = 0;

  // Counts this node's counter up. FAILED_PRECONDITION: the id was taken by another process or the
  // node was declared dead. Blocks for as long as the engine takes.
  virtual absl::Status Heartbeat() = 0;

  // All nodes, this one too.
  virtual absl::StatusOr<std::vector<Node>> Observe() = 0;

  // Marks `seen` dead if its counter and incarnation still are as seen. False: it has moved on.
  virtual absl::StatusOr<bool> DeclareDead(const Node& seen) = 0;
};

}  // namespace semaphored
