#include "server/web/query.h"

#include <algorithm>
#include <charconv>

namespace semaphored::web {
namespace {

// False: it is badly encoded.
bool Decode(std::string_view text, std::string* decoded) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded->push_back(text[i] == '+' ? ' ' : text[i]);
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    unsigned value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) return false;
    decoded->push_back(static_cast<char>(value));
    i += 2;
  }
  return true;
}

}  // namespace

std::optional<Refusal> ForEachParameter(
    std::string_view query,
    const std::function<std::optional<Refusal>(const std::string& name, std::string value)>& take) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    std::string name;
    std::string value;
    if (!Decode(pair.substr(0, equals), &name) ||
        !Decode(pair.substr(std::min(equals + 1, pair.size())), &value))
      return InvalidField("query", "% must be followed by two hexadecimal digits");
    if (std::optional<Refusal> refusal = take(name, std::move(value))) return refusal;
  }
  return std::nullopt;
}

}  // namespace semaphored::web
