// Lives of nodes: each of those that are named, and all earlier ones of the same nodes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "adapters/types.h"

namespace semaphored {

class NodeLives {
 public:
  explicit NodeLives(absl::Span<const NodeRef> nodes) {
    for (const NodeRef& node : nodes) {
      uint32_t& last = last_[node.number];
      last = std::max(last, node.incarnation);
    }
  }

  bool Contain(const NodeRef& host) const {
    const auto node = last_.find(host.number);
    return node != last_.end() && host.incarnation <= node->second;
  }

 private:
  absl::flat_hash_map<uint32_t, uint32_t> last_;  // By the node's number: its last life.
};

}  // namespace semaphored
