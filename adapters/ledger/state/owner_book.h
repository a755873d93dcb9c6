// What stands of what each identity has made, as the lanes of one daemon count it together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace semaphored::ledger {

// What stands of what an identity has made.
struct OwnerUsage {
  uint64_t semaphores = 0;
  uint64_t tickets = 0;       // Dead letters among them.
  uint64_t ticket_bytes = 0;  // Of their payloads.
  friend bool operator==(const OwnerUsage&, const OwnerUsage&) = default;
};

// Identities that have nothing take no entry.
using UsageByOwner = absl::flat_hash_map<std::string, OwnerUsage>;

// `comes`: adds `usage` to what the owner has. Otherwise takes it away; it has been added before.
void CountUsage(const std::string& owner, const OwnerUsage& usage, bool comes, UsageByOwner* book);

// Written and read by every lane of a daemon, from its own thread. Two lanes that ask at the same moment may
// both find room for the last one.
class OwnerBook {
 public:
  OwnerUsage Of(const std::string& owner) const;
  void Count(const std::string& owner, const OwnerUsage& usage, bool comes);

 private:
  mutable std::mutex mutex_;
  UsageByOwner usage_;
};

// How a lane counts: with `book` what belongs to lane number `lane` of `lanes`, since lane 0 also loads
// semaphores of the others; without it, all that it has loaded, for itself.
struct OwnerCounting {
  std::shared_ptr<OwnerBook> book;
  size_t lane = 0;
  size_t lanes = 1;
};

}  // namespace semaphored::ledger
