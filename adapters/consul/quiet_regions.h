// Which parts of the store have stood still, found out by one small request each: Consul returns the
// index of the newest change under a key together with the keys. Used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "adapters/consul/client.h"
#include "adapters/consul/keys.h"
#include "adapters/steady_clock.h"
#include "adapters/types.h"

namespace semaphored::consul {

class QuietRegions {
 public:
  // Consul forgets after 15 minutes that a key was removed, and the index falls. So no region counts as
  // quiet for longer than this without the folders being read again.
  static constexpr std::chrono::minutes kQuietMax{5};

  // How many requests Since() sends for these names at most.
  static size_t RequestsFor(absl::Span<const std::string> names);

  // A number s: nothing of these semaphores (documents, records, contenders) has changed since any
  // reading whose number is greater than s. `readings` is the number of the last reading; it is raised.
  // nullopt: something may have changed, or Consul did not answer.
  std::optional<uint64_t> Since(Client* client, const Keys& keys,
                                absl::Span<const std::string> names, SteadyTime now,
                                uint64_t* readings);

 private:
  struct Region {
    uint64_t index = 0;  // 0: there is nothing.
    uint64_t since = 0;
    SteadyTime found{};
  };

  // False: the region has changed, or it is not known that it has not. It is known from now on.
  bool IsQuiet(Client* client, const std::string& key, SteadyTime now, uint64_t* readings);

  std::map<std::string, Region> regions_;  // By what their keys begin with.
};

}  // namespace semaphored::consul
