// What a lane remembers of what it has read and written, so that a commit reads nothing: of each semaphore its revision
// and digest, and which claims there are this daemon's; of sessions their rows, and where they may have claims. No I/O.
// Used by the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "adapters/dynamodb/folder.h"
#include "adapters/dynamodb/notice_text.h"
#include "adapters/ledger/state/transaction.h"
#include "adapters/types.h"

namespace semaphored::dynamodb {

class LaneMemory {
 public:
  struct Known {
    uint64_t revision = 0;  // 0: there is none.
    uint64_t digest = 0;
    uint64_t history_number = 0;
    absl::Status damage;
  };
  // What a commit that has won did to a semaphore.
  struct Written {
    uint64_t revision = 0;  // 0: it is destroyed.
    uint64_t digest = 0;
    uint64_t history_number = 0;
    std::vector<std::pair<const Claim*, bool>> came;  // With whether it waits.
    std::vector<Id> gone;                             // Claims, and tickets that have changed.
    std::vector<Id> counted;                          // Tickets whose delay this node counts.
  };

  explicit LaneMemory(NodeRef self) : self_(self) {}

  // ---- Semaphores ----

  // nullptr: nothing is known of it.
  const Known* Find(const std::string& name) const;
  // It was read. Of what is damaged, what was known before stays: it may be put back.
  void Keep(const Folder& folder);
  void Keep(const std::string& name, const Written& written);
  // A commit of another daemon, by its change notice. False: it is not the next one, or what it rests upon is not known.
  bool Follow(const std::string& name, uint64_t revision, const SentDetails& told);

  // Own claims in all that is known, which this daemon must hear of: those that wait, and those that hold.
  size_t waiting() const { return waiting_; }
  size_t holding() const { return holding_; }
  // This node, in this life or an earlier one, may host something there: a detached claim, or a ticket whose delay it
  // counts.
  bool MayHost(const std::string& name) const;
  bool Counts(const Ticket& ticket) const;

  // ---- Sessions ----

  // Its row, as it was read.
  void SeeSession(const ledger::SessionPtr& session) { sessions_[session->id] = session; }
  // Its row and its claims' semaphores, all of them; nullptr: it is not there.
  void SeeSession(const Id& id, const ledger::SessionPtr& session,
                  const std::vector<std::string>& semaphores);
  // A commit that has won has written the row: the session may have come here, or gone elsewhere.
  void WriteSession(const ledger::SessionPtr& session);
  // A commit that has won has removed it. Where it may have had claims.
  std::vector<std::string> RemoveSession(const Id& id);
  // Its row is to be read again.
  void ForgetSession(const Id& id) { sessions_.erase(id); }
  // It is written that the session may have claims there.
  bool IsIndexed(const Id& session, const std::string& semaphore) const;
  void Index(const Id& session, const std::string& semaphore);
  // Call it now and then: with very many sessions, all are forgotten.
  void ForgetSomeSessions();

 private:
  // A claim that this daemon must watch; one that it may have to watch, when its session comes here; or what this node
  // hosts.
  struct OwnClaim {
    bool is_here = false;
    bool waits = false;
    bool hosted = false;
    Id session = {};  // Empty: it has none but itself.
  };
  struct Semaphore : Known {
    absl::flat_hash_map<Id, OwnClaim> own;
  };

  // Is it this daemon that vouches for the claim?
  bool IsHere(const Claim& claim) const;
  void Add(Semaphore* known, const Claim& claim, bool waits);
  void AddCounted(Semaphore* known, const Id& ticket) { known->own[ticket] = {false, false, true}; }
  void Remove(Semaphore* known, const Id& claim);

  static constexpr size_t kSemaphoresKept = 50'000;

  const NodeRef self_;
  absl::flat_hash_map<std::string, Semaphore> known_;
  size_t known_max_ = kSemaphoresKept;
  size_t waiting_ = 0;
  size_t holding_ = 0;
  absl::flat_hash_map<Id, ledger::SessionPtr> sessions_;
  absl::flat_hash_map<Id, absl::flat_hash_set<std::string>> indexed_;  // By session.
};

}  // namespace semaphored::dynamodb
