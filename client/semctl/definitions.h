// Semaphores as they are declared in a file: what they should be, not how they are used.
//
//   [prefix."team/"]              # for all that are declared below it; the longer prefix wins
//   recall_grace = "10s"
//
//   [semaphore."team/db"]
//   limit = 4
//
// TOML, or JSON of the same shape. Pure: knows no daemon and no file.
#ifndef SEMAPHORED_CLIENT_SEMCTL_DEFINITIONS_H_
#define SEMAPHORED_CLIENT_SEMCTL_DEFINITIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "proto/semaphore/v1/semaphore.pb.h"

namespace semaphore::semctl {

// Each with the default that the daemon has for it.
struct Definition {
  std::uint32_t limit = 0;  // Declared: at least given.
  bool backfill = false;
  std::int64_t longest_hold_ms = 0;       // 0: no bound.
  std::int64_t recall_grace_ms = 30'000;  // 0: none at all.
  std::uint32_t permits_per_holder = 0;   // 0: no bound.
  std::uint32_t waiters_max = 0;          // 0: the daemon's bound.

  bool operator==(const Definition&) const = default;
};

// How a limit is lowered. Not kept by the daemon, so it is no part of what is compared.
struct Shrinking {
  v1::ShrinkPolicy policy = v1::SHRINK_POLICY_WAIT;
  std::optional<std::int64_t> grace_ms;  // Absent: the semaphore's. 0: none.
};

struct Declared {
  Definition definition;
  Shrinking shrinking;
};

struct Declarations {
  std::map<std::string, Declared> semaphores;  // By name.
  std::set<std::string> prefixes;

  // Whether one of the prefixes covers the name.
  bool Covers(std::string_view name) const;
};

// JSON if the first character is '{', else TOML. INVALID_ARGUMENT: all that is wrong, a line each,
// with `origin`, where it stands and what would be right.
absl::StatusOr<Declarations> ParseDeclarations(std::string_view text, const std::string& origin);

Definition DefinitionOf(const v1::SemaphoreInfo& info);
v1::SemaphoreSettings SettingsOf(const Definition& definition);

// A key of a definition with its value as in the file: {"longest_hold", "\"1h\""}. In the order of
// the struct; all of them.
struct Field {
  std::string key;
  std::string value;
};
std::vector<Field> FieldsOf(const Definition& definition);

// What ParseDeclarations reads back as the same; what is as by default is left out, but the limit.
std::string ToToml(const std::map<std::string, Definition>& definitions);
nlohmann::ordered_json ToJson(const std::map<std::string, Definition>& definitions);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_DEFINITIONS_H_
