#include "adapters/names.h"

#include <algorithm>
#include <array>

namespace semaphored {
namespace {

constexpr std::array<bool, 256> kNameBytes = [] {
  std::array<bool, 256> allowed{};
  for (int c = 'a'; c <= 'z'; ++c) allowed[c] = true;
  for (int c = 'A'; c <= 'Z'; ++c) allowed[c] = true;
  for (int c = '0'; c <= '9'; ++c) allowed[c] = true;
  for (const char c : {'.', '_', '-', '/', ':', '@', '+'})
    allowed[static_cast<unsigned char>(c)] = true;
  return allowed;
}();

bool IsSegment(std::string_view text) { return !text.empty() && text != "." && text != ".."; }

}  // namespace

bool IsSemaphoreName(std::string_view name) {
  if (name.empty() || name.size() > kSemaphoreNameBytesMax || name.front() == '.') return false;
  if (!std::ranges::all_of(name, [](char c) { return kNameBytes[static_cast<unsigned char>(c)]; }))
    return false;
  for (;;) {
    const size_t end = name.find('/');
    if (!IsSegment(name.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    name.remove_prefix(end + 1);
  }
}

bool IsSemaphorePrefix(std::string_view prefix) {
  if (prefix.empty()) return true;
  if (prefix.size() > kSemaphoreNameBytesMax) return false;
  if (prefix.ends_with('/')) prefix.remove_suffix(1);
  return IsSemaphoreName(prefix);
}

}  // namespace semaphored
