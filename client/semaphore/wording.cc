#include "client/semaphore/wording.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/status_conversion.h"

namespace semaphore {
namespace {

constexpr std::pair<const char*, const char*> kOptions[] = {
    {"ttl_ms", "ttl"},
    {"wait_ms", "wait"},
    {"wait_forever", "wait"},
    {"limit_mismatch", "adopt_limit"},
    {"LIMIT_MISMATCH_ADOPT", "adopt_limit"},
};

// Of the last part of a field's path.
std::string OptionOf(absl::string_view field) {
  const absl::string_view last = field.substr(field.rfind('.') + 1);
  for (const auto& [name, option] : kOptions) {
    if (last == name) return option;
  }
  return "";
}

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// "must be 1000 to 86400000": an option is a duration, and not a number of milliseconds.
std::string WithUnits(absl::string_view text) {
  std::string shown;
  for (std::size_t at = 0; at < text.size(); ++at) {
    shown += text[at];
    if (IsDigit(text[at]) && (at + 1 == text.size() || !IsDigit(text[at + 1]))) shown += " ms";
  }
  return shown;
}

std::string Reworded(absl::string_view message) {
  const absl::string_view field = FieldOf(message);
  const std::string option = OptionOf(field);
  if (option.empty()) return WithNames(message, OptionOf);
  const std::string rest = WithNames(message.substr(field.size()), OptionOf);
  return absl::StrCat(option, absl::EndsWith(field, "_ms") ? WithUnits(rest) : rest);
}

}  // namespace

std::string WithNames(absl::string_view text, const NameOf& name_of) {
  std::string shown;
  while (!text.empty()) {
    std::size_t end = 0;
    while (end < text.size() && IsNameCharacter(text[end])) ++end;
    const absl::string_view word = absl::StripSuffix(text.substr(0, end), ".");
    const std::string name = absl::StrContains(word, "_") ? name_of(word) : std::string();
    end = std::max<std::size_t>(word.size(), 1);
    absl::StrAppend(&shown, name.empty() ? text.substr(0, end) : absl::string_view(name));
    text.remove_prefix(end);
  }
  return shown;
}

absl::string_view FieldOf(absl::string_view message) {
  std::size_t end = 0;
  while (end < message.size() &&
         (IsNameCharacter(message[end]) || message[end] == '[' || message[end] == ']')) {
    ++end;
  }
  const bool is_field = end > 0 && absl::StartsWith(message.substr(end), ": ");
  return is_field ? message.substr(0, end) : absl::string_view();
}

absl::string_view WithoutSemaphore(const absl::Status& status) {
  return absl::StripPrefix(status.message(), absl::StrCat(ErrorDetail(status, "semaphore"), ": "));
}

absl::Status InOptions(const absl::Status& status) {
  // At LIMIT_REACHED the name is that of a setting of the daemon.
  if (status.ok() || ErrorReason(status) == "LIMIT_REACHED") return status;
  const absl::string_view message = WithoutSemaphore(status);
  const absl::string_view before = absl::StripSuffix(status.message(), message);
  absl::Status shown(status.code(), absl::StrCat(before, Reworded(message)));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { shown.SetPayload(url, payload); });
  if (const std::string advice = ErrorDetail(status, "advice"); !advice.empty())
    SetErrorDetail("advice", WithNames(advice, OptionOf), &shown);
  return shown;
}

}  // namespace semaphore
