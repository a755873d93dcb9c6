#include "adapters/common/http_target.h"

#include "adapters/common/url_options.h"

namespace semaphored {

HttpTarget::HttpTarget(std::string_view route, std::string_view resource, int)
    : text_(route), has_options_(route.find('?') != std::string_view::npos) {
  while (!resource.empty()) {
    const size_t end = resource.find('/');
    const std::string_view segment = resource.substr(0, end);
    if (segment.empty() || segment == "." || segment == "..") {
      text_.clear();
      return;
    }
    text_ += Escape(segment);
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
    text_ += Escape(value);
  }
  return *this;
}

std::string HttpTarget::UrlAt(std::string_view origin) const {
  if (text_.empty()) return "";
  return std::string(origin) + text_;
}

}  // namespace semaphored
