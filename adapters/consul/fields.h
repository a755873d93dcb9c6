// Rows as JSON that people can read. The fields of a row are listed once, by a function
//
//   template <typename Visitor> void Describe(Visitor& v, Row& row)
//
// that gives each field to `v` with its name: a FieldWriter writes it, a FieldReader sets it.
// A row is an object, in which an optional field is left out where it has its default; or it is one
// of many in a table, {"columns":[names],"rows":[[values],…]}, and then has every field.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "adapters/consul/format.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/types.h"

namespace semaphored::consul {

// The words that stand for the values of an enum, by their numbers; nullptr: there is no such value.
template <typename E>
inline constexpr std::array<const char*, 0> kWords{};

class TableWriter;

class FieldWriter {
 public:
  enum class Shape : uint8_t { kObject, kRow, kColumns };

  // `client_name` outlives this, and may be nullptr if no row names a client.
  explicit FieldWriter(Shape shape, const ClientName* client_name = nullptr)
      : shape_(shape), client_name_(client_name), text_(shape == Shape::kObject ? "{" : "[") {}

  template <typename T>
  void operator()(const char* name, const T& value) {
    Begin(name);
    if (shape_ != Shape::kColumns) Append(value);
  }
  template <typename T>
  void Optional(const char* name, const T& value) {
    if (shape_ != Shape::kObject || value != T()) (*this)(name, value);
  }
  void Client(const char* name, uint32_t number) {
    Begin(name);
    if (shape_ != Shape::kColumns) Append((*client_name_)(number));
  }
  // Left out if it has no rows.
  void Table(const char* name, const TableWriter& table);

  std::string Take() { return std::move(text_) + (shape_ == Shape::kObject ? "}" : "]"); }

 private:
  void Begin(const char* name) {
    if (text_.size() > 1) text_ += ',';
    if (shape_ == Shape::kRow) return;
    absl::StrAppend(&text_, "\"", name, shape_ == Shape::kObject ? "\":" : "\"");
  }
  void Append(const std::string& value) { text_ += JsonText(value); }
  void Append(const Id& id) { absl::StrAppend(&text_, "\"", id.empty() ? "" : id.Hex(), "\""); }
  void Append(const NodeRef& node) {
    absl::StrAppend(&text_, "[", node.number, ",", node.incarnation, "]");
  }
  void Append(const Slots& slots) { AppendAll(slots); }
  template <typename T>
  void Append(const std::vector<T>& values) {
    AppendAll(values);
  }
  template <typename T>
  void Append(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      text_ += value ? "true" : "false";
    } else if constexpr (std::is_integral_v<T>) {
      absl::StrAppend(&text_, value);
    } else if constexpr (std::is_enum_v<T>) {
      absl::StrAppend(&text_, "\"", kWords<T>.at(static_cast<size_t>(value)), "\"");
    } else {
      FieldWriter object(Shape::kObject, client_name_);
      Describe(object, value);
      text_ += object.Take();
    }
  }
  template <typename Range>
  void AppendAll(const Range& values) {
    text_ += '[';
    bool first = true;
    for (const auto& value : values) {
      if (!std::exchange(first, false)) text_ += ',';
      Append(value);
    }
    text_ += ']';
  }

  const Shape shape_;
  const ClientName* const client_name_;
  std::string text_;
};

class TableWriter {
 public:
  explicit TableWriter(const ClientName* client_name = nullptr) : client_name_(client_name) {}

  // `describe(visitor)` gives the visitor the fields of the row; of all rows the same fields.
  template <typename Description>
  void Add(const Description& describe) {
    if (rows_.empty()) {
      FieldWriter columns(FieldWriter::Shape::kColumns, client_name_);
      describe(columns);
      columns_ = columns.Take();
    }
    FieldWriter row(FieldWriter::Shape::kRow, client_name_);
    describe(row);
    absl::StrAppend(&rows_, rows_.empty() ? "" : ",", row.Take());
  }
  bool empty() const { return rows_.empty(); }
  std::string Json() const {
    return absl::StrCat("{\"columns\":", columns_, ",\"rows\":[", rows_, "]}");
  }

 private:
  const ClientName* const client_name_;
  std::string columns_;
  std::string rows_;
};

inline void FieldWriter::Table(const char* name, const TableWriter& table) {
  if (table.empty()) return;
  Begin(name);
  text_ += table.Json();
}

// Throws a std::exception where a field is missing, is of another kind or too large for what it is.
class FieldReader {
 public:
  using Json = nlohmann::json;

  // `columns`: of the table that it is a row of; nullptr: it is an object. All outlive this;
  // `client_number` may be nullptr if no row names a client.
  explicit FieldReader(const Json& json, const ClientNumber* client_number = nullptr,
                       const Json* columns = nullptr)
      : json_(json), client_number_(client_number), columns_(columns) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    Read(Next(name), &value);
  }
  template <typename T>
  void Optional(const char* name, T& value) {
    if (columns_ == nullptr && !json_.contains(name)) {
      value = T();
    } else {
      (*this)(name, value);
    }
  }
  void Client(const char* name, uint32_t& number) {
    number = (*client_number_)(Next(name).get_ref<const std::string&>());
  }
  // The row has been read. Throws if the table has more fields.
  void Finish() const {
    if (next_ != columns_->size() || next_ != json_.size()) throw std::out_of_range("the columns");
  }

 private:
  const Json& Next(const char* name) {
    if (columns_ == nullptr) return json_.at(name);
    if (columns_->at(next_) != name) throw std::out_of_range(absl::StrCat("the column ", name));
    return json_.at(next_++);
  }
  static void Read(const Json& json, bool* value) { *value = json.get<bool>(); }
  template <std::integral T>
  static void Read(const Json& json, T* value) {
    const bool fits = json.is_number_unsigned()
                          ? std::in_range<T>(json.get<uint64_t>())
                          : json.is_number_integer() && std::in_range<T>(json.get<int64_t>());
    if (!fits) throw std::out_of_range("a number");
    *value = json.get<T>();
  }
  static void Read(const Json& json, std::string* value) { *value = json.get<std::string>(); }
  static void Read(const Json& json, Id* id) {
    const std::string& text = json.get_ref<const std::string&>();
    *id = text.empty() ? Id() : Id::FromHex(text).value();
  }
  static void Read(const Json& json, NodeRef* node) {
    if (json.size() != 2) throw std::out_of_range("a daemon's number and incarnation");
    Read(json.at(0), &node->number);
    Read(json.at(1), &node->incarnation);
  }
  void Read(const Json& json, Slots* slots) {
    std::vector<uint32_t> numbers;
    Read(json, &numbers);
    *slots = Slots(std::move(numbers));
  }
  template <typename T>
  void Read(const Json& json, std::vector<T>* values) {
    if (!json.is_array()) throw std::invalid_argument("a list");
    for (const Json& each : json) Read(each, &values->emplace_back());
  }
  template <typename T>
  void Read(const Json& json, T* value) {
    if constexpr (std::is_enum_v<T>) {
      const std::string& word = json.get_ref<const std::string&>();
      for (size_t i = 0; i < kWords<T>.size(); ++i) {
        if (kWords<T>[i] != nullptr && word == kWords<T>[i]) {
          *value = static_cast<T>(i);
          return;
        }
      }
      throw std::out_of_range(absl::StrCat("the word '", word, "'"));
    } else {
      FieldReader object(json, client_number_);
      Describe(object, *value);
    }
  }

  const Json& json_;
  const ClientNumber* const client_number_;
  const Json* const columns_;
  size_t next_ = 0;
};

// Gives each row of the table of this name, if there is one, to `read(FieldReader&)`.
template <typename Row>
void ReadTable(const nlohmann::json& object, const char* name, const ClientNumber* client_number,
               const Row& read) {
  if (!object.contains(name)) return;
  const nlohmann::json& columns = object.at(name).at("columns");
  const nlohmann::json& rows = object.at(name).at("rows");
  if (!columns.is_array() || !rows.is_array()) throw std::invalid_argument("a table");
  for (const nlohmann::json& row : rows) {
    FieldReader reader(row, client_number, &columns);
    read(reader);
    reader.Finish();
  }
}

}  // namespace semaphored::consul
