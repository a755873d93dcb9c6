#include "tests/unit/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace semaphored {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// On a free port, which is told.
int Listen(uint16_t* port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 16) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no listener on the loopback device");
  }
  *port = ntohs(address.sin_port);
  return listener;
}

void Close(int* socket) {
  if (*socket >= 0) close(*socket);
  *socket = -1;
}

// Peers of these tests read what they are sent, so it may block.
void SendAll(int socket, std::string_view bytes) {
  while (socket >= 0 && !bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

}  // namespace

Relay::Relay(uint16_t server_port)
    : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), server_port_(server_port) {
  listener_ = Listen(&port_);
  thread_ = std::thread([this] { Run(); });
}

Relay::~Relay() {
  stopping_ = true;
  Notify();
  thread_.join();
  for (Link& link : links_) {
    Close(&link.client);
    Close(&link.server);
  }
  close(listener_);
  close(wake_);
}

void Relay::Notify() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void Relay::LoseAnswers() {
  const std::lock_guard lock(mutex_);
  for (Link& link : links_) link.answers_lost = true;
}

void Relay::LoseAllAnswers() {
  LoseAnswers();
  const std::lock_guard lock(mutex_);
  all_lost_ = true;
}

void Relay::LoseAnswersAfter(size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (Link& link : links_) link.answer_bytes_left = bytes;
}

void Relay::DelayRequests() {
  const std::lock_guard lock(mutex_);
  for (Link& link : links_) link.requests_delayed = true;
}

bool Relay::DeliverDelayed() {
  std::unique_lock lock(mutex_);
  const uint64_t before = late_answers_;
  for (Link& link : links_) {
    link.delivered_late |= !link.delayed.empty();
    SendAll(link.server, link.delayed);
    link.delayed.clear();
    link.requests_delayed = false;
  }
  return answered_.wait_for(lock, std::chrono::seconds(30), [&] { return late_answers_ > before; });
}

void Relay::DelayAnswers(uint32_t amqp_method) {
  const std::lock_guard lock(mutex_);
  for (Link& link : links_) link.delayed_method = amqp_method;
}

void Relay::DeliverAnswers() {
  const std::lock_guard lock(mutex_);
  for (Link& link : links_) {
    link.delayed_method = 0;
    link.delayed_channels.clear();
    SendAll(link.client, std::exchange(link.delayed_answers, ""));
    SendAll(link.client, std::exchange(link.frames, ""));
  }
}

void Relay::CutClients() {
  {
    const std::lock_guard lock(mutex_);
    for (Link& link : links_) {
      link.answers_lost = true;
      Close(&link.client);
    }
  }
  Notify();
}

void Relay::Accept() {
  Link link;
  link.client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  link.server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(server_port_);
  if (connect(link.server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    Close(&link.client);
    Close(&link.server);
    return;
  }
  const int on = 1;
  setsockopt(link.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(link.server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  link.answers_lost = all_lost_;
  links_.push_back(std::move(link));
}

void Relay::FromClient(Link* link) {
  char buffer[16384];
  const ssize_t got = recv(link->client, buffer, sizeof buffer, MSG_DONTWAIT);
  if (got <= 0) {
    Close(&link->client);
    // The server is told, unless that too is on its way.
    if (!link->answers_lost && !link->requests_delayed && !link->delivered_late)
      Close(&link->server);
    return;
  }
  const std::string_view bytes(buffer, static_cast<size_t>(got));
  for (const std::string_view method : {"GET /", "PUT /", "POST /", "DELETE /"}) {
    if (bytes.starts_with(method)) ++http_requests_;
  }
  if (link->requests_delayed) {
    link->delayed += bytes;
  } else {
    SendAll(link->server, bytes);
  }
}

void Relay::FromServer(Link* link) {
  char buffer[16384];
  const ssize_t got = recv(link->server, buffer, sizeof buffer, MSG_DONTWAIT);
  if (got <= 0) {
    Close(&link->server);
    if (!link->answers_lost) Close(&link->client);
    return;
  }
  if (link->delayed_method != 0) {
    SortFrames(link, std::string_view(buffer, static_cast<size_t>(got)));
  } else if (link->client < 0 || link->delivered_late) {
    ++late_answers_;
    answered_.notify_all();
  } else if (!link->answers_lost) {
    const size_t passed_on = std::min(static_cast<size_t>(got), link->answer_bytes_left);
    SendAll(link->client, std::string_view(buffer, passed_on));
    if (link->answer_bytes_left != SIZE_MAX) link->answer_bytes_left -= passed_on;
    link->answers_lost = link->answer_bytes_left == 0;
  }
}

// A frame: type, channel (2 bytes), size (4), so many bytes, and one more. A method's first 4 bytes are its number.
void Relay::SortFrames(Link* link, std::string_view bytes) {
  constexpr size_t kAround = 8;
  constexpr size_t kHead = 7;
  constexpr size_t kNumber = 4;
  link->frames += bytes;
  const auto number = [&](size_t from, size_t size) {
    uint32_t result = 0;
    for (size_t i = from; i < from + size; ++i)
      result = result << 8U | static_cast<unsigned char>(link->frames[i]);
    return result;
  };
  while (link->frames.size() >= kHead && link->frames.size() >= kAround + number(3, 4)) {
    const size_t size = kAround + number(3, 4);
    const auto channel = static_cast<uint16_t>(number(1, 2));
    const bool is_method = link->frames[0] == 1 && size >= kAround + kNumber;
    if (is_method && number(kHead, kNumber) == link->delayed_method)
      link->delayed_channels.insert(channel);
    const std::string frame = link->frames.substr(0, size);
    link->frames.erase(0, size);
    if (link->delayed_channels.contains(channel)) {
      link->delayed_answers += frame;
    } else {
      SendAll(link->client, frame);
    }
  }
}

void Relay::Run() {
  std::vector<pollfd> files;
  while (!stopping_) {
    files = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      // A socket of -1 is passed over.
      for (const Link& link : links_) {
        files.push_back({link.client, POLLIN, 0});
        files.push_back({link.server, POLLIN, 0});
      }
    }
    poll(files.data(), files.size(), -1);
    if (files[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof count);
    }
    const std::lock_guard lock(mutex_);
    size_t next = 2;
    for (Link& link : links_) {
      // It may have been closed meanwhile; its number is then -1, and what poll said is void.
      if (files[next].revents != 0 && files[next].fd == link.client && link.client >= 0)
        FromClient(&link);
      if (files[next + 1].revents != 0 && files[next + 1].fd == link.server && link.server >= 0)
        FromServer(&link);
      next += 2;
    }
    if (files[1].revents != 0) Accept();
  }
}

SilentListener::SilentListener() { socket_ = Listen(&port_); }

SilentListener::~SilentListener() { close(socket_); }

}  // namespace semaphored
