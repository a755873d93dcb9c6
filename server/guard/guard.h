// Stands between the listening socket and gRPC: looks at the headers of HTTP/2's frames before gRPC sees a byte, and
// closes a connection that does what no honest client does (FrameBounds). It also ends TLS, so that encrypted
// connections are guarded as well. gRPC 1.51, which is Debian's, has no defence of its own against floods of resets
// (CVE-2023-44487) or endless header blocks.
//
// Two threads: one for those that wait to be let in and the handshakes of TLS, which cost most, one that moves bytes.
#pragma once

#include <functional>

#include "server/base/clock.h"
#include "server/figures/metrics.h"
#include "server/guard/door.h"
#include "server/guard/loop.h"
#include "server/guard/peers.h"

namespace semaphored::guard {

// Zeros, by all reasons.
GuardFigures NoFigures();

class Guard {
 public:
  // A connection takes so many descriptors: the client's, and a pair.
  static constexpr int kDescriptorsEach = 3;

  // `join` is given gRPC's end of each connection that may speak to it, and owns it; any of the guard's threads.
  Guard(const DoorOptions& options, std::function<void(int descriptor)> join);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // A client has connected; the descriptor is the guard's now. One thread; does not block.
  void Take(int descriptor) { door_.Take(descriptor); }
  // Ends handshakes that are under way; no Take() may follow. One thread; waits for the handshakes' thread.
  void TakeNoMore() { door_.Stop(); }
  // Waits for so long until the daemon has closed all connections and what it has sent is gone; ends the rest.
  void Stop(Milliseconds patience) { relay_.Stop(patience); }

  const Peers& peers() const { return peers_; }
  // Any thread.
  GuardFigures figures() const;

 private:
  void Admit(ConnectionPtr connection);
  void OnOver(ConnectionPtr connection);

  const std::function<void(int)> join_;
  Peers peers_;
  Loop relay_;
  Door door_;
};

}  // namespace semaphored::guard
