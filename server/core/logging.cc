#include "server/core/logging.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace semaphored {
namespace {

std::string UtcTime(std::chrono::system_clock::time_point time) {
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  const std::time_t seconds = since_epoch.count() / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     since_epoch.count() % 1000);
}

// A line's end in a message would make one message look like two.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

// Quotes and brackets do not end one: a password may hold them, and hiding too much does no harm.
constexpr std::string_view kUrlEnds = " \t\r\n";

// "scheme://user:password@" becomes "scheme://user:***@". The password ends at the last '@' before
// the host, so that one with ':' or '@' in it is hidden whole.
std::string MaskUserInfo(std::string_view text) {
  std::string masked;
  size_t done = 0;
  for (size_t at = text.find("://"); at != text.npos; at = text.find("://", done)) {
    const size_t begin = at + 3;
    const size_t end = std::min(text.find_first_of(kUrlEnds, begin), text.size());
    const size_t authority_end = std::min(text.find_first_of("?#", begin), end);
    const size_t host = text.substr(0, authority_end).rfind('@');
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

// "?password=x&…" becomes "?password=***&…", as libpq and others take them.
std::string MaskParameters(std::string_view text) {
  std::string masked;
  size_t done = 0;
  for (size_t at = text.find_first_of("?&"); at != text.npos; at = text.find_first_of("?&", at)) {
    ++at;
    const size_t equals = text.find('=', at);
    if (equals == text.npos) break;
    if (!NamesSecret(text.substr(at, equals - at)) ||
        text.substr(at, equals - at).find_first_of(kUrlEnds) != text.npos) {
      continue;
    }
    const size_t end =
        std::min({text.find('&', equals), text.find_first_of(kUrlEnds, equals), text.size()});
    masked.append(text.substr(done, equals + 1 - done)).append("***");
    done = at = end;
  }
  return masked.append(text.substr(done));
}

// Of the line that this thread is writing: spdlog's messages have no members of their own, and its
// formatters run on the thread that writes.
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

class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(bool json) : json_(json) {}

  void format(const spdlog::details::log_msg& entry, spdlog::memory_buf_t& out) override {
    const auto view = spdlog::level::to_string_view(entry.level);
    const std::string_view level(view.data(), view.size());
    const std::string_view message(entry.payload.data(), entry.payload.size());
    const std::string time = UtcTime(entry.time);
    const std::string line = json_ ? JsonLogLine(time, level, message, current_trace)
                                   : TextLogLine(time, level, message, current_trace);
    out.append(line.data(), line.data() + line.size());
    out.push_back('\n');
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(json_);
  }

 private:
  bool json_;
};

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
  try {
    spdlog::sink_ptr sink;
    if (options.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    }
    auto logger = std::make_shared<spdlog::logger>("semaphored", std::move(sink));
    logger->set_formatter(std::make_unique<LineFormatter>(options.format == "json"));
    logger->set_level(*level);
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
  } catch (const spdlog::spdlog_ex& error) {
    return absl::PermissionDeniedError("log_file: " + std::string(error.what()));
  }
  return absl::OkStatus();
}

}  // namespace semaphored
