// Commands of one stream that wait until less is under way. The stream is read meanwhile, so that its pings are
// answered whatever its commands wait for.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace semaphored {

template <typename Command>
class Deferred {
 public:
  // `total_bytes`: of all streams together; it outlives this.
  explicit Deferred(size_t* total_bytes) : total_bytes_(total_bytes) {}
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;
  ~Deferred() { Clear(); }

  bool empty() const { return commands_.empty(); }
  size_t bytes() const { return bytes_; }

  void Add(Command&& command) {
    Count(SizeOf(command));
    commands_.push_back(std::move(command));
  }
  // The first. REQUIRES: not empty.
  Command Take() {
    Command command = std::move(commands_.front());
    commands_.pop_front();
    const size_t size = SizeOf(command);
    bytes_ -= size;
    *total_bytes_ -= size;
    return command;
  }
  void Clear() {
    commands_.clear();
    *total_bytes_ -= std::exchange(bytes_, 0);
  }

 private:
  static constexpr size_t kCommandBytes = 256;  // Its fixed fields, in memory.

  static size_t SizeOf(const Command& command) { return command.ByteSizeLong() + kCommandBytes; }
  void Count(size_t size) {
    bytes_ += size;
    *total_bytes_ += size;
  }

  size_t* total_bytes_;
  std::deque<Command> commands_;
  size_t bytes_ = 0;
};

}  // namespace semaphored
