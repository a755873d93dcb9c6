#include "adapters/types.h"

namespace semaphored {
namespace {

std::optional<uint64_t> ParseHex16(std::string_view text) {
  uint64_t value = 0;
  for (char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  return value;
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
