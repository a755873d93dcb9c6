// The interface between the server and an engine.
//
// An adapter keeps semaphores. It is synchronous and batched, is used by one thread at a time (the
// lane that owns it), and never throws. Only Wake() may be called from any thread.
//
// A lost race is a value (kFull, kQueued, …), and so is an unknown outcome (kUnknown); only a fault is
// an error.
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

  // Carries out a batch as if one command after the other, together and durably, and reads the events
  // of the engine. With an empty batch it waits for events until `deadline`, or Wake().
  // With commands it does not wait for events; `deadline` then bounds how long the engine may take.
  //
  // After kUnknown, only Step with an empty batch may be called until all unknown commands were
  // settled.
  //
  // Error: nothing of the batch was done, and earlier results still hold. UNAVAILABLE: the
  // engine cannot be reached; RESOURCE_EXHAUSTED: it has no room; DATA_LOSS: what it keeps is
  // damaged; FAILED_PRECONDITION: this node has been declared dead or replaced, and must end.
  virtual absl::StatusOr<StepResult> Step(absl::Span<const Submission> batch,
                                          SteadyTime deadline) = 0;

  // Ends a waiting Step soon, or the next one if none waits. Any thread.
  virtual void Wake() = 0;
};

// A daemon's own row among the nodes on one engine. Used by one thread at a time, another one than
// the lanes'; on a connection of its own. Never throws. Each call blocks for as long as the engine
// takes.
class NodeStore {
 public:
  struct Node {
    NodeRef ref;
    std::string node_id;
    uint64_t counter = 0;  // Rises with each join and each heartbeat.
    bool dead = false;     // Another daemon has declared it dead: it can write nothing more.
    bool stopped = false;  // Its daemon has ended in order (Leave).
    // The text that the daemon gave to Join; may be empty. The store does not read it.
    std::string daemon = {};
  };

  virtual ~NodeStore() = default;

  // Takes the node id for this process: a new incarnation, neither dead nor stopped. The daemon
  // that had it before can write nothing more. An id that has no row gets one.
  //
  // `daemon`: kept for Observe; at most 2 KiB of UTF-8, and not that of any other process.
  // `seen`: the row as Observe returned it, or an empty Node where there was none. ABORTED: a row
  // is there whose incarnation or counter is another; nothing was changed. nullptr: the id is taken
  // whatever its row says, which ends a daemon that has it.
  // FAILED_PRECONDITION: the engine itself keeps the id for a daemon that is alive. An engine that
  // does (RabbitMQ), and an exclusive one, ignore `seen`.
  virtual absl::StatusOr<NodeRef> Join(const std::string& node_id, const std::string& daemon,
                                       const Node* seen) = 0;
  absl::StatusOr<NodeRef> Join(const std::string& node_id) { return Join(node_id, "", nullptr); }

  // Counts this node's counter up, if the row has this incarnation, and no higher counter than this
  // process has left in it: of two processes with the same incarnation (of a machine that was copied,
  // for example) at most one continues. A store that was restored may have a lower one.
  // FAILED_PRECONDITION: the id was taken, the node was declared dead, or another process counts.
  // Any other error: it may have been counted or not, and the next call settles that.
  virtual absl::Status Heartbeat() = 0;

  // Marks this node as stopped, so that its next life need not wait to see whether it is alive. To
  // other nodes it makes no difference. FAILED_PRECONDITION: as for Heartbeat. Nothing but Join may
  // be called afterwards.
  virtual absl::Status Leave() = 0;

  // All nodes, this one too. May be called before Join; an exclusive engine then returns none.
  virtual absl::StatusOr<std::vector<Node>> Observe() = 0;

  // Marks `seen` dead if its counter and incarnation are still the same. False: they are not.
  virtual absl::StatusOr<bool> DeclareDead(const Node& seen) = 0;
};

}  // namespace semaphored
