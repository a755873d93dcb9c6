// Spans of OpenTelemetry as the daemon makes them, and where they go. A span decides nothing: any may
// be lost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace semaphored {

// Another span that has to do with this one.
struct SpanLink {
  uint64_t trace_high = 0;
  uint64_t trace_low = 0;
  uint64_t span = 0;
  friend bool operator==(const SpanLink&, const SpanLink&) = default;
};

struct Span {
  const char* name = "";  // Lives for ever: "wait" or "hold".
  uint64_t trace_high = 0;
  uint64_t trace_low = 0;
  uint64_t id = 0;
  uint64_t parent = 0;  // 0: none.
  int64_t began_unix_ns = 0;
  int64_t ended_unix_ns = 0;
  std::string semaphore;
  std::string holder;
  uint32_t permits = 0;
  uint64_t token = 0;   // 0: none.
  std::string outcome;  // "GRANTED", "RELEASED", "EXPIRED", …
  bool failed = false;
  std::vector<SpanLink> links;
};

// Any thread.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // Never blocks. Drops the span if it has no room for it.
  virtual void Push(Span span) = 0;
};

}  // namespace semaphored
