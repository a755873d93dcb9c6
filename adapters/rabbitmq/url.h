// What the URL of a RabbitMQ store says.
//
//   amqp://user:password@host:5672/vhost?layout=tokens
//   amqps://user@host/%2F?password_file=/run/secrets/rabbitmq&ca_file=/etc/ssl/ours.pem
//
// The path is the virtual host, percent-encoded; none: "/". Ports: 5672, with amqps 5671.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace semaphored::rabbitmq {

struct Url {
  enum class Layout : uint8_t { kTokens, kSlots };

  std::string host;
  int port = 0;
  std::string vhost = "/";
  std::string user = "guest";
  std::string password = "guest";
  bool tls = false;
  std::string ca_file;  // Empty: the system's authorities.
  std::string certificate_file;
  std::string key_file;
  bool verify_host = true;
  Layout layout = Layout::kTokens;
  // Before the names of all queues: several environments in one virtual host.
  std::string prefix;
  // After so long without a sign of life each side gives the connection up; 1 to 60 s.
  std::chrono::seconds heartbeat{5};
  // The broker's consumer_timeout: it takes back, with the channel, what is held for longer. 0: it
  // has none. At least 1 s.
  std::chrono::milliseconds consumer_timeout{1'800'000};
  // For each answer of the broker; after that the connection is given up.
  std::chrono::milliseconds timeout{2500};
};

// A lane asks its broker for a sign of life so often.
inline std::chrono::milliseconds AskEvery(const Url& url) {
  return std::chrono::milliseconds(url.heartbeat) / 4;
}

// The broker gives a silent connection up after two to three heartbeats. What it has heard of us
// last is at most two askings old when a Step succeeds, so this long after it all is still there.
inline std::chrono::milliseconds VouchMax(const Url& url) {
  return std::chrono::milliseconds(url.heartbeat) * 2 - 2 * AskEvery(url) -
         std::chrono::milliseconds(url.heartbeat) / 4;
}

// INVALID_ARGUMENT: what is wrong, without a password.
absl::StatusOr<Url> ReadUrl(const std::string& text);

}  // namespace semaphored::rabbitmq
