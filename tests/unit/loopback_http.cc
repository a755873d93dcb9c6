#include "tests/unit/loopback_http.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <utility>

#include "catch2/catch_test_macros.hpp"

namespace semaphored {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Takes one request off the front of what was received, and receives more until it is whole.
// False: the connection ended.
bool Receive(int socket, std::string* received, LoopbackHttp::Request* request) {
  const auto more = [&] {
    char buffer[65536];
    const ssize_t count = recv(socket, buffer, sizeof buffer, 0);
    if (count > 0) received->append(buffer, static_cast<size_t>(count));
    return count > 0;
  };
  size_t end = 0;
  while ((end = received->find("\r\n\r\n")) == std::string::npos) {
    if (!more()) return false;
  }
  std::istringstream head(received->substr(0, end + 2));
  received->erase(0, end + 4);
  std::string line;
  std::getline(head, line);
  std::istringstream(line) >> request->method >> request->path;
  while (std::getline(head, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string value = line.substr(colon + 1);
    value.erase(0, value.find_first_not_of(' '));
    value.erase(value.find_last_not_of("\r ") + 1);
    request->headers[Lower(line.substr(0, colon))] = value;
  }
  const std::string length = request->header("content-length");
  const size_t bytes = length.empty() ? 0 : std::stoul(length);
  while (received->size() < bytes) {
    if (!more()) return false;
  }
  request->body = received->substr(0, bytes);
  received->erase(0, bytes);
  return true;
}

std::string Write(const LoopbackHttp::Answer& answer) {
  std::ostringstream text;
  text << "HTTP/1.1 " << answer.status << " Said\r\nContent-Length: " << answer.body.size()
       << "\r\n";
  for (const std::string& header : answer.headers) text << header << "\r\n";
  text << "\r\n" << answer.body;
  return text.str();
}

}  // namespace

std::string LoopbackHttp::Request::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

LoopbackHttp::LoopbackHttp(Handler handler) : handler_(std::move(handler)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(listen(listener_, 64) == 0);
  REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

LoopbackHttp::~LoopbackHttp() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
  }
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  for (const int socket : sockets_) close(socket);
  close(listener_);
}

std::string LoopbackHttp::address() const { return "http://127.0.0.1:" + std::to_string(port_); }

std::vector<LoopbackHttp::Request> LoopbackHttp::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void LoopbackHttp::Accept() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const std::lock_guard lock(mutex_);
    if (socket < 0 || stopping_) {
      if (socket >= 0) close(socket);
      return;
    }
    sockets_.push_back(socket);
    const int connection = static_cast<int>(sockets_.size());
    threads_.emplace_back([this, socket, connection] { Serve(socket, connection); });
  }
}

void LoopbackHttp::Serve(int socket, int connection) {
  std::string received;
  while (true) {
    Request request;
    request.connection = connection;
    if (!Receive(socket, &received, &request)) break;
    int number = 0;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      number = static_cast<int>(requests_.size());
    }
    const Answer answer = handler_(request, number);
    if (answer.lose) break;
    const std::string text = Write(answer);
    if (send(socket, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
      break;
  }
  shutdown(socket, SHUT_RDWR);
}

}  // namespace semaphored
