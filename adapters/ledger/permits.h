// Engines that hand out permits one by one, instead of keeping who has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "adapters/types.h"

namespace semaphored::ledger {

// A grant takes a permit from it, or does not take place.
class PermitSource {
 public:
  struct Permit {
    uint32_t slot = 0;
    uint64_t token = 0;
  };
  virtual ~PermitSource() = default;
  // For this claim. nullopt: the engine has none to give now.
  virtual std::optional<Permit> Take(const std::string& semaphore, const Id& claim) = 0;
};

// The engine has taken back what this claim had.
struct LostPermit {
  std::string semaphore;
  Id claim;
};

}  // namespace semaphored::ledger
