#include "client/semctl/definitions.h"

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/semctl/duration.h"

namespace semaphore::semctl {
namespace {

using Json = nlohmann::ordered_json;

// Exactly, unlike FormatDuration, which is for tables.
std::string DurationText(std::int64_t ms) {
  constexpr std::pair<const char*, std::int64_t> kUnits[] = {
      {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}};
  if (ms == 0) return "0s";
  for (const auto& [unit, in_ms] : kUnits) {
    if (ms % in_ms == 0) return absl::StrCat(ms / in_ms, unit);
  }
  return absl::StrCat(ms, "ms");
}

Json FieldsAsJson(const Definition& definition) {
  return {{"limit", definition.limit},
          {"backfill", definition.backfill},
          {"longest_hold", DurationText(definition.longest_hold_ms)},
          {"recall_grace", DurationText(definition.recall_grace_ms)},
          {"permits_per_holder", definition.permits_per_holder},
          {"waiters_max", definition.waiters_max}};
}

// The limit, and what is not as by default.
Json Short(const Definition& definition) {
  const Json defaults = FieldsAsJson(Definition());
  Json fields = Json::object();
  const Json all = FieldsAsJson(definition);
  for (const auto& [key, value] : all.items()) {
    if (key == "limit" || value != defaults[key]) fields[key] = value;
  }
  return fields;
}

}  // namespace

bool Declarations::Covers(std::string_view name) const {
  for (const std::string& prefix : prefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

Definition DefinitionOf(const v1::SemaphoreInfo& info) {
  const v1::SemaphoreSettings& settings = info.settings();
  Definition definition;
  definition.limit = info.limit();
  definition.backfill = settings.backfill();
  definition.longest_hold_ms = static_cast<std::int64_t>(settings.longest_hold_ms());
  if (settings.has_recall_grace_ms()) definition.recall_grace_ms = settings.recall_grace_ms();
  definition.permits_per_holder = settings.permits_per_holder();
  definition.waiters_max = settings.waiters_max();
  return definition;
}

v1::SemaphoreSettings SettingsOf(const Definition& definition) {
  v1::SemaphoreSettings settings;
  settings.set_backfill(definition.backfill);
  settings.set_longest_hold_ms(definition.longest_hold_ms);
  settings.set_recall_grace_ms(static_cast<std::uint32_t>(definition.recall_grace_ms));
  settings.set_permits_per_holder(definition.permits_per_holder);
  settings.set_waiters_max(definition.waiters_max);
  return settings;
}

std::vector<Field> FieldsOf(const Definition& definition) {
  std::vector<Field> fields;
  const Json all = FieldsAsJson(definition);
  for (const auto& [key, value] : all.items()) fields.push_back({key, value.dump()});
  return fields;
}

std::string ToToml(const std::map<std::string, Definition>& definitions) {
  std::string text;
  for (const auto& [name, definition] : definitions) {
    // A name has no character that TOML would want escaped.
    absl::StrAppend(&text, text.empty() ? "" : "\n", "[semaphore.\"", name, "\"]\n");
    const Json fields = Short(definition);
    for (const auto& [key, value] : fields.items())
      absl::StrAppend(&text, key, " = ", value.dump(), "\n");
  }
  return text;
}

Json ToJson(const std::map<std::string, Definition>& definitions) {
  Json semaphores = Json::object();
  for (const auto& [name, definition] : definitions) semaphores[name] = Short(definition);
  return {{"semaphore", std::move(semaphores)}};
}

}  // namespace semaphore::semctl
