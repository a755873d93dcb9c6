// The record `<prefix>/<name>/.lock` of HashiCorp's api.Semaphore and of `consul lock -n N`, N ≥ 2:
// {"Limit":3,"Holders":{"<session>":true}}. A client that is among the holders and has an entry
// with a session in the folder holds a permit. Their clients rewrite the whole value, so nothing of
// ours is in it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace semaphored::consul {

// On the record and on each contender: over what fits a signed number.
inline constexpr uint64_t kSemaphoreFlags = 0xe0f69a2baa414de0;
// On the key of `consul lock -n 1`, which is another primitive.
inline constexpr uint64_t kLockFlags = 0x2ddccbc058a50c18;

struct LockRecord {
  uint32_t limit = 0;
  // Ids of Consul's sessions. Sorted, as their clients write them.
  std::set<std::string> holders;
  friend bool operator==(const LockRecord&, const LockRecord&) = default;
};

// FAILED_PRECONDITION: it is another primitive's, or of clients of another recipe, that cannot
// share a semaphore; DATA_LOSS: it is not understood. The message says what to do.
absl::StatusOr<LockRecord> ReadLockRecord(const std::string& value, uint64_t flags);

// The limit in a record of the recipe in Python, {"limit":3,"holders":["<session>"]}. nullopt: it is none of theirs.
std::optional<uint32_t> ReadRecipeLimit(const std::string& value);

// To the byte what their clients write.
std::string WriteLockRecord(const LockRecord& record);

}  // namespace semaphored::consul
