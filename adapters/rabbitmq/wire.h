// What the client library gives and takes, as values of this project.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "adapters/rabbitmq/librabbitmq.h"

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

}  // namespace semaphored::rabbitmq
