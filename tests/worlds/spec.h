// The table of the small worlds: who is there, what each client asks for, and which acts the explorer
// may choose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/commands.h"

namespace semaphored::worlds {

// One effect that a client asks for. Each submission of it has the same request id, so all but the first
// are repeats.
struct Request {
  enum class Act : uint8_t { kAcquire, kRelease, kResize, kRevokeAll, kDestroy, kPause };
  Act act = Act::kAcquire;
  uint64_t sequence = 1;  // Two requests with one number: the id is used again for another effect.
  std::string semaphore = "a";
  // kAcquire.
  uint32_t permits = 1;
  bool wait = true;
  int32_t priority = 0;
  uint32_t limit = 0;
  // kRelease: where in the script the acquire stands.
  size_t of = 0;
  // kResize.
  AdminResize resize = {};
  // kRevokeAll.
  int64_t grace_ms = 0;
  DestroyPolicy destroy = DestroyPolicy::kForce;
  bool paused = true;  // kPause.
};
using Script = std::vector<Request>;

struct Initial {
  std::string semaphore;
  uint32_t limit = 1;  // 0: it is not there at first.
};

struct WorldSpec {
  std::string name;
  int lanes = 2;
  int nodes = 2;  // As many as lanes, or 1.
  bool exclusive = false;
  std::vector<Initial> semaphores;
  // One for each client. Clients with the same script are interchangeable.
  std::vector<int> clients;  // Indexes of `scripts`.
  std::vector<Script> scripts;
  bool detached = true;    // Requests may be made without a session.
  bool sessions = false;   // Each client has a session, opened in its home lane.
  bool every_lane = true;  // A client may ask any lane; otherwise only its own.
  bool pairs = false;      // Two requests may come in one batch.
  bool expire = false;     // A host ends what it believes to host: its TTL ran out.
  bool cancel = false;     // A waiter is given up.
  bool adopt = false;      // Claims and sessions move to the lane that adopts them.
  bool close = false;      // A session is closed by a host.
  bool only_if_repeated = false;
  uint32_t changes_per_commit_max = 256;
  int losses = 0;    // So many answers are lost.
  int restarts = 0;  // So many daemons are started again.
  int deaths = 0;    // So many nodes are declared dead.
};

// All of them.
const std::vector<WorldSpec>& AllWorlds();
// REQUIRES: there is one of this name.
const WorldSpec& WorldNamed(const std::string& name);

}  // namespace semaphored::worlds
