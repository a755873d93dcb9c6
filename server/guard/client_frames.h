// What a client sends, judged by the headers of its frames before gRPC sees a byte. No I/O, and no clock of its own.
//
// gRPC applies the daemon's settings, and with them the bound on metadata, only when the client has acknowledged them;
// a client that never does so would be held to none. So the first acknowledgement is the guard's: it follows the
// client's first SETTINGS at once, and the client's own is left out.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/guard/allowance.h"
#include "server/guard/breach.h"
#include "server/guard/frames.h"

namespace semaphored::guard {

// For one connection, where nothing else is said. What clients do in earnest stays far below.
struct FrameBounds {
  size_t header_block_bytes = 64 << 10;
  int header_block_frames = 16;
  size_t control_frame_bytes = 16 << 10;  // Of any frame but DATA and those of header blocks.
  Rate streams = {100'000, 50'000};
  // Of all connections of one address. A reset costs the daemon some 10 KB until gRPC has cleared it
  // away. Calls that have not begun when their connection ends are resets, too.
  Rate resets = {5'000, 1'000};
  // Those of one address that are let in: with TLS or without, each costs a millisecond of a processor.
  // One that is closed for a breach counts as so many. Others wait, in the order in which they came,
  // until they may come in; beyond so many that wait a new one is closed.
  Rate connections = {1'000, 100};
  int64_t connections_each_breach = 20;
  int64_t connections_waiting = 1'000;
  // Calls that the daemon has not begun. Beyond it the address is read no further for a moment.
  int64_t calls_pending = 100;
  // Calls of this connection that were refused without their caller being known, and whose answers have not left.
  // Beyond it the connection is read no further until they have.
  int64_t calls_refused = 100;
  // Each stream and each DATA frame that is sent to the client makes one more right, each of the latter two more
  // WINDOW_UPDATEs, and a PING of the daemon's one of the client's.
  Rate empty_data = {1'000, 100};
  Rate window_updates = {10'000, 1'000};
  Rate settings = {100, 10};
  Rate pings = {1'000, 100};
  Rate others = {1'000, 100};
  // While something waits for the client, it takes at least so many bytes in this time.
  int64_t taken_bytes_min = 16 << 10;
  Milliseconds taken_within{15'000};
};

// Used by one thread.
class ClientFrames {
 public:
  // `resets` is shared by the connections of one address.
  ClientFrames(const FrameBounds& bounds, std::shared_ptr<Allowance> resets);

  // Judges bytes from the front of `bytes`, which it takes away, and appends what gRPC is to be given
  // to `out`. What would open more than `streams_max` streams is left, but perhaps for its frame's
  // header. Other than kNone: the connection is to be closed, `out` is of no use, and no more may be
  // passed.
  Breach Pass(std::string_view* bytes, SteadyTime now, int64_t streams_max, std::string* out);
  // The client has sent a message of TLS's own: of no use here, as a frame of that kind.
  Breach OnTlsMessage(SteadyTime now);
  // The daemon has sent this frame to the client.
  void OnSent(const Frame& frame);

  // Streams so far: those that the client has opened, and those that either side has ended, which are no more.
  int64_t opened() const { return opened_; }
  int64_t ended() const { return ended_; }

 private:
  Breach Judge(const Frame& frame, SteadyTime now);
  Breach JudgeHeaders(const Frame& frame, SteadyTime now);
  void OnEnd();
  // Of the frame that begins; false: it is left out.
  bool Goes(const Frame& frame);

  const FrameBounds bounds_;
  const std::shared_ptr<Allowance> resets_;
  Allowance streams_;
  Allowance empty_data_;
  Allowance window_updates_;
  Allowance settings_;
  Allowance pings_;
  Allowance others_;
  FrameCutter cutter_;
  size_t preface_bytes_ = 0;
  bool settings_seen_ = false;        // The client's first SETTINGS have begun.
  bool acknowledged_ = false;         // The guard's acknowledgement is in `out`.
  bool client_acknowledged_ = false;  // The client's own has been left out.
  bool goes_ = true;                  // The frame under way is passed on.
  bool held_ = false;                 // The header of the next frame has come, and has to wait.
  int64_t opened_ = 0;
  int64_t ended_ = 0;
  uint32_t daemon_ended_ = 0;  // The stream that the daemon has ended last.
  bool in_header_block_ = false;
  size_t block_bytes_ = 0;
  int block_frames_ = 0;
};

}  // namespace semaphored::guard
