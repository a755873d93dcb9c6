// What something in a small world speaks of, for its canonical form: claims, and epochs of claims and sessions.
// What nothing speaks of any more has no future.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/worlds/lane_copy.h"
#include "tests/worlds/small_world.h"

namespace semaphored::worlds {

class Mentions {
 public:
  // Outlives it, and does not change meanwhile.
  explicit Mentions(const SmallWorld* world);

  // REQUIRES: the lane is up.
  const LaneCopy& CopyOf(const SmallWorld::Lane& lane) const { return copies_.at(&lane); }
  const std::vector<Id>& claims() const { return claims_; }  // Sorted.
  // Which of its request's claims it is, among those that are mentioned.
  uint64_t AttemptOf(const Id& claim) const;
  // Of an epoch that the claim or the session has somewhere, among all that it has. 0 stays 0. Neighbours stay
  // neighbours: a session that closes answers to the epoch before, too.
  uint64_t RankOf(const Id& id, uint32_t epoch) const;
  // The claim that the request has; empty: none.
  Id ClaimOf(const Requester& requester) const;

  // The engine's; 0: it has no semaphore of the name. Revisions only rise, also over the end of a semaphore.
  uint64_t RevisionOf(const std::string& semaphore) const;
  // The semaphores are as the transaction expects them. If they are not, they never will be.
  bool Stands(const ledger::Transaction& transaction) const;
  // A commit whose answer did not come may reach the engine yet, and change it.
  bool MayStillLand(const InFlight& write) const;

 private:
  void Add(const Id& claim) { claims_.push_back(claim); }
  void Add(const Id& id, uint32_t epoch) {
    if (epoch != 0) epochs_[id].push_back(epoch);
  }
  template <typename Semaphore>
  void AddAllOf(const Semaphore& semaphore);
  void AddAllOf(const Command& command);
  void AddAllOf(const InFlight& write);
  void AddAllOf(const SmallWorld::Lane& lane);
  void AddAllOf(const SmallWorld::Node& node);

  const SmallWorld& world_;
  std::map<const SmallWorld::Lane*, LaneCopy> copies_;
  std::vector<Id> claims_;
  std::map<Id, std::vector<uint32_t>>
      epochs_;  // By the claim or the session that has them; sorted.
};

}  // namespace semaphored::worlds
