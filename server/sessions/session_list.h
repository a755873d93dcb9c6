// The sessions of a daemon, for people to look at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "adapters/types.h"
#include "server/sessions/sessions.h"

namespace semaphored {

struct SessionLine {
  Id id;  // A secret of the session's client.
  std::string client_id;
  std::string holder;
  std::string owner;  // The identity that it belongs to; empty: none.
  bool open = false;  // It has a stream.
  int64_t ttl_ms = 0;
  uint64_t claims = 0;
  uint64_t free_hands = 0;  // Of a worker: how many more tickets it takes now.
};
struct SessionList {
  std::vector<SessionLine> lines;
  uint64_t total = 0;  // Those that are not among the lines, too.
};

// At most `lines_max` of them, in no order. On the thread of `sessions`, which MakeSessions has made.
SessionList ListSessions(const Sessions& sessions, size_t lines_max);

}  // namespace semaphored
