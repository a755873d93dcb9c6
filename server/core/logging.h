// The daemon's log: spdlog's default logger, as text or as one JSON object a line.
//
//   {"time":"2026-01-31T12:00:00.123Z","level":"info","message":"…"}
//
// A line about a call that came with a trace context has two more members, "trace_id" and "span_id"
// (the caller's span); as text it ends in " trace_id=… span_id=…".
//
// Every message passes MaskSecrets, so that no URL's password gets out by way of an engine's error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/core/trace.h"

namespace semaphored {

struct LoggingOptions {
  std::string level = "info";   // trace, debug, info, warn, error, off
  std::string format = "text";  // text, json
  std::string file = "";        // Appended to. Empty: stderr.
};

// Replaces spdlog's default logger; lines are flushed one by one. INVALID_ARGUMENT for an unknown
// level or format; PERMISSION_DENIED if the file cannot be opened. Call it before there are other
// threads.
absl::Status InitLogging(const LoggingOptions& options);

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn };

// Whether lines of this level are written: to be asked before one is put together. Any thread.
bool Logs(LogLevel level);

// Writes a line that belongs to `trace`, if that is present. Any thread.
void LogTraced(LogLevel level, const TraceContext& trace, std::string_view message);

// For all loggers, from now on. INVALID_ARGUMENT for an unknown level. Any thread.
absl::Status SetLogLevel(const std::string& level);

// `text` with the passwords of the URLs in it as ***: "amqp://joe:***@host", "…?password=***&…".
std::string MaskSecrets(std::string_view text);

// A line of JSON as above, without the line's end. Bytes that are not UTF-8 become U+FFFD. Any
// thread.
std::string JsonLogLine(std::string_view time, std::string_view level, std::string_view message,
                        const TraceContext& trace = {});

}  // namespace semaphored
