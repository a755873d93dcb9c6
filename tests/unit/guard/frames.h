// Frames of HTTP/2 for the tests of the guard.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/guard/frames.h"

namespace semaphored::guard {

// The header of a frame whose payload is `length` bytes long.
inline std::string Header(FrameType type, size_t length, uint8_t flags = 0, uint32_t stream = 0) {
  const auto byte = [](uint64_t value) { return static_cast<char>(value & 0xff); };
  return {byte(length >> 16),      byte(length >> 8),        byte(length),
          static_cast<char>(type), static_cast<char>(flags), byte(stream >> 24),
          byte(stream >> 16),      byte(stream >> 8),        byte(stream)};
}

inline std::string Whole(FrameType type, std::string_view payload = "", uint8_t flags = 0,
                         uint32_t stream = 0) {
  return Header(type, payload.size(), flags, stream).append(payload);
}

// What every client begins with.
inline std::string Greeting() { return std::string(kPreface) + Whole(FrameType::kSettings); }

inline constexpr uint8_t kEndHeaders = Frame::kEndHeaders;

}  // namespace semaphored::guard
