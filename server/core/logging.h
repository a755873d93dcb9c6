// The daemon's log: spdlog's default logger, as text or as one JSON object a line.
//
//   {"time":"2026-01-31T12:00:00.123Z","level":"info","message":"…"}
//
// Every message passes MaskSecrets, so that no URL's password gets out by way of an engine's error.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

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

// For all loggers, from now on. INVALID_ARGUMENT for an unknown level. Any thread.
absl::Status SetLogLevel(const std::string& level);

// `text` with the passwords of the URLs in it as ***: "amqp://joe:***@host", "…?password=***&…".
std::string MaskSecrets(std::string_view text);

// A line of JSON as above, without the line's end. Bytes that are not UTF-8 become U+FFFD. Any
// thread.
std::string JsonLogLine(std::string_view time, std::string_view level, std::string_view message);

}  // namespace semaphored
