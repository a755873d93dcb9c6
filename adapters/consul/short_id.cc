#include "adapters/consul/short_id.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/escaping.h"

namespace semaphored::consul {
namespace {

constexpr size_t kHalfBytes = 8;
constexpr size_t kByteBits = 8;

}  // namespace

std::string ShortText(const Id& id) {
  std::string bytes(2 * kHalfBytes, '\0');
  for (size_t i = 0; i < kHalfBytes; ++i) {
    const size_t shift = (kHalfBytes - 1 - i) * kByteBits;
    bytes[i] = static_cast<char>(id.high >> shift);
    bytes[kHalfBytes + i] = static_cast<char>(id.low >> shift);
  }
  return absl::WebSafeBase64Escape(bytes);
}

std::optional<Id> IdOfShortText(const std::string& text) {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape(text, &bytes) || bytes.size() != 2 * kHalfBytes)
    return std::nullopt;
  Id id;
  for (size_t i = 0; i < kHalfBytes; ++i) {
    id.high = (id.high << kByteBits) | static_cast<uint8_t>(bytes[i]);
    id.low = (id.low << kByteBits) | static_cast<uint8_t>(bytes[kHalfBytes + i]);
  }
  if (ShortText(id) != text) return std::nullopt;
  return id;
}

}  // namespace semaphored::consul
