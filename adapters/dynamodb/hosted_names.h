// In which semaphores it is written that this node may host something, so that a daemon that looks for what a node
// hosts finds them (HOST items). A name where this node has had nothing for long is removed. Used by the lane's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "adapters/adapter.h"
#include "adapters/common/upkeep.h"
#include "adapters/dynamodb/items.h"
#include "adapters/dynamodb/requests.h"

namespace semaphored::dynamodb {

class HostedNames {
 public:
  HostedNames(std::string table, NodeRef self, std::shared_ptr<Upkeep> upkeep)
      : table_(std::move(table)), self_(self), upkeep_(std::move(upkeep)) {}

  // This life of the node has written it.
  bool Has(const std::string& name) const { return at_.contains(name); }
  // A commit that has won has written it, with this stamp, which no other commit has.
  void Add(const std::string& name, std::string stamp) { at_[name] = {std::move(stamp), {}}; }
  // An item of `partition` that was read: of this node, an earlier life may have left it.
  void Remember(const std::string& partition, const std::string& name, const json& item);

  // Once a minute: removes the items of names where `may_host` has been false for long. Blocks for some requests; what
  // fails is reported to the upkeep, and tried no more.
  void ForgetIdle(Client* client, SteadyTime now, SteadyTime deadline,
                  const std::function<bool(const std::string&)>& may_host);

 private:
  struct At {
    std::string stamp;  // Of the item that says so.
    std::optional<SteadyTime> idle_since;
  };

  const std::string table_;
  const NodeRef self_;
  const std::shared_ptr<Upkeep> upkeep_;
  absl::flat_hash_map<std::string, At> at_;
  // As earlier lives of this node wrote it, with the stamps of the items.
  absl::flat_hash_map<std::string, std::string> before_;
  SteadyTime looked_at_{};
};

}  // namespace semaphored::dynamodb
