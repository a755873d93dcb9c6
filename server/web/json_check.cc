#include "server/web/json_check.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace semaphored::web {
namespace {

using nlohmann::json;

// Of both forms of a field's name the same.
std::string FoldedName(const std::string& name) {
  std::string folded;
  for (const char each : name) {
    if (each != '_') folded.push_back(absl::ascii_tolower(static_cast<unsigned char>(each)));
  }
  return folded;
}

// Goes through the text once, and keeps of it the names of the fields of the objects that are open.
class Checker final : public json::json_sax_t {
 public:
  std::optional<Refusal> refusal;

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_array(std::size_t /*size*/) override { return true; }
  bool end_array() override { return true; }

  bool start_object(std::size_t /*size*/) override {
    open_.emplace_back();
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    open_.back().field = name;
    if (open_.back().fields.insert(FoldedName(name)).second) return true;
    refusal = InvalidField(Path(), "must stand once");
    return false;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    refusal = Refusal{absl::StatusCode::kInvalidArgument, Reason::kInvalidField,
                      absl::StrCat("the request's body is not JSON, at byte ", position), "", ""};
    return false;
  }

 private:
  struct Object {
    std::string field;  // The last one.
    absl::flat_hash_set<std::string> fields;
  };

  std::string Path() const {
    std::string path;
    for (const Object& each : open_) absl::StrAppend(&path, path.empty() ? "" : ".", each.field);
    return path;
  }

  std::vector<Object> open_;
};

}  // namespace

std::optional<Refusal> CheckJson(std::string_view text) {
  Checker checker;
  json::sax_parse(text, &checker);
  return std::move(checker.refusal);
}

}  // namespace semaphored::web
