// The frames of HTTP/2 (RFC 9113, section 4.1): nine bytes of header and a payload. What stands in a payload is not
// looked at here, header blocks least of all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace semaphored::guard {

enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

struct Frame {
  uint32_t length = 0;  // Of the payload.
  FrameType type{};     // Any byte: those that are not above, too.
  uint8_t flags = 0;
  uint32_t stream = 0;

  static constexpr uint8_t kAck = 0x1;
  static constexpr uint8_t kEndStream = 0x1;
  static constexpr uint8_t kEndHeaders = 0x4;
  static constexpr uint8_t kPadded = 0x8;
  bool Has(uint8_t flag) const { return (flags & flag) != 0; }
};

inline constexpr size_t kFrameHeaderBytes = 9;
// What a client begins with.
inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum class Http2Error : uint8_t { kProtocolError = 0x1, kEnhanceYourCalm = 0xb };

std::string SettingsAck();
// Tells the client why it is closed; no stream is said to have been left undone.
std::string GoAway(Http2Error error);

// Cuts a stream of bytes into frames, however the bytes come in pieces.
class FrameCutter {
 public:
  // What stands at the front of the bytes given to Next().
  enum class Found {
    kNothing,  // No bytes are left.
    kPart,     // Of a header: it goes on with the bytes to come.
    kHeader,   // A header that is whole now: frame() and header(). Its payload follows.
    kPayload,  // `bytes` of the payload of frame().
  };
  // Takes from the front of `left`. `payload`: set with kPayload, and stays in the caller's bytes.
  Found Next(std::string_view* left, std::string_view* payload);

  const Frame& frame() const { return frame_; }
  // As it came.
  std::string_view header() const { return {header_.data(), header_.size()}; }
  // The last frame is whole, and nothing of the next has come.
  bool AtBoundary() const { return have_ == 0 && payload_left_ == 0; }

 private:
  std::array<char, kFrameHeaderBytes> header_{};
  size_t have_ = 0;
  Frame frame_;
  uint32_t payload_left_ = 0;
};

}  // namespace semaphored::guard
