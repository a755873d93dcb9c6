// What the URLs of the engines have in common. No message has a part of a user, of a password, or of
// the value of an option that is not known.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace semaphored {

// Percent signs and two hexadecimal digits become bytes; nullopt if that is not what follows a
// percent sign, or it is a zero.
std::optional<std::string> Unescape(absl::string_view text);
// All but letters, digits and -._~ become a percent sign and two hexadecimal digits.
std::string Escape(std::string_view text);
inline constexpr char kNotUnescaped[] =
    "a percent sign must be followed by two hexadecimal digits (%25 for itself)";

// scheme://authority/path?options, as it stands in the URL. What is not there is empty.
struct UrlParts {
  absl::string_view scheme, authority, path, options;
};
UrlParts SplitUrl(absl::string_view url);

// host:port or [host]:port. The host keeps its brackets; the port may be empty.
struct HostAndPort {
  std::string host;
  absl::string_view port;
};
// nullopt: it is not understood.
std::optional<HostAndPort> SplitAuthority(absl::string_view authority);
bool ReadPort(absl::string_view text, int* port);

// The options that a URL may have, and where each goes. What they name outlives this.
class UrlOptions {
 public:
  // Makes an error of what is wrong.
  using Bad = std::function<absl::Status(absl::string_view why)>;
  using Read = std::function<absl::Status(const std::string& value)>;

  explicit UrlOptions(Bad bad) : bad_(std::move(bad)) {}
  UrlOptions(const UrlOptions&) = delete;
  UrlOptions& operator=(const UrlOptions&) = delete;

  void Add(const char* name, Read read) { options_.emplace_back(name, std::move(read)); }
  void Text(const char* name, std::string* text);
  // A PEM file; that it can be read is looked at.
  void PemFile(const char* name, std::string* path);
  // The first line of the file that the option names.
  void PasswordFile(const char* name, std::string* password);
  void YesOrNo(const char* name, bool* yes) {
    Choice<bool>(name, {"yes", true}, {"no", false}, yes);
  }

  template <typename T>
  void Choice(const char* name, std::pair<const char*, T> one, std::pair<const char*, T> other,
              T* chosen) {
    Add(name, [this, name, one, other, chosen](const std::string& value) {
      if (value != one.first && value != other.first) return NotOneOf(name, one.first, other.first);
      *chosen = value == one.first ? one.second : other.second;
      return absl::OkStatus();
    });
  }

  // T: an integer, or a duration in its own unit.
  template <typename T>
  void Number(const char* name, int64_t least, int64_t most, T* result) {
    Add(name, [this, name, least, most, result](const std::string& value) {
      int64_t number = 0;
      if (!absl::SimpleAtoi(value, &number) || number < least || number > most)
        return NotBetween(name, value, least, most);
      *result = T(number);
      return absl::OkStatus();
    });
  }

  bool Knows(absl::string_view name) const { return Find(name) != nullptr; }
  // "name=value".
  absl::Status ReadOne(absl::string_view option) const;
  // With '&' between them.
  absl::Status ReadAll(absl::string_view options) const;

 private:
  const Read* Find(absl::string_view name) const;
  absl::Status NotKnown(absl::string_view name) const;
  absl::Status NotOneOf(const char* name, const char* one, const char* other) const;
  absl::Status NotBetween(const char* name, const std::string& value, int64_t least,
                          int64_t most) const;

  const Bad bad_;
  std::vector<std::pair<std::string, Read>> options_;
};

}  // namespace semaphored
