// Lets connections in: of each address at most so many in a time, the others in the order in which they came, and each
// once its handshake of TLS is done. What it keeps waiting takes none of its users' threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "adapters/common/rare_line.h"
#include "server/base/clock.h"
#include "server/guard/breach.h"
#include "server/guard/client_frames.h"
#include "server/guard/loop.h"
#include "server/guard/origins.h"
#include "server/guard/tls.h"

namespace semaphored::guard {

struct DoorOptions {
  const Clock* clock = nullptr;  // Outlives it.
  const Tls* tls = nullptr;      // Null: without TLS. Outlives it.
  Protocol protocol = Protocol::kHttp2;
  Milliseconds handshake_timeout{10'000};
  // At once. While three quarters of them stand, an address that has a quarter gets no more.
  int64_t connections_max = 100'000;
  FrameBounds bounds;
};

class Door {
 public:
  // `on_ready` is given each connection that is let in, in State::kReady: on the door's thread, or within Take(). It ends
  // in OnOver().
  Door(const DoorOptions& options, std::function<void(ConnectionPtr)> on_ready);
  // Stop().
  ~Door() { Stop(); }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // A client has connected; the descriptor, which is set not to block, is the door's now. One thread; does not block.
  void Take(int descriptor);
  // Ends what has not come in; no Take() may follow. One thread; waits for the door's.
  void Stop() { loop_.Stop(Milliseconds(0)); }

  // It counts no more. If it was closed for a breach, that is counted, and logged now and then. Any thread.
  void OnOver(ConnectionPtr connection);
  // How many stand: from Take() to OnOver(). Any thread, as the next.
  uint64_t connections() const { return connections_; }
  // So far.
  uint64_t closed(Breach breach) const { return closed_[static_cast<size_t>(breach)]; }

 private:
  bool HasItsShare(const Origin& origin) const;
  void CountBreach(Breach breach, const std::string& address, const std::string& detail);

  const DoorOptions options_;
  const std::function<void(ConnectionPtr)> on_ready_;
  Origins origins_;  // Take()'s.

  std::atomic<uint64_t> connections_ = 0;
  std::array<std::atomic<uint64_t>, kBreaches> closed_{};
  std::mutex telling_;
  std::array<RareLine, kBreaches> lines_;  // Guarded by telling_.

  Loop loop_;
};

}  // namespace semaphored::guard
