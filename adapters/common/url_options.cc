#include "adapters/common/url_options.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace semaphored {
namespace {

constexpr int kPortMax = 65'535;
constexpr size_t kBytesShown = 40;

// What stands before the separator, and what after its first.
using Halves = std::pair<absl::string_view, absl::string_view>;
Halves Halve(absl::string_view text, char separator) {
  return absl::StrSplit(text, absl::MaxSplits(separator, 1));
}

}  // namespace

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

std::string Escape(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || absl::StrContains("-._~", c)) {
      result += c;
    } else {
      result += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result;
}

UrlParts SplitUrl(absl::string_view url) {
  UrlParts parts;
  if (const size_t end = url.find("://"); end != absl::string_view::npos) {
    parts.scheme = url.substr(0, end);
    url.remove_prefix(end + 3);
  }
  const Halves halves = Halve(url, '?');
  parts.options = halves.second;
  std::tie(parts.authority, parts.path) = Halve(halves.first, '/');
  return parts;
}

std::optional<HostAndPort> SplitAuthority(absl::string_view authority) {
  size_t end = 0;
  if (absl::StartsWith(authority, "[")) {
    end = authority.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
    ++end;
  } else {
    end = std::min(authority.find(':'), authority.size());
  }
  HostAndPort place{std::string(authority.substr(0, end)), authority.substr(end)};
  if (!place.port.empty() && !absl::ConsumePrefix(&place.port, ":")) return std::nullopt;
  return place;
}

bool ReadPort(absl::string_view text, int* port) {
  return absl::SimpleAtoi(text, port) && *port >= 1 && *port <= kPortMax;
}

void UrlOptions::Text(const char* name, std::string* text) {
  Add(name, [text](const std::string& value) {
    *text = value;
    return absl::OkStatus();
  });
}

// Those that use such a file report late that it cannot be read, and not which it is.
void UrlOptions::PemFile(const char* name, std::string* path) {
  Add(name, [this, name, path](const std::string& value) {
    std::ifstream file(value);
    if (!file || file.peek() == std::ifstream::traits_type::eof())
      return bad_(absl::StrCat(name, "=", value, ": it cannot be read; it must be a PEM file"));
    *path = value;
    return absl::OkStatus();
  });
}

void UrlOptions::PasswordFile(const char* name, std::string* password) {
  Add(name, [this, name, password](const std::string& value) {
    std::ifstream file(value);
    if (!file || !std::getline(file, *password) || password->empty())
      return bad_(absl::StrCat(name, "=", value, ": no password can be read from it"));
    return absl::OkStatus();
  });
}

const UrlOptions::Read* UrlOptions::Find(absl::string_view name) const {
  const auto found = std::ranges::find_if(
      options_, [&](const auto& option) { return absl::string_view(option.first) == name; });
  return found == options_.end() ? nullptr : &found->second;
}

absl::Status UrlOptions::NotOneOf(const char* name, const char* one, const char* other) const {
  return bad_(absl::StrCat(name, " must be ", one, " or ", other));
}

absl::Status UrlOptions::NotBetween(const char* name, const std::string& value, int64_t least,
                                    int64_t most) const {
  return bad_(absl::StrCat(name, "=", absl::string_view(value).substr(0, kBytesShown),
                           ": it must be a number from ", least, " to ", most));
}

absl::Status UrlOptions::NotKnown(absl::string_view name) const {
  std::string why = absl::StrCat("the option '", name.substr(0, kBytesShown), "' is not known");
  for (const auto& option : options_) {
    const bool first = &option == &options_.front(), last = &option == &options_.back();
    absl::StrAppend(&why, first ? "; there are " : last ? " and " : ", ", option.first);
  }
  return bad_(why);
}

absl::Status UrlOptions::ReadOne(absl::string_view option) const {
  const auto [name, text] = Halve(option, '=');
  // Without a name it may be a part of a secret.
  if (name.size() == option.size()) return bad_("after the '?' stand options, name=value");
  const Read* const read = Find(name);
  if (read == nullptr) return NotKnown(name);
  const std::optional<std::string> value = Unescape(text);
  return value ? (*read)(*value) : bad_(kNotUnescaped);
}

absl::Status UrlOptions::ReadAll(absl::string_view options) const {
  for (const absl::string_view option : absl::StrSplit(options, '&', absl::SkipEmpty())) {
    if (absl::Status status = ReadOne(option); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace semaphored
