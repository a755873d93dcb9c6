// Sessions that are on their way to this daemon, and what the lanes report of their claims meanwhile.
//
// The engine's answer to an adoption comes through the session's lane, and may be reported after what the lanes of its
// semaphores have done since. Each lane reports events in the order of its commits, but none waits for another: what is
// reported from the question to the answer is kept here, and the answer is brought up to date with it. Otherwise a client
// would learn that it holds what has been taken from it meanwhile.
//
// Single-threaded (the reactor's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/adapter.h"

namespace semaphored {

class Adoptions {
 public:
  // Claims of which something is kept for one adoption. What happens to more than these the session's lane reports at its
  // next sweep.
  static constexpr size_t kChangesKeptMax = 100'000;

  // What was reported of the claims of one session.
  class Changes {
   public:
    // The claim has left the session, and may have come back since.
    bool HasLeft(const Id& claim) const;
    // Removes the claims that have ended or left, and says of the others what they are now.
    void BringUpToDate(std::vector<ClaimInfo>* claims) const;

   private:
    friend class Adoptions;
    struct Change {
      bool ended = false;
      uint32_t left_at = 0;  // The epoch with which it left the session. 0: it has not left.
      LeasePtr lease;        // Granted, recalled, or given back in part. Null: none of them.
      TicketPtr ticket;
    };
    absl::flat_hash_map<Id, Change> by_claim_;
  };

  // The engine is queried for the session. As many answers are under way as Begin was called more often than Take.
  void Begin(const Id& session) { ++adoptions_[session].asked; }
  // An answer has come, or an error: what was kept since the Begin of the oldest that is under way. REQUIRES: a Begin of it.
  Changes Take(const Id& session);
  // A lane has reported an event. Without effect if its session is not on its way here.
  void Keep(const Event& event) {
    if (!adoptions_.empty()) KeepEvent(event);
  }
  // Permits of the lease were given back. As Keep.
  void KeepLease(const LeasePtr& lease);

 private:
  struct Adoption {
    int asked = 0;  // Answers that have not come yet.
    Changes changes;
  };

  void KeepEvent(const Event& event);
  // Null: the session is not on its way here, or too much is kept of it.
  Changes::Change* ChangeOf(const Id& session, const Id& claim);

  absl::flat_hash_map<Id, Adoption> adoptions_;  // By session.
};

}  // namespace semaphored
