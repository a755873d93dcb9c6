// What all connections of one address may do together.
#pragma once

#include <cstdint>

#include "server/guard/allowance.h"
#include "server/guard/client_frames.h"

namespace semaphored::guard {

struct Origin {
  Origin(const FrameBounds& bounds, bool tls)
      : connections(tls ? bounds.tls_connections : bounds.connections),
        resets(std::make_shared<Allowance>(bounds.resets)) {}

  Allowance connections;                    // Of the thread that accepts.
  const std::shared_ptr<Allowance> resets;  // As the rest: of the thread that moves bytes.
  // Calls that were passed on and that the daemon has not begun, as far as that was looked at.
  int64_t pending = 0;
  int64_t held_up = 0;  // Connections that wait for that.
};

}  // namespace semaphored::guard
