// A file descriptor that is closed with its owner. Movable; knows nothing of what it is of.
#pragma once

#include <unistd.h>

#include <utility>

namespace semaphored {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }

  bool open() const { return number_ >= 0; }
  int get() const { return number_; }  // -1: none.

 private:
  int number_ = -1;
};

}  // namespace semaphored
