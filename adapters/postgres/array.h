// Arrays as Postgres reads them: '{1,2}', '{"a","b"}', '{"(1,\"a\",)"}'.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "adapters/slots.h"
#include "adapters/types.h"

namespace semaphored::postgres {

// A column of a row. Its value is used only while the expression lasts that made it.
class Column {
 public:
  // monostate: NULL.
  using Value = std::variant<std::monostate, bool, int64_t, std::string_view, Id, const Slots*>;

  template <typename Given>
  Column(const char* name, const Given& given) : name_(name), value_(ValueOf(given)) {}

  const char* name() const { return name_; }
  const Value& value() const { return value_; }

 private:
  template <typename Given>
  static Value ValueOf(const Given& given) {
    if constexpr (std::is_same_v<Given, Slots>) {
      return &given;
    } else if constexpr (std::is_same_v<Given, bool> || std::is_same_v<Given, Id> ||
                         std::is_same_v<Given, Value>) {
      return given;
    } else if constexpr (std::is_integral_v<Given> || std::is_enum_v<Given>) {
      return static_cast<int64_t>(given);
    } else {
      return std::string_view(given);
    }
  }

  const char* name_;
  Value value_;
};

// One argument of a statement, grown element by element.
class Array {
 public:
  void Add(int64_t number) {
    Separate();
    AppendNumber(number);
  }
  void Add(std::string_view text) {
    Separate();
    text_ += '"';
    AppendEscaped(text, R"(\")", R"(\\)");
    text_ += '"';
  }
  void Add(const Id& id) {
    Separate();
    text_ += id.Hex();
  }
  // An element of a composite type.
  void AddRow(std::initializer_list<Column> columns) {
    if (columns_.empty()) {
      for (const Column& column : columns) columns_.push_back(column.name());
    }
    Separate();
    text_ += "\"(";
    bool first = true;
    for (const Column& column : columns) {
      if (!std::exchange(first, false)) text_ += ',';
      std::visit([this](const auto& value) { AppendField(value); }, column.value());
    }
    text_ += ")\"";
  }
  // Of the first row.
  const std::vector<const char*>& columns() const { return columns_; }
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
  void AppendNumber(int64_t number) {
    char digits[24];
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }
  // A text in Postgres holds no zero byte: where one stands, it has the replacement character.
  void AppendEscaped(std::string_view text, std::string_view quote, std::string_view backslash) {
    for (const char c : text) {
      switch (c) {
        case '\0':
          text_ += "\xef\xbf\xbd";
          break;
        case '"':
          text_ += quote;
          break;
        case '\\':
          text_ += backslash;
          break;
        default:
          text_ += c;
      }
    }
  }

  // Fields of a row, which is a quoted element itself: what is quoted in them is quoted twice.
  void AppendField(std::monostate) {}
  void AppendField(bool yes) { text_ += yes ? 't' : 'f'; }
  void AppendField(int64_t number) { AppendNumber(number); }
  void AppendField(const Id& id) { text_ += id.Hex(); }
  void AppendField(std::string_view text) {
    text_ += R"(\")";
    AppendEscaped(text, R"(\\\")", R"(\\\\)");
    text_ += R"(\")";
  }
  void AppendField(const Slots* slots) {
    text_ += R"(\"{)";
    bool first = true;
    for (const uint32_t slot : *slots) {
      if (!std::exchange(first, false)) text_ += ',';
      AppendNumber(slot);
    }
    text_ += R"(}\")";
  }

  std::string text_ = "{";
  std::vector<const char*> columns_;
  size_t size_ = 0;
};

// The numbers of '{1,2}'; 0 for a NULL, which only a row that another program has written can have.
inline std::vector<int64_t> ReadNumbers(std::string_view text) {
  std::vector<int64_t> numbers;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size();
  while (at < end && *at != '}') {
    int64_t number = 0;
    at = std::from_chars(at, end, number).ptr;
    at = std::find_if(at, end, [](char c) { return c == ',' || c == '}'; });
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
