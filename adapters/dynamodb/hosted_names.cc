#include "adapters/dynamodb/hosted_names.h"

#include <chrono>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/table.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kRemovedAtOnce = 50;
// Where this node had no claim for so long it is not looked for any more.
constexpr std::chrono::minutes kNamesKept{10};
constexpr std::chrono::minutes kNamesLookedAt{1};

}  // namespace

void HostedNames::Remember(const std::string& partition, const std::string& name,
                           const json& item) {
  if (partition != HostPartition(self_.number) || at_.contains(name)) return;
  try {
    const std::string stamp = TextIn(item, "stamp");
    const std::string of_this_life = absl::StrCat(self_.number, ".", self_.incarnation, ".");
    if (!absl::StartsWith(stamp, of_this_life)) before_[name] = stamp;
  } catch (const std::exception&) {
    upkeep_->Failed(UpkeepWork::kLeftovers,
                    absl::DataLossError(
                        absl::StrCat("dynamodb: what says that this node may host something in ",
                                     name, " is not understood, and stays")));
  }
}

// The next commit with such a claim or ticket writes the name again. Those of this node come and go
// by its own commits, so what is known of them is enough; and a commit that writes the name again
// leaves another stamp.
void HostedNames::ForgetIdle(Client* client, SteadyTime now, SteadyTime deadline,
                             const std::function<bool(const std::string&)>& may_host) {
  if (now < looked_at_ + kNamesLookedAt) return;
  looked_at_ = now;
  std::vector<Request> requests;
  const auto drop = [&](const std::string& name, const std::string& stamp) {
    requests.push_back(
        DeleteItem(table_, HostAtKey(self_.number, name), Condition::IsText("stamp", stamp)));
  };
  absl::erase_if(at_, [&](auto& each) {
    auto& [name, at] = each;
    if (may_host(name)) {
      at.idle_since.reset();
      return false;
    }
    if (!at.idle_since) at.idle_since = now;
    if (now - *at.idle_since < kNamesKept || requests.size() >= kRemovedAtOnce) return false;
    drop(name, at.stamp);
    return true;
  });
  absl::erase_if(before_, [&](const auto& each) {
    const auto& [name, stamp] = each;
    if (at_.contains(name)) return true;
    if (may_host(name) || requests.size() >= kRemovedAtOnce) return false;
    drop(name, stamp);
    return true;
  });
  RunUpkeep(client, requests, UpkeepWork::kLeftovers, upkeep_.get(), deadline);
}

}  // namespace semaphored::dynamodb
