// Administrative acts that were refused to identities that may not administer: what the audit log says of them. A line
// for each would let them fill it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "server/base/clock.h"

namespace semaphored {

// On one thread. Remembers each identity that was refused, of which there are as many as the access file has had.
class DeniedActs {
 public:
  // At most one line of an identity in this time.
  static constexpr Milliseconds kBetweenLines{1000};

  // One more, at `now`. A line is due: how many of this identity no line was written of since its last one.
  // nullopt: none is due.
  std::optional<uint64_t> Add(std::string_view identity, SteadyTime now) {
    const auto [at, is_new] = by_identity_.try_emplace(std::string(identity), Last{now, 0});
    Last& last = at->second;
    if (!is_new && now - last.line_at < kBetweenLines) {
      ++last.unwritten;
      return std::nullopt;
    }
    const uint64_t unwritten = last.unwritten;
    last = {now, 0};
    return unwritten;
  }

 private:
  struct Last {
    SteadyTime line_at;
    uint64_t unwritten = 0;
  };
  absl::flat_hash_map<std::string, Last> by_identity_;
};

}  // namespace semaphored
