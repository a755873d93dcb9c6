// The daemon's log: spdlog's default logger, as text or as one JSON object a line.
//
//   {"time":"2026-01-31T12:00:00.123Z","level":"info","message":"…"}
//
// A line about a call that came with a trace context has two more members, "trace_id" and "span_id"
// (the caller's span); as text it ends in " trace_id=… span_id=…".
//
// Every message passes MaskSecrets, so that no URL's password gets out by way of an engine's error.
//
// Lines are written by a thread of the log's own (log_writer.h). A pipe that is not read, a blocked
// journal or a full disk holds up no thread that logs: at most 4 MiB of lines wait, and a line says how
// many are missing behind them. The process's end waits for kLogEndPatience at most.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/base/trace.h"

namespace semaphored {

struct LoggingOptions {
  std::string level = "info";   // trace, debug, info, warn, error, off
  std::string format = "text";  // text, json
  std::string file = "";        // Appended to. Empty: stderr.
};

// How long an end waits until the lines before it are written.
inline constexpr std::chrono::milliseconds kLogEndPatience{1000};

// Replaces spdlog's default logger. What waits is written when the process ends, by exit or by abort.
// INVALID_ARGUMENT for an unknown level or format; PERMISSION_DENIED if the file cannot be opened. Call
// it once, before there are other threads.
absl::Status InitLogging(const LoggingOptions& options);

// From now on lines go to the file that has the log's name now, so that one that was moved away is left alone; a write
// that is under way may end in the old one. Nothing happens where the log is stderr. PERMISSION_DENIED: the new file
// cannot be opened, and the old one stays in use. Any thread.
absl::Status ReopenLog();

// Waits until all lines are written, but for at most `patience`: for ends that exit does not see. Any
// thread.
void FlushLog(std::chrono::milliseconds patience);

// Lines that were lost since the start. Any thread.
uint64_t LogLinesLost();

// Writes a line of level info. False: the log has no room for it now, and it is not counted as lost.
// Any thread.
bool TryLog(std::string_view message);

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
