// Reads declarations: text to JSON, JSON to definitions, each step naming all that is wrong in it.
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/semctl/definitions.h"
#include "client/semctl/duration.h"

namespace semaphore::semctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMillion = 1'000'000;
constexpr std::int64_t kDayMs = 86'400'000;
// Users do not read longer lists to the end. Further errors are only counted.
constexpr std::size_t kErrorsMax = 20;

class Errors {
 public:
  explicit Errors(std::string origin) : origin_(std::move(origin)) {}

  void Add(const std::string& where, const std::string& what) {
    if (lines_.size() < kErrorsMax) lines_.push_back(absl::StrCat(origin_, ": ", where, " ", what));
    ++count_;
  }
  bool empty() const { return count_ == 0; }
  absl::Status AsStatus() const {
    std::string text = absl::StrJoin(lines_, "\n");
    if (count_ > lines_.size()) absl::StrAppend(&text, "\n… and ", count_ - lines_.size(), " more");
    return absl::InvalidArgumentError(text);
  }

 private:
  std::string origin_;
  std::vector<std::string> lines_;
  std::size_t count_ = 0;
};

// ---- one value ----

// What is right, if `value` is not; else it is taken over.
using Taking = std::function<std::optional<std::string>(const Json& value, Declared* into)>;

template <typename Number>
std::optional<std::string> TakeNumber(const Json& value, std::int64_t least, std::int64_t most,
                                      Number* into) {
  if (value.is_number_integer() && value.get<std::int64_t>() >= least &&
      value.get<std::int64_t>() <= most) {
    *into = value.get<Number>();
    return std::nullopt;
  }
  return absl::StrCat("must be a whole number from ", least, " to ", most);
}

std::optional<std::string> TakeDuration(const Json& value, std::int64_t least_ms,
                                        std::int64_t most_ms, const char* right,
                                        std::int64_t* into) {
  if (value.is_string()) {
    const auto parsed = ParseDuration(value.get_ref<const std::string&>());
    if (parsed && (parsed->count() == 0 || parsed->count() >= least_ms) &&
        parsed->count() <= most_ms) {
      *into = parsed->count();
      return std::nullopt;
    }
  }
  return right;
}

std::optional<std::string> TakeShrink(const Json& value, Declared* into) {
  static const std::map<std::string, v1::ShrinkPolicy> kPolicies = {
      {"wait", v1::SHRINK_POLICY_WAIT},
      {"recall", v1::SHRINK_POLICY_RECALL},
      {"refuse", v1::SHRINK_POLICY_REFUSE}};
  const auto found = value.is_string() ? kPolicies.find(value.get<std::string>()) : kPolicies.end();
  if (found == kPolicies.end()) return R"(must be "wait", "recall" or "refuse")";
  into->shrinking.policy = found->second;
  return std::nullopt;
}

const std::vector<std::pair<std::string, Taking>>& Keys() {
  static const std::vector<std::pair<std::string, Taking>> keys = {
      {"limit",
       [](const Json& value, Declared* into) {
         return TakeNumber(value, 0, 10 * kMillion, &into->definition.limit);
       }},
      {"backfill",
       [](const Json& value, Declared* into) -> std::optional<std::string> {
         if (!value.is_boolean()) return "must be true or false";
         into->definition.backfill = value.get<bool>();
         return std::nullopt;
       }},
      {"longest_hold",
       [](const Json& value, Declared* into) {
         return TakeDuration(value, 1'000, 365 * kDayMs,
                             R"(must be a duration from "1s" to "365d", or "0s" for no bound)",
                             &into->definition.longest_hold_ms);
       }},
      {"recall_grace",
       [](const Json& value, Declared* into) {
         return TakeDuration(value, 1, kDayMs,
                             R"(must be a duration up to "24h"; "0s" means none at all)",
                             &into->definition.recall_grace_ms);
       }},
      {"permits_per_holder",
       [](const Json& value, Declared* into) {
         return TakeNumber(value, 0, UINT32_MAX, &into->definition.permits_per_holder);
       }},
      {"waiters_max",
       [](const Json& value, Declared* into) {
         return TakeNumber(value, 0, UINT32_MAX, &into->definition.waiters_max);
       }},
      {"shrink", TakeShrink},
      {"shrink_grace", [](const Json& value, Declared* into) {
         return TakeDuration(value, 1, kDayMs,
                             R"(must be a duration up to "24h"; "0s" means none at all)",
                             &into->shrinking.grace_ms.emplace());
       }}};
  return keys;
}

// ---- names ----

// As the daemon's adapters/names.h.
bool HasNameCharacters(std::string_view text) {
  return text.size() <= 255 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  std::string_view("._-/:@+").find(c) != std::string_view::npos;
         });
}

bool IsName(std::string_view text) {
  if (text.empty() || text[0] == '.' || !HasNameCharacters(text)) return false;
  const std::string path = absl::StrCat("/", std::string(text), "/");
  return !absl::StrContains(path, "//") && !absl::StrContains(path, "/./") &&
         !absl::StrContains(path, "/../");
}

bool IsPrefix(std::string_view text) {
  if (text.empty()) return true;
  return text.size() <= 255 && IsName(text.back() == '/' ? text.substr(0, text.size() - 1) : text);
}

// ---- tables ----

void CheckKeys(const Json& table, const std::string& where, Errors* errors) {
  std::vector<std::string> names;
  for (const auto& [key, taking] : Keys()) names.push_back(key);
  for (const auto& [key, value] : table.items()) {
    if (std::find(names.begin(), names.end(), key) == names.end())
      errors->Add(where, absl::StrCat("has ", key, ", which is not known; known are ",
                                      absl::StrJoin(names, ", ")));
  }
}

// `table` over what stands in `into`.
void Take(const Json& table, const std::string& where, Declared* into, Errors* errors) {
  for (const auto& [key, taking] : Keys()) {
    const auto value = table.find(key);
    if (value == table.end()) continue;
    if (const auto wrong = taking(*value, into))
      errors->Add(absl::StrCat(where, ", ", key), absl::StrCat(*wrong, ", not ", value->dump()));
  }
}

class Parser {
 public:
  Parser(const Json& root, Errors* errors) : root_(root), errors_(errors) {}

  Declarations Parse() {
    for (const auto& [key, value] : root_.items()) {
      if (key != "prefix" && key != "semaphore") {
        errors_->Add(key, "is not known; at the top stand prefix and semaphore only");
      } else if (!value.is_object()) {
        errors_->Add(key, absl::StrCat("must be a table: [", key, ".\"NAME\"]"));
      } else if (key == "prefix") {
        ParsePrefixes(value);
      }
    }
    const auto semaphores = root_.find("semaphore");
    if (semaphores != root_.end() && semaphores->is_object()) {
      for (const auto& [name, table] : semaphores->items()) ParseSemaphore(name, table);
    }
    return std::move(declarations_);
  }

 private:
  bool IsTable(const Json& table, const std::string& where) {
    if (table.is_object()) return true;
    errors_->Add(where, "must be a table of settings");
    return false;
  }

  void ParsePrefixes(const Json& prefixes) {
    for (const auto& [prefix, table] : prefixes.items()) {
      const std::string where = absl::StrCat("prefix \"", prefix, "\"");
      if (!IsPrefix(prefix))
        errors_->Add(where,
                     "must be how a name begins: letters, digits and . _ - / : @ +, without an "
                     "empty, '.' or '..' segment");
      if (!IsTable(table, where)) continue;
      CheckKeys(table, where, errors_);
      Declared alone;
      Take(table, where, &alone, errors_);
      declarations_.prefixes.insert(prefix);
      prefixes_[prefix] = table;
    }
  }

  void ParseSemaphore(const std::string& name, const Json& table) {
    const std::string where = absl::StrCat("semaphore \"", name, "\"");
    if (!IsName(name)) {
      errors_->Add(
          where,
          "must be 1 to 255 letters, digits and . _ - / : @ + (not '.' first, and no empty, "
          "'.' or '..' segment)");
    }
    if (!IsTable(table, where)) return;
    CheckKeys(table, where, errors_);
    Declared declared;
    bool limited = table.contains("limit");
    // In this order the shorter prefix comes first, so the longer one wins.
    for (const auto& [prefix, defaults] : prefixes_) {
      if (!std::string_view(name).starts_with(prefix)) continue;
      Errors told("");  // ParsePrefixes has reported them.
      Take(defaults, "", &declared, &told);
      limited = limited || defaults.contains("limit");
    }
    Take(table, where, &declared, errors_);
    if (!limited) errors_->Add(where, "has no limit, and neither has a prefix of it");
    declarations_.semaphores[name] = declared;
  }

  const Json& root_;
  Errors* errors_;
  Declarations declarations_;
  std::map<std::string, Json> prefixes_;
};

// ---- text ----

absl::StatusOr<Json> ReadJson(std::string_view text, const std::string& origin) {
  // A key that stands twice would silently be the last one.
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const auto watch = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  try {
    Json root = Json::parse(text.begin(), text.end(), watch);
    if (twice.empty()) return root;
    return absl::InvalidArgumentError(absl::StrCat(origin, ": \"", twice, "\" stands twice"));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": ", error.what()));
  }
}

absl::StatusOr<Json> ReadToml(std::string_view text, const std::string& origin) {
  try {
    const toml::table table = toml::parse(text);
    std::ostringstream json;
    json << toml::json_formatter(table);
    return Json::parse(json.str());
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, ", line ", static_cast<std::uint64_t>(error.source().begin.line), ": ",
                     std::string(error.description())));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": ", error.what()));
  }
}

}  // namespace

absl::StatusOr<Declarations> ParseDeclarations(std::string_view text, const std::string& origin) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  absl::StatusOr<Json> root = is_json ? ReadJson(text, origin) : ReadToml(text, origin);
  if (!root.ok()) return root.status();
  Errors errors(origin);
  Declarations declarations = Parser(*root, &errors).Parse();
  if (!errors.empty()) return errors.AsStatus();
  return declarations;
}

}  // namespace semaphore::semctl
