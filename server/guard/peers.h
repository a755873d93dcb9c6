// Who stands at the other end of a guarded connection. gRPC sees only the guard's end of a socket pair, whose name is
// the connection's key: so nothing that a client sends can take the place of what is found here.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "server/access/access.h"

namespace semaphored::guard {

struct Peer {
  std::string address;           // "ipv4:192.0.2.1:4711", "ipv6:[2001:db8::1]:4711", "unix:".
  CertificateNames certificate;  // Of the certificate that TLS has verified; else empty.
  // Calls of it that the daemon has begun.
  mutable std::atomic<int64_t> begun = 0;
  // Calls of it that the daemon has refused without knowing their caller, and that have not all left.
  mutable std::atomic<int64_t> refused = 0;
};

// Any thread.
class Peers {
 public:
  Peers();
  // A key that no connection of this process has had or will have, of at most 60 bytes without an escape in a URI.
  std::string NewKey();
  std::shared_ptr<const Peer> Add(const std::string& key, std::string address,
                                  CertificateNames certificate);
  void Remove(const std::string& key);
  // By what gRPC calls the peer of a call. nullptr: the connection is not guarded, or has ended.
  std::shared_ptr<const Peer> Find(std::string_view grpc_peer) const;
  // The daemon has begun a call of this peer.
  void OnBegin(std::string_view grpc_peer) const;

 private:
  const std::string prefix_;  // Random: no other process can have taken such a name before.
  mutable std::mutex mutex_;
  uint64_t made_ = 0;                                                    // Guarded by mutex_.
  absl::flat_hash_map<std::string, std::shared_ptr<const Peer>> peers_;  // Guarded by mutex_.
};

struct Address {
  std::string text;  // As Peer::address; "unknown:" if the system does not say.
  // Without what one who makes many connections can change: the port, and of IPv6 the last 64 bits. Of a Unix socket
  // with the number of the user that has connected.
  std::string origin;
};
// Of the other end of a connected socket.
Address AddressOf(int socket);

}  // namespace semaphored::guard
