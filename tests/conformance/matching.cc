#include "tests/conformance/matching.h"

#include <algorithm>
#include <cstddef>

namespace semaphore::conformance {
namespace {

// Numbers of 64 bits are text in proto3 JSON.
std::string Text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool IsDefault(const Json& value) {
  const std::string text = Text(value);
  return text == "false" || text == "0" || text.empty() || text == "null";
}

}  // namespace

bool Matcher::IsPlaceholderFor(const std::string& name, const Json& actual) {
  const auto known = values_.find(name);
  if (known != values_.end()) return known->second == actual;
  const auto has_it = [&](const auto& entry) { return entry.second == actual; };
  if (std::any_of(values_.begin(), values_.end(), has_it)) return false;
  values_.emplace(name, actual);
  return true;
}

bool Matcher::Matches(const Json& expected, const Json& actual) {
  if (expected.is_object()) {
    if (!actual.is_null() && !actual.is_object()) return false;
    return std::all_of(expected.items().begin(), expected.items().end(), [&](const auto& field) {
      return Matches(field.value(), actual.is_null() ? Json() : actual.value(field.key(), Json()));
    });
  }
  if (expected.is_array()) {
    const Json list = actual.is_null() ? Json::array() : actual;
    if (!list.is_array() || list.size() != expected.size()) return false;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!Matches(expected[i], list[i])) return false;
    }
    return true;
  }
  if (actual.is_array()) return expected == actual.size();
  if (expected.is_string() && expected.get<std::string>().starts_with('$'))
    return IsPlaceholderFor(expected.get<std::string>(), actual);
  if (actual.is_null()) return IsDefault(expected);
  return Text(expected) == Text(actual);
}

bool Matcher::IsWire(const Json& expected, const Json& actual) {
  if (expected.size() != actual.size()) return false;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    for (const auto& field : actual[i].items()) {
      if (!expected[i].contains(field.key())) return false;
    }
    if (expected[i].size() != actual[i].size() || !Matches(expected[i], actual[i])) return false;
  }
  return true;
}

bool Matcher::AreReports(const Json& expected, const Json& actual) {
  Json left = actual;
  for (const Json& report : expected) {
    const auto found = std::find_if(left.begin(), left.end(),
                                    [&](const Json& each) { return Matches(report, each); });
    if (found == left.end()) return false;
    left.erase(found);
  }
  return left.empty();
}

}  // namespace semaphore::conformance
