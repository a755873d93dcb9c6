// One pipelined connection to a Redis server: commands are gathered and sent together, integer
// replies come back in order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace semaphored::bench {

// Not thread-safe. Does not block, but for Open and Ask.
class RedisConnection {
 public:
  RedisConnection() = default;
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;
  ~RedisConnection();

  // Connects to HOST:PORT (an IPv4 address). Returns an error's text, or nothing.
  std::string Open(const std::string& server);

  // Sends one command and waits for its reply, for use before anything else is sent. Returns the
  // reply's text without its type; errors begin with '-'.
  std::string Ask(const std::vector<std::string_view>& arguments);

  // Adds a command to what is to be sent. Its reply goes to `client`.
  void Add(uint32_t client, const std::vector<std::string_view>& arguments);

  // Sends as much as the socket takes. Returns false if the connection is broken.
  bool Flush();

  // Reads what is there and hands each complete integer reply, or an error's text, to `on_reply`.
  // Returns false if the connection is broken.
  bool Receive(
      const std::function<void(uint32_t client, int64_t reply, std::string_view error)>& on_reply);

  int descriptor() const { return descriptor_; }
  bool has_unsent() const { return sent_ < output_.size(); }

 private:
  bool ReadSome();

  int descriptor_ = -1;
  std::string output_;
  size_t sent_ = 0;
  std::string input_;
  size_t parsed_ = 0;
  std::deque<uint32_t> expecting_;
};

}  // namespace semaphored::bench
