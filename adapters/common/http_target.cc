#include "adapters/common/http_target.h"

namespace semaphored {
namespace {

bool IsUnreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

void AppendEncoded(std::string_view text, std::string* out) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (IsUnreserved(c)) {
      *out += c;
    } else {
      *out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
}

}  // namespace

HttpTarget::HttpTarget(std::string_view route, std::string_view resource, int)
    : text_(route), has_options_(route.find('?') != std::string_view::npos) {
  while (!resource.empty()) {
    const size_t end = resource.find('/');
    const std::string_view segment = resource.substr(0, end);
    if (segment.empty() || segment == "." || segment == "..") {
      text_.clear();
      return;
    }
    AppendEncoded(segment, &text_);
    if (end == std::string_view::npos) return;
    text_ += '/';
    resource.remove_prefix(end + 1);
  }
}

HttpTarget& HttpTarget::Option(std::string_view name, std::string_view value) {
  if (text_.empty()) return *this;
  text_ += has_options_ ? '&' : '?';
  has_options_ = true;
  text_ += name;
  if (!value.empty()) {
    text_ += '=';
    AppendEncoded(value, &text_);
  }
  return *this;
}

std::string HttpTarget::UrlAt(std::string_view origin) const {
  if (text_.empty()) return "";
  return std::string(origin) + text_;
}

}  // namespace semaphored
