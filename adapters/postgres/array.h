// Arrays as Postgres reads them: '{1,2}', '{"a","b"}'.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/types.h"

namespace semaphored::postgres {

// One argument of a statement, grown element by element.
class Array {
 public:
  void Add(int64_t number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    Separate();
    text_.append(digits, end);
  }
  // A text in Postgres holds no zero byte: where one stands, it has the replacement character.
  void Add(std::string_view text) {
    Separate();
    text_ += '"';
    for (const char c : text) {
      if (c == '\0') {
        text_ += "\xef\xbf\xbd";
        continue;
      }
      if (c == '"' || c == '\\') text_ += '\\';
      text_ += c;
    }
    text_ += '"';
  }
  void Add(const Id& id) {
    Separate();
    text_ += id.Hex();
  }
  size_t size() const { return size_; }
  // The whole; nothing may be added after.
  std::string Take() {
    text_ += '}';
    return std::move(text_);
  }
  // An empty one is NULL, which costs the server nothing.
  std::optional<std::string> TakeOrNull() {
    return size_ == 0 ? std::nullopt : std::optional(Take());
  }

 private:
  void Separate() {
    if (size_++ != 0) text_ += ',';
  }

  std::string text_ = "{";
  size_t size_ = 0;
};

// The numbers of '{1,2}'. REQUIRES: no NULL in it.
inline std::vector<int64_t> ReadNumbers(std::string_view text) {
  std::vector<int64_t> numbers;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size();
  while (at < end && *at != '}') {
    int64_t number = 0;
    at = std::from_chars(at, end, number).ptr;
    numbers.push_back(number);
    if (at < end && *at == ',') ++at;
  }
  return numbers;
}

// A uuid as Postgres writes it: 32 hexadecimal digits with dashes between.
inline Id ReadId(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '-') digits += c;
  }
  return Id::FromHex(digits).value_or(Id());
}

}  // namespace semaphored::postgres
