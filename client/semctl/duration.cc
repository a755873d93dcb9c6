#include "client/semctl/duration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

constexpr double kMostMs = 365.0 * 24 * 3'600 * 1'000;

// The first that fits is taken, so "ms" stands before "m".
constexpr std::pair<const char*, double> kUnits[] = {
    {"ms", 1},     {"s", 1e3},     {"sec", 1e3},        {"m", 60e3},
    {"min", 60e3}, {"h", 3'600e3}, {"d", 24 * 3'600e3},
};

// Takes the letters in front of `text`.
absl::string_view TakeUnit(absl::string_view* text) {
  std::size_t length = 0;
  while (length < text->size() && (*text)[length] >= 'a' && (*text)[length] <= 'z') ++length;
  const absl::string_view unit = text->substr(0, length);
  text->remove_prefix(length);
  return unit;
}

}  // namespace

std::optional<milliseconds> ParseDuration(absl::string_view text) {
  if (text == "0") return milliseconds(0);
  if (text.empty()) return std::nullopt;
  double total_ms = 0;
  while (!text.empty()) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    double number = 0;
    if (digits == 0 || !absl::SimpleAtod(text.substr(0, digits), &number)) return std::nullopt;
    text.remove_prefix(digits);
    const absl::string_view unit = TakeUnit(&text);
    double factor = 0;
    for (const auto& [name, ms] : kUnits) {
      if (unit == name) factor = ms;
    }
    if (factor == 0) return std::nullopt;
    total_ms += number * factor;
  }
  if (!(total_ms <= kMostMs)) return std::nullopt;
  return milliseconds(std::llround(total_ms));
}

std::uint32_t Ms(milliseconds duration) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(duration.count(), 0, UINT32_MAX));
}

std::string FormatDuration(milliseconds duration) {
  const std::int64_t ms = duration.count();
  if (ms < 0) return absl::StrCat("-", FormatDuration(-duration));
  if (ms == 0) return "0";
  if (ms < 1'000) return absl::StrCat(ms, "ms");
  if (ms < 60'000) {
    return absl::StrCat(
        absl::StripSuffix(absl::StrFormat("%d.%d", ms / 1'000, ms % 1'000 / 100), ".0"), "s");
  }
  const auto two = [](std::int64_t large, const char* large_unit, std::int64_t small,
                      const char* small_unit) {
    return small == 0 ? absl::StrCat(large, large_unit)
                      : absl::StrCat(large, large_unit, small, small_unit);
  };
  const std::int64_t seconds = ms / 1'000;
  if (seconds < 3'600) return two(seconds / 60, "m", seconds % 60, "s");
  if (seconds < 86'400) return two(seconds / 3'600, "h", seconds % 3'600 / 60, "m");
  return two(seconds / 86'400, "d", seconds % 86'400 / 3'600, "h");
}

}  // namespace semaphore::semctl
