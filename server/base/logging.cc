#include "server/base/logging.h"

#include <absl/strings/ascii.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/base/log_writer.h"

namespace semaphored {
namespace {

// A line's end in a message would make one message look like two.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

// Quotes and brackets do not end one: a password may hold them, and hiding too much does no harm.
constexpr std::string_view kUrlEnds = " \t\r\n";

// Where the next of some characters is, for places that only rise: all calls together read the text once.
class NextOf {
 public:
  NextOf(std::string_view text, std::string_view characters)
      : text_(text), characters_(characters), at_(Find(0)) {}

  // The text's end, if there is none at or after `from`.
  size_t At(size_t from) {
    if (at_ < from) at_ = Find(from);
    return at_;
  }

 private:
  size_t Find(size_t from) const {
    return std::min(text_.find_first_of(characters_, from), text_.size());
  }

  std::string_view text_;
  std::string_view characters_;
  size_t at_;
};

// "scheme://user:password@" becomes "scheme://user:***@". The password ends at the last '@' before
// the host, so that one with ':' or '@' in it is hidden whole. Linear in the text.
std::string MaskUserInfo(std::string_view text) {
  std::string masked;
  size_t done = 0;
  NextOf url_end(text, kUrlEnds);
  NextOf query(text, "?#");
  size_t authority_end = 0;
  size_t host = text.npos;  // The last '@' before authority_end.
  for (size_t at = text.find("://"); at != text.npos; at = text.find("://", done)) {
    const size_t begin = at + 3;
    if (const size_t end = std::min(query.At(begin), url_end.At(begin)); end != authority_end) {
      authority_end = end;
      const size_t sign = text.substr(begin, end - begin).rfind('@');
      host = sign == text.npos ? sign : begin + sign;
    }
    const size_t colon = text.find(':', begin);
    if (host != text.npos && host >= begin && colon < host) {
      masked.append(text.substr(done, colon + 1 - done)).append("***");
      done = host;
    } else {
      masked.append(text.substr(done, begin - done));
      done = begin;
    }
  }
  return masked.append(text.substr(done));
}

bool NamesSecret(std::string_view key) {
  std::string lower(key);
  for (char& c : lower) c = absl::ascii_tolower(static_cast<unsigned char>(c));
  for (std::string_view word : {"pass", "secret", "token", "key", "pwd"}) {
    if (lower.find(word) != lower.npos) return true;
  }
  return false;
}

// "?password=x&…" becomes "?password=***&…", as libpq and others take them. Linear in the text.
std::string MaskParameters(std::string_view text) {
  std::string masked;
  size_t done = 0;
  size_t from = 0;
  for (size_t equals = text.find('='); equals != text.npos; equals = text.find('=', from)) {
    const std::string_view before = text.substr(from, equals - from);
    from = equals + 1;
    const size_t mark = before.find_last_of("?&");
    if (mark == before.npos) continue;
    const std::string_view key = before.substr(mark + 1);
    if (!NamesSecret(key) || key.find_first_of(kUrlEnds) != key.npos) continue;
    masked.append(text.substr(done, from - done)).append("***");
    done = from = std::min({text.find('&', from), text.find_first_of(kUrlEnds, from), text.size()});
  }
  return masked.append(text.substr(done));
}

// Of the line that this thread logs: spdlog's messages have no members of their own, and WriterSink
// formats on the thread that logs.
thread_local TraceContext current_trace;

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      break;
  }
  return spdlog::level::warn;
}

std::string TextLogLine(std::string_view time, std::string_view level, std::string_view message,
                        const TraceContext& trace) {
  std::string line = fmt::format("{} {:<7} {}", time, level, OneLine(MaskSecrets(message)));
  if (trace.present())
    line += fmt::format(" trace_id={} span_id={}", trace.TraceId(), trace.SpanId());
  return line;
}

std::string LogLine(bool json, std::chrono::system_clock::time_point time, std::string_view level,
                    std::string_view message, const TraceContext& trace = {}) {
  const auto unix_time = std::chrono::duration_cast<Milliseconds>(time.time_since_epoch());
  const std::string text = UtcTimeText(unix_time.count());
  return (json ? JsonLogLine(text, level, message, trace)
               : TextLogLine(text, level, message, trace)) +
         "\n";
}

std::string LostLine(bool json, uint64_t lost) {
  return LogLine(json, std::chrono::system_clock::now(), "warning",
                 fmt::format("the log cannot be written as fast as it is filled: {} line(s) are "
                             "missing here",
                             lost));
}

// Set once, and never destroyed: threads log until the process has ended.
struct DaemonLog {
  DaemonLog(int descriptor, std::string file_path, bool as_json)
      : file(descriptor),
        path(std::move(file_path)),
        json(as_json),
        writer(file, [as_json](uint64_t lost) { return LostLine(as_json, lost); }) {}

  const int file;
  const std::string path;  // Empty: stderr.
  const bool json;
  LogWriter writer;
};
std::atomic<DaemonLog*> daemon_log{nullptr};

// spdlog's own asynchronous logger has no bound in bytes, does not say what it dropped, and ends only
// when its last write has returned.
class WriterSink final : public spdlog::sinks::sink {
 public:
  explicit WriterSink(DaemonLog* to) : to_(to) {}

  void log(const spdlog::details::log_msg& entry) override {
    const auto level = spdlog::level::to_string_view(entry.level);
    to_->writer.Write(LogLine(to_->json, entry.time, {level.data(), level.size()},
                              {entry.payload.data(), entry.payload.size()}, current_trace));
  }
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

 private:
  DaemonLog* to_;
};

void FlushAtExit() { FlushLog(kLogEndPatience); }

// An assertion of a library says why it ends the process, and ends it. This waits as a signal's
// handler may: by looking.
void FlushAtAbort(int /*signal*/) {
  const DaemonLog* log = daemon_log;
  constexpr timespec kLook{0, 10'000'000};
  for (auto left = kLogEndPatience; left.count() > 0 && log->writer.waiting_bytes() > 0;
       left -= std::chrono::milliseconds(10)) {
    nanosleep(&kLook, nullptr);
  }
}

// stderr, if no file is named.
absl::StatusOr<int> OpenLog(const std::string& path) {
  if (path.empty()) return STDERR_FILENO;
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
  if (file >= 0) return file;
  return absl::PermissionDeniedError(fmt::format("log_file: {}: cannot be opened: {}", path,
                                                 std::generic_category().message(errno)));
}

std::optional<spdlog::level::level_enum> LevelOf(std::string_view name) {
  using spdlog::level::level_enum;
  static constexpr std::array<std::pair<std::string_view, level_enum>, 6> kLevels = {
      {{"trace", level_enum::trace},
       {"debug", level_enum::debug},
       {"info", level_enum::info},
       {"warn", level_enum::warn},
       {"error", level_enum::err},
       {"off", level_enum::off}}};
  for (const auto& [known, level] : kLevels) {
    if (known == name) return level;
  }
  return std::nullopt;
}

}  // namespace

std::string MaskSecrets(std::string_view text) { return MaskParameters(MaskUserInfo(text)); }

bool Logs(LogLevel level) { return spdlog::should_log(SpdlogLevel(level)); }

void LogTraced(LogLevel level, const TraceContext& trace, std::string_view message) {
  current_trace = trace;
  spdlog::log(SpdlogLevel(level), spdlog::string_view_t(message.data(), message.size()));
  current_trace = TraceContext{};
}

std::string JsonLogLine(std::string_view time, std::string_view level, std::string_view message,
                        const TraceContext& trace) {
  nlohmann::ordered_json line;
  line["time"] = time;
  line["level"] = level;
  line["message"] = MaskSecrets(message);
  if (trace.present()) {
    line["trace_id"] = trace.TraceId();
    line["span_id"] = trace.SpanId();
  }
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status SetLogLevel(const std::string& level) {
  const auto known = LevelOf(level);
  if (!known) return absl::InvalidArgumentError("log_level: unknown level " + level);
  spdlog::set_level(*known);
  return absl::OkStatus();
}

absl::Status InitLogging(const LoggingOptions& options) {
  const auto level = LevelOf(options.level);
  if (!level) return absl::InvalidArgumentError("log_level: unknown level " + options.level);
  if (options.format != "text" && options.format != "json") {
    return absl::InvalidArgumentError("log_format: unknown format " + options.format);
  }
  const absl::StatusOr<int> file = OpenLog(options.file);
  if (!file.ok()) return file.status();
  auto* const log = new DaemonLog(*file, options.file, options.format == "json");
  daemon_log = log;
  auto logger = std::make_shared<spdlog::logger>("semaphored", std::make_shared<WriterSink>(log));
  logger->set_level(*level);
  spdlog::set_default_logger(std::move(logger));
  std::atexit(FlushAtExit);
  std::signal(SIGABRT, FlushAtAbort);
  return absl::OkStatus();
}

absl::Status ReopenLog() {
  const DaemonLog* log = daemon_log;
  if (log == nullptr || log->path.empty()) return absl::OkStatus();
  const absl::StatusOr<int> file = OpenLog(log->path);
  if (!file.ok()) return file.status();
  // The writer's descriptor stays the same, and is another file from now on.
  dup3(*file, log->file, O_CLOEXEC);
  close(*file);
  return absl::OkStatus();
}

void FlushLog(std::chrono::milliseconds patience) {
  if (DaemonLog* log = daemon_log) log->writer.Flush(patience);
}

uint64_t LogLinesLost() {
  const DaemonLog* log = daemon_log;
  return log == nullptr ? 0 : log->writer.lost();
}

bool TryLog(std::string_view message) {
  if (!spdlog::should_log(spdlog::level::info)) return true;
  if (DaemonLog* log = daemon_log) {
    return log->writer.TryWrite(
        LogLine(log->json, std::chrono::system_clock::now(), "info", message));
  }
  spdlog::info("{}", message);
  return true;
}

}  // namespace semaphored
