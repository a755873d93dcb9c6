// Where one call counts: against a bound that all share, or, once it is refused without its caller being known, at its
// connection. The guard reads no further calls of a connection at which too many count, so what an outsider lets
// lie takes nothing from others.
#pragma once

#include <grpcpp/server_context.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "server/guard/peers.h"

namespace semaphored {

// On the reactor's thread.
class CallCount {
 public:
  // It counts in `shared`, which outlives it.
  void Begin(size_t* shared) {
    shared_ = shared;
    ++*shared_;
  }
  // Until its end it counts at its connection; where none is guarded (`peers` is null), or that has ended, as before.
  void MoveToConnection(const guard::Peers* peers, const grpc::ServerContextBase& context) {
    if (peers != nullptr) peer_ = peers->Find(context.peer());
    if (peer_ == nullptr) return;
    peer_->refused.fetch_add(1, std::memory_order_relaxed);
    --*shared_;
  }
  // All of it has left.
  void End() {
    if (const auto peer = std::exchange(peer_, nullptr)) {
      peer->refused.fetch_sub(1, std::memory_order_relaxed);
    } else {
      --*shared_;
    }
  }

 private:
  size_t* shared_ = nullptr;
  std::shared_ptr<const guard::Peer> peer_;
};

}  // namespace semaphored
