#include "server/guard/peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace semaphored::guard {
namespace {

constexpr size_t kRandomBytes = 12;
// How gRPC writes the name of a socket of the abstract namespace.
constexpr std::string_view kScheme = "unix-abstract:";

std::string RandomPrefix() {
  std::array<char, kRandomBytes> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  return absl::StrCat("semaphored-", absl::BytesToHexString({bytes.data(), bytes.size()}), "-");
}

Address V4(const in_addr& host, uint16_t port) {
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &host, text.data(), text.size());
  return {absl::StrCat("ipv4:", text.data(), ":", ntohs(port)), absl::StrCat("ipv4:", text.data())};
}

Address V6(const sockaddr_in6& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    in_addr host{};
    std::memcpy(&host, &address.sin6_addr.s6_addr[12], sizeof host);
    return V4(host, address.sin6_port);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, &address.sin6_addr, text.data(), text.size());
  in6_addr network = address.sin6_addr;
  std::memset(&network.s6_addr[8], 0, 8);
  std::array<char, INET6_ADDRSTRLEN> origin{};
  inet_ntop(AF_INET6, &network, origin.data(), origin.size());
  return {absl::StrCat("ipv6:[", text.data(), "]:", ntohs(address.sin6_port)),
          absl::StrCat("ipv6:", origin.data())};
}

// Of a Unix socket: the user that has connected. "unix:" if the system does not say.
std::string UserOf(int socket) {
  ucred user{};
  socklen_t length = sizeof user;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &length) != 0) return "unix:";
  return absl::StrCat("unix:", user.uid);
}

}  // namespace

Peers::Peers() : prefix_(RandomPrefix()) {}

std::string Peers::NewKey() {
  const std::lock_guard lock(mutex_);
  return absl::StrCat(prefix_, ++made_);
}

std::shared_ptr<const Peer> Peers::Add(const std::string& key, std::string address,
                                       CertificateNames certificate) {
  auto added = std::make_shared<Peer>();
  added->address = std::move(address);
  added->certificate = std::move(certificate);
  const std::lock_guard lock(mutex_);
  peers_[key] = added;
  return added;
}

void Peers::OnBegin(std::string_view grpc_peer) const {
  if (const auto peer = Find(grpc_peer)) peer->begun.fetch_add(1, std::memory_order_relaxed);
}

void Peers::Remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  peers_.erase(key);
}

std::shared_ptr<const Peer> Peers::Find(std::string_view grpc_peer) const {
  if (!grpc_peer.starts_with(kScheme)) return nullptr;
  grpc_peer.remove_prefix(kScheme.size());
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(absl::string_view(grpc_peer.data(), grpc_peer.size()));
  return found == peers_.end() ? nullptr : found->second;
}

Address AddressOf(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return {"unknown:", "unknown:"};
  switch (address.ss_family) {
    case AF_INET: {
      const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&address);
      return V4(v4->sin_addr, v4->sin_port);
    }
    case AF_INET6:
      return V6(*reinterpret_cast<const sockaddr_in6*>(&address));
    default:
      return {"unix:", UserOf(socket)};
  }
}

}  // namespace semaphored::guard
