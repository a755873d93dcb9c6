#include "server/base/trace.h"

#include <fmt/format.h>

#include <charconv>

namespace semaphored {
namespace {

constexpr size_t kBytes = 55;  // Of version 00.

std::optional<uint64_t> Hex(std::string_view digits) {
  if (digits.find_first_not_of("0123456789abcdef") != digits.npos) return std::nullopt;
  uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

}  // namespace

std::string TraceContext::TraceId() const {
  return fmt::format("{:016x}{:016x}", trace_high, trace_low);
}

std::string TraceContext::SpanId() const { return fmt::format("{:016x}", span); }

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kBytes || text[2] != '-' || text[35] != '-' || text[52] != '-')
    return std::nullopt;
  const auto version = Hex(text.substr(0, 2));
  const auto flags = Hex(text.substr(53, 2));
  const auto trace_high = Hex(text.substr(3, 16));
  const auto trace_low = Hex(text.substr(19, 16));
  const auto span = Hex(text.substr(36, 16));
  if (!version || !flags || !trace_high || !trace_low || !span) return std::nullopt;
  if (*version == 0xff) return std::nullopt;
  if (text.size() > kBytes && (*version == 0 || text[kBytes] != '-')) return std::nullopt;
  if ((*trace_high == 0 && *trace_low == 0) || *span == 0) return std::nullopt;
  return TraceContext{*trace_high, *trace_low, *span, (*flags & 1) != 0};
}

}  // namespace semaphored
