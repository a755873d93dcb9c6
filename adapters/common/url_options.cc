#include "adapters/common/url_options.h"

#include <charconv>

namespace semaphored {

std::optional<std::string> Unescape(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const char* end = text.data() + i + 3;
    if (std::from_chars(text.data() + i + 1, end, value, 16).ptr != end || value == 0)
      return std::nullopt;
    result += static_cast<char>(value);
    i += 2;
  }
  return result;
}

}  // namespace semaphored
