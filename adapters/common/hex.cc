#include "adapters/common/hex.h"

#include <array>
#include <cstdint>

namespace semaphored {
namespace {

constexpr int8_t kNoDigit = -1;

constexpr std::array<int8_t, 256> DigitValues() {
  std::array<int8_t, 256> values{};
  values.fill(kNoDigit);
  for (int8_t i = 0; i < 10; ++i) values[static_cast<size_t>('0' + i)] = i;
  for (int8_t i = 10; i < 16; ++i) {
    values[static_cast<size_t>('a' + i - 10)] = i;
    values[static_cast<size_t>('A' + i - 10)] = i;
  }
  return values;
}

constexpr std::array<int8_t, 256> kDigitValues = DigitValues();

}  // namespace

std::optional<std::string> BytesOfHex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes(hex.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int8_t high = kDigitValues[static_cast<unsigned char>(hex[2 * i])];
    const int8_t low = kDigitValues[static_cast<unsigned char>(hex[2 * i + 1])];
    if (high == kNoDigit || low == kNoDigit) return std::nullopt;
    bytes[i] = static_cast<char>(high << 4 | low);
  }
  return bytes;
}

}  // namespace semaphored
