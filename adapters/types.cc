#include "adapters/types.h"

#include <array>

namespace semaphored {
namespace {

constexpr uint8_t kNoDigit = 0xff;
constexpr std::array<uint8_t, 256> kDigitOf = [] {
  std::array<uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (uint8_t i = 0; i < 10; ++i) values['0' + i] = i;
  for (uint8_t i = 0; i < 6; ++i) values['a' + i] = static_cast<uint8_t>(10 + i);
  return values;
}();

// One pass without a branch for each digit: it is done for each id that a client sends.
std::optional<uint64_t> ParseHex16(std::string_view text) {
  uint64_t value = 0;
  uint8_t seen = 0;
  for (const char c : text) {
    const uint8_t digit = kDigitOf[static_cast<uint8_t>(c)];
    seen |= digit;
    value = value << 4 | (digit & 15);
  }
  return seen > 15 ? std::nullopt : std::optional(value);
}

}  // namespace

std::string Id::Hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (int i = 0; i < 16; ++i) {
    text[15 - i] = kDigits[high >> (4 * i) & 15];
    text[31 - i] = kDigits[low >> (4 * i) & 15];
  }
  return text;
}

std::optional<Id> Id::FromHex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const auto high = ParseHex16(text.substr(0, 16));
  const auto low = ParseHex16(text.substr(16));
  if (!high || !low) return std::nullopt;
  return Id{*high, *low};
}

}  // namespace semaphored
