#include "server/guard/client_frames.h"

#include <algorithm>
#include <utility>

namespace semaphored::guard {

ClientFrames::ClientFrames(const FrameBounds& bounds, std::shared_ptr<Allowance> resets)
    : bounds_(bounds),
      resets_(std::move(resets)),
      streams_(bounds.streams),
      empty_data_(bounds.empty_data),
      window_updates_(bounds.window_updates),
      settings_(bounds.settings),
      pings_(bounds.pings),
      others_(bounds.others) {}

Breach ClientFrames::Pass(std::string_view* bytes, SteadyTime now, int64_t streams_max,
                          std::string* out) {
  while (preface_bytes_ < kPreface.size() && !bytes->empty()) {
    if (bytes->front() != kPreface[preface_bytes_]) return Breach::kNotHttp2;
    out->push_back(bytes->front());
    bytes->remove_prefix(1);
    ++preface_bytes_;
  }
  for (;;) {
    if (settings_seen_ && !acknowledged_ && cutter_.AtBoundary()) {
      out->append(SettingsAck());
      acknowledged_ = true;
    }
    std::string_view payload;
    switch (held_ ? FrameCutter::Found::kHeader : cutter_.Next(bytes, &payload)) {
      case FrameCutter::Found::kNothing:
      case FrameCutter::Found::kPart:
        return Breach::kNone;
      case FrameCutter::Found::kPayload:
        if (goes_) out->append(payload);
        break;
      case FrameCutter::Found::kHeader:
        held_ = cutter_.frame().type == FrameType::kHeaders && streams_max <= 0;
        if (held_) return Breach::kNone;
        if (cutter_.frame().type == FrameType::kHeaders) --streams_max;
        if (const Breach breach = Judge(cutter_.frame(), now); breach != Breach::kNone)
          return breach;
        goes_ = Goes(cutter_.frame());
        if (goes_) out->append(cutter_.header());
        break;
    }
  }
}

bool ClientFrames::Goes(const Frame& frame) {
  if (frame.type != FrameType::kSettings) return true;
  if (!frame.Has(Frame::kAck)) {
    settings_seen_ = true;
    return true;
  }
  return std::exchange(client_acknowledged_, true);
}

Breach ClientFrames::OnTlsMessage(SteadyTime now) {
  return others_.Take(now) ? Breach::kNone : Breach::kOtherFrames;
}

void ClientFrames::OnSent(const Frame& frame) {
  const bool carries = frame.type == FrameType::kData || frame.type == FrameType::kHeaders;
  if (frame.type == FrameType::kReset || (carries && frame.Has(Frame::kEndStream))) {
    // gRPC resets a stream that it has ended and its client has not.
    if (frame.type != FrameType::kReset || frame.stream != daemon_ended_) OnEnd();
    daemon_ended_ = frame.stream;
  }
  if (frame.type == FrameType::kPing) pings_.Give(1);
  if (frame.type != FrameType::kData) return;
  empty_data_.Give(1);
  window_updates_.Give(2);
}

// A client may reset what has ended: that hides none of the calls to come.
void ClientFrames::OnEnd() { ended_ = std::min(ended_ + 1, opened_); }

Breach ClientFrames::Judge(const Frame& frame, SteadyTime now) {
  const auto within = [now](Allowance& allowance, Breach breach) {
    return allowance.Take(now) ? Breach::kNone : breach;
  };
  // The first frame of all are the client's SETTINGS.
  if (!settings_seen_ && (frame.type != FrameType::kSettings || frame.Has(Frame::kAck)))
    return Breach::kNotHttp2;
  if (in_header_block_ != (frame.type == FrameType::kContinuation)) return Breach::kFrameOrder;
  const bool headers = frame.type == FrameType::kHeaders || frame.type == FrameType::kContinuation;
  if (!headers && frame.type != FrameType::kData && frame.length > bounds_.control_frame_bytes)
    return Breach::kFrameSize;
  switch (frame.type) {
    case FrameType::kHeaders:
    case FrameType::kContinuation:
      return JudgeHeaders(frame, now);
    case FrameType::kData:
      // Padding is nothing, however long; no client of gRPC pads.
      if (frame.length > 0 && !frame.Has(Frame::kPadded)) return Breach::kNone;
      return within(empty_data_, Breach::kEmptyData);
    case FrameType::kReset:
      OnEnd();
      return within(*resets_, Breach::kResets);
    case FrameType::kSettings:
      return within(settings_, Breach::kSettings);
    case FrameType::kPing:
      return within(pings_, Breach::kPings);
    case FrameType::kWindowUpdate:
      return within(window_updates_, Breach::kWindowUpdates);
    case FrameType::kPushPromise:
      return Breach::kFrameOrder;
    case FrameType::kPriority:
    case FrameType::kGoAway:
      break;
  }
  return within(others_, Breach::kOtherFrames);
}

Breach ClientFrames::JudgeHeaders(const Frame& frame, SteadyTime now) {
  if (frame.type == FrameType::kHeaders) {
    if (!streams_.Take(now)) return Breach::kStreams;
    ++opened_;
    empty_data_.Give(1);
    block_bytes_ = 0;
    block_frames_ = 0;
  }
  block_bytes_ += frame.length;
  ++block_frames_;
  if (block_bytes_ > bounds_.header_block_bytes || block_frames_ > bounds_.header_block_frames)
    return Breach::kHeaderBlock;
  in_header_block_ = !frame.Has(Frame::kEndHeaders);
  return Breach::kNone;
}

}  // namespace semaphored::guard
