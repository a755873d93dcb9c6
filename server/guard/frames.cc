#include "server/guard/frames.h"

#include <algorithm>
#include <cstring>

namespace semaphored::guard {
namespace {

// Streams have 31 bits; the highest that there can be.
constexpr std::string_view kLastStream = "\x7f\xff\xff\xff";

uint32_t Byte(char byte) { return static_cast<uint8_t>(byte); }

Frame Parse(const std::array<char, kFrameHeaderBytes>& header) {
  Frame frame;
  frame.length = Byte(header[0]) << 16 | Byte(header[1]) << 8 | Byte(header[2]);
  frame.type = static_cast<FrameType>(header[3]);
  frame.flags = static_cast<uint8_t>(header[4]);
  frame.stream =
      (Byte(header[5]) << 24 | Byte(header[6]) << 16 | Byte(header[7]) << 8 | Byte(header[8])) &
      0x7fffffff;
  return frame;
}

std::string Make(FrameType type, uint8_t flags, std::string_view payload) {
  std::string frame = {0,
                       0,
                       static_cast<char>(payload.size()),
                       static_cast<char>(type),
                       static_cast<char>(flags),
                       0,
                       0,
                       0,
                       0};
  return frame.append(payload);
}

}  // namespace

std::string SettingsAck() { return Make(FrameType::kSettings, Frame::kAck, ""); }

std::string GoAway(Http2Error error) {
  std::string payload(kLastStream);
  payload.append({0, 0, 0, static_cast<char>(error)});
  return Make(FrameType::kGoAway, 0, payload);
}

FrameCutter::Found FrameCutter::Next(std::string_view* left, std::string_view* payload) {
  if (left->empty()) return Found::kNothing;
  if (payload_left_ > 0) {
    const size_t size = std::min<size_t>(payload_left_, left->size());
    *payload = left->substr(0, size);
    left->remove_prefix(size);
    payload_left_ -= static_cast<uint32_t>(size);
    return Found::kPayload;
  }
  const size_t size = std::min(kFrameHeaderBytes - have_, left->size());
  std::memcpy(header_.data() + have_, left->data(), size);
  left->remove_prefix(size);
  have_ += size;
  if (have_ < kFrameHeaderBytes) return Found::kPart;
  have_ = 0;
  frame_ = Parse(header_);
  payload_left_ = frame_.length;
  return Found::kHeader;
}

}  // namespace semaphored::guard
