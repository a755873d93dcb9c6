// Semaphores that this daemon cannot read. It vouches for their leases only for as long as its last read allows, since it
// does not see what other daemons do to them. Single-threaded (the reactor's).
#pragma once

#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "server/base/clock.h"

namespace semaphored {

class UnreadSemaphores {
 public:
  // `vouch`: for how long after a read its leases may be vouched for.
  explicit UnreadSemaphores(Milliseconds vouch) : vouch_(vouch) {}

  bool empty() const { return unread_.empty(); }
  bool contains(const std::string& semaphore) const { return unread_.contains(semaphore); }
  // It was read last at `read_at`. When its leases are lost to their holders: after half of the time, so that the sessions
  // learn of it while they are vouched for without a gap.
  SteadyTime Add(const std::string& semaphore, SteadyTime read_at);
  // It can be read again. Without effect if it could.
  void Remove(const std::string& semaphore) { unread_.erase(semaphore); }
  // Its leases are vouched for no longer than this. SteadyTime::max(): it can be read.
  SteadyTime VouchedUntil(const std::string& semaphore) const;
  // Those whose leases are lost to their holders by `now`, in the order of names.
  std::vector<std::string> LostBy(SteadyTime now) const;

 private:
  struct Unread {
    SteadyTime lost_at;
    SteadyTime vouched_until;
  };

  const Milliseconds vouch_;
  absl::btree_map<std::string, Unread> unread_;
};

}  // namespace semaphored
