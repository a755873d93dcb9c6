// The W3C trace context of a call (https://www.w3.org/TR/trace-context/): which trace the log lines
// about it belong to. A plain value; it decides nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace semaphored {

struct TraceContext {
  uint64_t trace_high = 0;
  uint64_t trace_low = 0;
  uint64_t span = 0;    // The caller's.
  bool sampled = true;  // The caller wants its spans to be kept.

  // Neither id may be all zeros where there is a trace.
  bool present() const { return span != 0; }
  std::string TraceId() const;  // 32 lower-case hexadecimal digits.
  std::string SpanId() const;   // 16.
  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// "00-<trace id>-<span id>-<flags>" in lower case. Of a later version than 00 what is known of 00
// is taken, and more may follow after another '-'. nullopt: it is not a traceparent.
std::optional<TraceContext> ParseTraceparent(std::string_view text);

}  // namespace semaphored
