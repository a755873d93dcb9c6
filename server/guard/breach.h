// Why the guard closes a connection.
#pragma once

#include <cstddef>
#include <cstdint>

namespace semaphored::guard {

enum class Breach : uint8_t {
  kNone,
  kNotHttp2,       // It does not begin as HTTP/2.
  kTls,            // The handshake of TLS failed, or took too long.
  kFrameSize,      // A control frame is longer than any that makes sense.
  kFrameOrder,     // A header block is broken off by another frame, or a client pushes.
  kHeaderBlock,    // A header block has too many bytes or frames.
  kStreams,        // Streams are opened too fast.
  kResets,         // Streams are reset too fast.
  kConnections,    // Its address connects too often.
  kShare,          // Its address has too many of all connections.
  kUnread,         // Its client does not take what is sent to it.
  kEmptyData,      // Too many DATA frames that carry nothing.
  kSettings,       // Too many SETTINGS.
  kPings,          // Too many PINGs.
  kWindowUpdates,  // Too many WINDOW_UPDATEs for what was sent to it.
  kOtherFrames,  // Too many frames of no use here: PRIORITY, GOAWAY, unknown ones; or key updates of TLS.
  kCount
};
inline constexpr auto kBreaches = static_cast<size_t>(Breach::kCount);

// "resets": for metrics.
const char* BreachName(Breach breach);
// "streams are reset too fast": for the log.
const char* BreachText(Breach breach);

}  // namespace semaphored::guard
