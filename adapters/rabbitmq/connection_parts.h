// What the two halves of a connection share: calls (connection.cc) and what comes in
// (connection_frames.cc).
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/connection.h"

namespace semaphored::rabbitmq {

inline std::string Text(const amqp_bytes_t& bytes) {
  return {static_cast<const char*>(bytes.bytes), bytes.len};
}

inline timeval TimevalOf(std::chrono::milliseconds duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {seconds.count(), std::chrono::microseconds(duration - seconds).count()};
}

inline absl::Status Unavailable(std::string_view why) {
  return absl::UnavailableError(absl::StrCat("rabbitmq: ", std::string(why)));
}

// Why the broker closed a channel or the connection.
absl::Status StatusOf(int code, const std::string& text);

struct Connection::Incoming {
  enum class Kind : uint8_t { kDelivered, kGot, kReturned };
  Kind kind = Kind::kDelivered;
  Delivery delivery;
  uint64_t body_size = 0;
  bool has_header = false;
};

struct Connection::Confirming {
  Channel channel = 0;
  uint64_t first = 0;  // Sequence number.
  std::vector<Confirm> confirms;
  size_t left = 0;
  absl::Status closed;  // Why the broker closed the channel meanwhile.

  void Settle(uint64_t sequence, bool multiple, Confirm confirm) {
    for (size_t i = 0; i < confirms.size(); ++i) {
      const uint64_t each = first + i;
      if (multiple ? each > sequence : each != sequence) continue;
      if (confirms[i] == Confirm::kUnknown) {
        confirms[i] = confirm;
        --left;
      } else if (confirms[i] == Confirm::kNoQueue && !returned_counted.contains(i)) {
        // It was returned before, and is confirmed now.
        returned_counted.insert(i);
        --left;
      }
    }
  }
  // Returns come in the order of publishing, each before its confirm.
  void Returned(const std::string& body_and_queue) {
    for (size_t i = 0; i < confirms.size(); ++i) {
      if (confirms[i] != Confirm::kUnknown || keys[i] != body_and_queue) continue;
      confirms[i] = Confirm::kNoQueue;
      return;
    }
  }
  std::vector<std::string> keys;
  std::set<size_t> returned_counted;
};

}  // namespace semaphored::rabbitmq
