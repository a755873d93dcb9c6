// Sessions that move to this daemon, and the events of their claims during the move.
//
// The session's lane reports the engine's answer to an adoption. The lanes of the session's semaphores may report later
// events before that: each lane reports its events in the order of its commits, but no lane waits for another. So the
// events between the query and the answer are kept here and applied to the answer. Otherwise a client could receive a
// lease that has ended.
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
  // Claims whose events are kept, for one adoption. The session's lane reports the changes of others at its next sweep.
  static constexpr size_t kChangesKeptMax = 100'000;

  // The events of the claims of one session.
  class Changes {
   public:
    // The claim has left the session; it may belong to it again.
    bool HasLeft(const Id& claim) const;
    // Removes the claims that have ended or left, and updates the others.
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
  // An answer or an error has arrived: returns the events since the oldest Begin without a Take. REQUIRES: there is one.
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
