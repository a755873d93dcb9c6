// Generations: a bound for how old the knowledge may be that a commit rests upon, whatever the clock
// of its daemon does.
//
// The store has one generation after the other. Each lane's item has the number of the one in which the lane
// last learned of it, and every commit has that as a condition. When a generation has lasted long
// enough, the next lane that accepts a request begins another one, writes its number into the items
// of all lanes, and only then commits. So a commit that rests upon what its lane read in generation n
// lands before any lane commits in generation n + 1, or never: also if its daemon was stopped in
// between, for however long.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/dynamodb/client.h"

namespace semaphored::dynamodb {

struct Generation {
  // The second of the Unix epoch in which it began, but always higher than the one before.
  uint64_t number = 0;
  bool everywhere = false;  // All lanes have its number in their items.

  int64_t BeganAt() const { return static_cast<int64_t>(number); }
  bool HasLasted(std::chrono::seconds length, int64_t now_s) const {
    return number == 0 || now_s >= BeganAt() + length.count();
  }
};

// As it is stored. Number 0: none has begun yet. Blocks for a request.
absl::StatusOr<Generation> ReadGeneration(Client* client, const std::string& table,
                                          SteadyTime deadline);

// The generation of this moment, everywhere: begins the next one if the present one has lasted
// `length`, and carries to all lanes what another daemon has begun and not finished. Blocks for one
// request mostly; for some, and one for each lane of all daemons, where a generation begins.
absl::StatusOr<Generation> CurrentGeneration(Client* client, const std::string& table,
                                             int64_t now_s, std::chrono::seconds length,
                                             SteadyTime deadline);

}  // namespace semaphored::dynamodb
