// How a daemon takes its node id, so that a mistaken second start does no harm to a daemon that has
// the id and is alive.
//
// The id is taken at once if its row is absent, marked as stopped or declared dead, or if the lock
// file that the row names is proof that its daemon has ended. In every other case the newcomer
// watches the row for a node TTL. If its counter moves, a daemon is alive there, and the newcomer
// is refused. If it stands still over unbroken reading, that daemon vouches for nothing any more
// (membership.h), and the id is taken on the condition that the counter still stands.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "server/base/clock.h"

namespace semaphored {

struct JoinOptions {
  std::string node_id;
  Milliseconds node_ttl{10'000};
  // What this daemon says of itself (daemon_card.h). Called once, before the id is taken.
  std::function<std::string()> card;
  // True: the daemon whose card this is has certainly ended. Called at each look.
  std::function<bool(const std::string& card)> has_ended;
  // Waits for so long. False: the daemon is to stop.
  std::function<bool(Milliseconds)> wait;
  // A line for people, at once when there is something to wait for, and then every two seconds at
  // most. It will be at most `left` until the id is taken.
  std::function<void(const std::string& line, Milliseconds left)> report;
};

// Blocks for up to a node TTL, or longer while reading is broken off (this process is paused).
// FAILED_PRECONDITION: another daemon has the id and is alive; the message names it, and says what
// to do; the engine is unchanged. CANCELLED: wait() returned false. Any other error is the
// engine's.
absl::StatusOr<NodeRef> JoinWithCare(NodeStore* nodes, const Clock* clock,
                                     const JoinOptions& options);

}  // namespace semaphored
