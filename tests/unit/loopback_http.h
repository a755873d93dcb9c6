// A small HTTP server on the loopback device that answers as a test says, and remembers what it was
// asked.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace semaphored {

class LoopbackHttp {
 public:
  struct Request {
    std::string method;
    std::string path;
    std::map<std::string, std::string> headers;  // Names in lower case.
    std::string body;
    int connection = 0;  // The how-manieth, from 1.

    // Empty: it is not there.
    std::string header(const std::string& name) const;
  };
  struct Answer {
    int status = 200;
    std::string body;
    std::vector<std::string> headers;  // "Name: value"
    bool lose = false;                 // The connection ends instead.
  };
  // Called by a thread for each connection; `number` counts all requests from 1.
  using Handler = std::function<Answer(const Request& request, int number)>;

  explicit LoopbackHttp(Handler handler);
  // Ends all connections.
  ~LoopbackHttp();
  LoopbackHttp(const LoopbackHttp&) = delete;
  LoopbackHttp& operator=(const LoopbackHttp&) = delete;

  std::string address() const;  // "http://127.0.0.1:port"
  std::vector<Request> requests() const;

 private:
  void Accept();
  void Serve(int socket, int connection);

  const Handler handler_;
  int listener_ = -1;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::vector<int> sockets_;
  std::list<std::thread> threads_;
  bool stopping_ = false;
  std::thread acceptor_;
};

}  // namespace semaphored
