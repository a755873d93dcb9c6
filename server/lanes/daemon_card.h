// What a daemon says of itself in its row among the nodes: for people, and for its next life. Text
// of JSON, which comes back from the engine unchanged. It is shown, never trusted: only the lock
// (node_lock.h) decides anything.
#pragma once

#include <cstdint>
#include <string>

#include "server/lanes/node_lock.h"

namespace semaphored {

struct DaemonCard {
  std::string host;
  std::string address;  // At which it listens.
  int64_t pid = 0;      // In its own name space: two containers may both have process 1.
  int64_t since_unix_ms = 0;
  LockIdentity lock;
};

std::string WriteCard(const DaemonCard& card);

// Any text is taken: what is missing or is of another kind is left empty. Texts are cut to 200
// bytes, and what is not printable ASCII becomes '?'.
DaemonCard ReadCard(const std::string& text);

// "the daemon at 10.0.0.5:7420 on host db1, pid 17, since 2026-02-03T04:05:06.789Z", as far as it is
// known.
std::string Describe(const DaemonCard& card);

}  // namespace semaphored
