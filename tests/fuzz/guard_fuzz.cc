// What the guard makes of a client's bytes. Input: a byte that says how they come, and the bytes, with or without the
// greeting of HTTP/2 before them.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/guard/client_frames.h"
#include "tests/fuzz/fuzz.h"

namespace {

using semaphored::SteadyTime;
using semaphored::guard::Allowance;
using semaphored::guard::Breach;
using semaphored::guard::ClientFrames;
using semaphored::guard::Frame;
using semaphored::guard::FrameBounds;
using semaphored::guard::FrameCutter;
using semaphored::guard::FrameType;
using semaphored::guard::kPreface;

// So small that an input of some hundred bytes can exceed each.
FrameBounds SmallBounds() {
  FrameBounds bounds;
  bounds.header_block_bytes = 64;
  bounds.header_block_frames = 3;
  bounds.control_frame_bytes = 48;
  bounds.streams = {4, 1};
  bounds.resets = {3, 1};
  bounds.empty_data = {2, 1};
  bounds.window_updates = {3, 1};
  bounds.settings = {3, 1};
  bounds.pings = {2, 1};
  bounds.others = {2, 1};
  return bounds;
}

struct Passed {
  Breach breach = Breach::kNone;
  std::string out;
  int64_t opened = 0;
  int64_t ended = 0;
};

// In pieces of so many bytes, and so many streams at a time.
Passed Pass(const FrameBounds& bounds, std::string_view bytes, size_t piece, int64_t streams) {
  ClientFrames frames(bounds, std::make_shared<Allowance>(bounds.resets));
  const SteadyTime now{std::chrono::hours(1)};
  Passed passed;
  while (!bytes.empty() && passed.breach == Breach::kNone) {
    std::string_view left = bytes.substr(0, piece);
    bytes.remove_prefix(left.size());
    int64_t opened = 0;
    do {
      opened = frames.opened();
      passed.breach = frames.Pass(&left, now, streams, &passed.out);
      FUZZ_CHECK(frames.opened() - opened <= streams);
      // It stops only at a stream too many, and goes on when there is room for that. (Its header may be all that
      // there was.)
      if (passed.breach == Breach::kNone && !left.empty())
        FUZZ_CHECK(frames.opened() == opened + streams);
    } while (passed.breach == Breach::kNone && frames.opened() != opened);
    FUZZ_CHECK(passed.breach != Breach::kNone || left.empty());
  }
  passed.opened = frames.opened();
  passed.ended = frames.ended();
  return passed;
}

// What gRPC is given is a client's HTTP/2, and within the bounds of header blocks and control frames.
void CheckOut(const FrameBounds& bounds, std::string_view out) {
  FUZZ_CHECK(out.starts_with(kPreface.substr(0, out.size())));
  std::string_view left = out.substr(std::min(out.size(), kPreface.size()));
  FrameCutter cutter;
  std::string_view payload;
  size_t block_bytes = 0;
  int block_frames = 0;
  bool in_block = false;
  for (;;) {
    const FrameCutter::Found found = cutter.Next(&left, &payload);
    if (found == FrameCutter::Found::kNothing || found == FrameCutter::Found::kPart) break;
    if (found != FrameCutter::Found::kHeader) continue;
    const Frame& frame = cutter.frame();
    const bool continues = frame.type == FrameType::kContinuation;
    FUZZ_CHECK(continues == in_block);
    if (!continues && frame.type != FrameType::kHeaders) {
      FUZZ_CHECK(frame.type == FrameType::kData || frame.length <= bounds.control_frame_bytes);
      continue;
    }
    block_bytes = continues ? block_bytes + frame.length : frame.length;
    block_frames = continues ? block_frames + 1 : 1;
    FUZZ_CHECK(block_bytes <= bounds.header_block_bytes);
    FUZZ_CHECK(block_frames <= bounds.header_block_frames);
    in_block = !frame.Has(Frame::kEndHeaders);
  }
}

void Check(const FrameBounds& bounds, std::string_view bytes, size_t piece) {
  const Passed whole = Pass(bounds, bytes, bytes.size(), INT64_MAX / 2);
  for (const int64_t streams : {int64_t{1}, int64_t{3}, INT64_MAX / 2}) {
    const Passed pieces = Pass(bounds, bytes, piece, streams);
    FUZZ_CHECK(pieces.breach == whole.breach);
    FUZZ_CHECK(pieces.opened == whole.opened && pieces.ended == whole.ended);
    if (whole.breach == Breach::kNone) FUZZ_CHECK(pieces.out == whole.out);
  }
  if (whole.breach != Breach::kNone) return;
  CheckOut(bounds, whole.out);
  // The guard's acknowledgement comes in, and the client's own goes out.
  FUZZ_CHECK(whole.out.size() <= bytes.size() + semaphored::guard::SettingsAck().size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t how = data[0];
  std::string bytes;
  if ((how & 1) != 0) bytes = std::string(kPreface) + std::string("\0\0\0\4\0\0\0\0\0", 9);
  bytes.append(reinterpret_cast<const char*>(data + 1), size - 1);
  if (bytes.empty()) return 0;
  Check(FrameBounds(), bytes, 1 + (how >> 1));
  Check(SmallBounds(), bytes, 1 + (how >> 1));
  return 0;
}
