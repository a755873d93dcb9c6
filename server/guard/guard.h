// Stands between the listening socket and gRPC: looks at the headers of HTTP/2's frames before gRPC sees a byte, and
// closes a connection that does what no honest client does (FrameBounds). It also ends TLS, so that encrypted
// connections are guarded as well. gRPC 1.51, which is Debian's, has no defence of its own against floods of resets
// (CVE-2023-44487) or endless header blocks.
//
// Two threads: one for those that wait to be let in and the handshakes of TLS, which cost most, one that moves bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "adapters/common/rare_line.h"
#include "server/base/clock.h"
#include "server/figures/metrics.h"
#include "server/guard/breach.h"
#include "server/guard/client_frames.h"
#include "server/guard/loop.h"
#include "server/guard/origin.h"
#include "server/guard/origins.h"
#include "server/guard/peers.h"
#include "server/guard/tls.h"

namespace semaphored::guard {

// Zeros, by all reasons.
GuardFigures NoFigures();

class Guard {
 public:
  // A connection takes so many descriptors: the client's, and a pair.
  static constexpr int kDescriptorsEach = 3;

  struct Options {
    const Clock* clock = nullptr;  // Outlives it.
    const Tls* tls = nullptr;      // Null: without TLS. Outlives it.
    Milliseconds handshake_timeout{10'000};
    // At once. While three quarters of them stand, an address that has a quarter gets no more.
    int64_t connections_max = 100'000;
    FrameBounds bounds;
  };

  // `join` is given gRPC's end of each connection that may speak to it, and owns it; any of the guard's threads.
  Guard(const Options& options, std::function<void(int descriptor)> join);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // A client has connected; the descriptor is the guard's now. One thread; does not block.
  void Take(int descriptor);
  // Ends handshakes that are under way; no Take() may follow. One thread; waits for the handshakes' thread.
  void TakeNoMore();
  // Waits for so long until the daemon has closed all connections and what it has sent is gone; ends the rest.
  void Stop(Milliseconds patience);

  const Peers& peers() const { return peers_; }
  // Any thread.
  GuardFigures figures() const;

 private:
  bool HasItsShare(const Origin& origin) const;
  void Admit(ConnectionPtr connection);
  void OnOver(ConnectionPtr connection);
  void CountBreach(Breach breach, const std::string& address, const std::string& detail);

  const Options options_;
  const std::function<void(int)> join_;
  Peers peers_;
  Origins origins_;  // Take()'s.

  std::atomic<uint64_t> connections_ = 0;
  std::array<std::atomic<uint64_t>, kBreaches> closed_{};
  std::mutex telling_;
  std::array<RareLine, kBreaches> lines_;  // Guarded by telling_.

  Loop relay_;
  Loop door_;
};

}  // namespace semaphored::guard
