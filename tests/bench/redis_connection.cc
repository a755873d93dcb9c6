#include "tests/bench/redis_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace semaphored::bench {
namespace {

void AppendNumber(size_t number, std::string* text) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  text->append(digits, end);
  text->append("\r\n");
}

}  // namespace

RedisConnection::~RedisConnection() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string RedisConnection::Open(const std::string& server) {
  const size_t colon = server.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (colon == std::string::npos ||
      inet_pton(AF_INET, server.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    return "not an IPv4 address and port: " + server;
  }
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(server.c_str() + colon + 1)));
  descriptor_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return "connect to " + server + ": " + std::strerror(errno);
  }
  const int on = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
  return "";
}

std::string RedisConnection::Ask(const std::vector<std::string_view>& arguments) {
  Add(0, arguments);
  expecting_.pop_back();
  if (!Flush()) return "-connection lost";
  // A bulk reply has two lines, any other has one.
  const auto complete = [this] {
    const size_t first = input_.find("\r\n");
    if (first == std::string::npos) return false;
    return input_[0] != '$' || input_.find("\r\n", first + 2) != std::string::npos;
  };
  while (!complete()) {
    pollfd poll_for{descriptor_, POLLIN, 0};
    if (poll(&poll_for, 1, 5000) <= 0) return "-no reply within 5 s";
    if (!ReadSome()) return "-connection lost";
  }
  const size_t first = input_.find("\r\n");
  std::string reply = input_.substr(0, first);
  if (reply[0] == '$') {
    reply = input_.substr(first + 2, input_.find("\r\n", first + 2) - first - 2);
  } else if (reply[0] != '-') {
    reply.erase(0, 1);
  }
  input_.clear();
  return reply;
}

void RedisConnection::Add(uint32_t client, const std::vector<std::string_view>& arguments) {
  output_ += '*';
  AppendNumber(arguments.size(), &output_);
  for (const std::string_view argument : arguments) {
    output_ += '$';
    AppendNumber(argument.size(), &output_);
    output_ += argument;
    output_ += "\r\n";
  }
  expecting_.push_back(client);
}

bool RedisConnection::Flush() {
  while (has_unsent()) {
    const ssize_t wrote =
        send(descriptor_, output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL);
    if (wrote < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<size_t>(wrote);
  }
  output_.clear();
  sent_ = 0;
  return true;
}

bool RedisConnection::ReadSome() {
  char buffer[64 * 1024];
  const ssize_t count = recv(descriptor_, buffer, sizeof(buffer), 0);
  if (count == 0) return false;
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  input_.append(buffer, static_cast<size_t>(count));
  return true;
}

bool RedisConnection::Receive(
    const std::function<void(uint32_t, int64_t, std::string_view)>& on_reply) {
  if (!ReadSome()) return false;
  for (;;) {
    const size_t end = input_.find("\r\n", parsed_);
    if (end == std::string::npos) break;
    const std::string_view line(input_.data() + parsed_, end - parsed_);
    parsed_ = end + 2;
    if (expecting_.empty() || line.empty()) return false;
    const uint32_t client = expecting_.front();
    expecting_.pop_front();
    int64_t reply = 0;
    std::string_view error;
    if (line[0] == ':') {
      std::from_chars(line.data() + 1, line.data() + line.size(), reply);
    } else {
      error = line;
    }
    on_reply(client, reply, error);
  }
  input_.erase(0, parsed_);
  parsed_ = 0;
  return true;
}

}  // namespace semaphored::bench
