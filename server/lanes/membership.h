// Which daemons are alive, as each sees the others through the engine, and for how long this one
// may still say that a lease is good.
//
// A node's row has a counter. Each daemon counts its own up (a heartbeat) every third of the node
// TTL and reads the others'. Two rules make it safe:
//   * Death needs unbroken reading. A node is declared dead only after its counter was read
//     unchanged over one node TTL of this clock. Any gap in it (a failed read, an engine that takes
//     no writes, this process paused) begins the count again.
//   * Self-fencing. We vouch for leases until (the time at which the last heartbeat that succeeded
//     was *sent*) + node TTL − margin. A daemon that declares us dead has read that heartbeat's
//     counter for a whole node TTL, so we stopped before; the margin covers clocks that differ in
//     speed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "adapters/adapter.h"
#include "server/base/clock.h"
#include "server/figures/metrics.h"

namespace semaphored {

struct MembershipOptions {
  Milliseconds node_ttl{10'000};
  // Default: a tenth of the node TTL.
  Milliseconds margin{-1};
  // Guarantees::exclusive: no other node can end our leases, so we vouch until we are replaced, and
  // observe no node.
  bool exclusive = false;
  std::string node_id = {};  // Of this node.
};

// True if every lane has completed a Step after `since`. Called by Tick() on its thread; must not
// block.
using ProgressCheck = std::function<bool(SteadyTime since)>;

// Has no thread: its owner calls Tick(). One thread at a time, but for vouch_until().
class Membership {
 public:
  struct TickResult {
    // To be taken over: nodes that we have declared dead, or have found dead and not reported
    // before (the node that declared them dead may have died before it took them over).
    std::vector<NodeRef> dead;
    // Why no heartbeat succeeded this time. OK: one did.
    absl::Status heartbeat;
    // FAILED_PRECONDITION, once and for ever: this node was replaced or declared dead. The daemon
    // must end.
    absl::Status fatal;
  };

  // REQUIRES: `self` is what store->Join() gave. Both pointers outlive it.
  Membership(NodeStore* store, NodeRef self, const Clock* clock, MembershipOptions options,
             ProgressCheck lanes_progressed);

  // Sends a heartbeat if the lanes have made progress, reads the other nodes, declares dead who is.
  // Call it every interval(), or retry_interval() after a heartbeat that failed. Blocks for as long as the
  // engine takes. After `fatal` it does nothing any more.
  TickResult Tick();

  // The daemon ends in order: its row says so, and its next life need not wait. Does nothing if the
  // last heartbeat failed, so that an engine that is away holds nothing up. After the last Tick.
  // Blocks for as long as the engine takes.
  absl::Status Leave();

  // The take-over of these dead nodes failed: the next Tick tells them again. Any thread.
  void TellAgain(const std::vector<NodeRef>& dead);

  // Nothing may be vouched for from this time on; SteadyTime::max() on an exclusive engine. Never
  // falls but at `fatal`, then to SteadyTime::min(), which it also is before the first heartbeat.
  // Any thread.
  SteadyTime vouch_until() const { return SteadyTime(SteadyTime::duration(vouch_until_.load())); }

  // When the last heartbeat that succeeded was sent; SteadyTime::min(): none has yet. Any thread.
  SteadyTime heartbeat_at() const { return SteadyTime(SteadyTime::duration(heartbeat_at_.load())); }
  // Any thread.
  const HeartbeatFigures& figures() const { return figures_; }

  // The node id that was given to the node, as far as it has been read; else its number and incarnation. Any thread.
  std::string NameOf(const NodeRef& node) const;
  // All nodes as they were last read; none on an exclusive engine, whose nodes are not read. Any thread.
  std::vector<NodeStore::Node> nodes() const;
  const NodeRef& self() const { return self_; }
  Milliseconds interval() const { return options_.node_ttl / 3; }
  // An engine that is back is vouched for again before the last heartbeat is too old.
  Milliseconds retry_interval() const { return options_.node_ttl / 24; }

 private:
  struct Observation {
    uint64_t counter = 0;
    uint32_t incarnation = 0;
    SteadyTime since{};  // When the first read that showed it had returned.
  };

  absl::Status Heartbeat();
  void Observe(TickResult* result);
  // False: the observation was broken, and starts again.
  bool ReadUnbroken(SteadyTime sent, SteadyTime returned);
  void Judge(const NodeStore::Node& node, SteadyTime sent, SteadyTime returned, TickResult* result);
  void TellFoundDead(const std::vector<NodeStore::Node>& nodes, TickResult* result);
  void TellDead(NodeRef node, TickResult* result);
  void ForgetTold();
  void Fail(absl::Status why);
  void SetVouchUntil(SteadyTime time) { vouch_until_.store(time.time_since_epoch().count()); }

  NodeStore* store_;
  const NodeRef self_;
  const Clock* clock_;
  const MembershipOptions options_;
  ProgressCheck lanes_progressed_;
  std::atomic<SteadyTime::rep> vouch_until_;
  std::atomic<SteadyTime::rep> heartbeat_at_{SteadyTime::min().time_since_epoch().count()};
  HeartbeatFigures figures_;
  absl::Status fatal_;
  bool in_touch_ = false;  // The last heartbeat succeeded.
  SteadyTime progress_since_{};
  SteadyTime last_read_{};  // When the last successful read returned; min(): the reading is broken.
  std::map<uint32_t, Observation>
      observed_;  // By node number; only nodes that the last read showed.
  std::set<std::pair<uint32_t, uint32_t>> told_dead_;  // Number and incarnation; likewise.
  mutable std::mutex names_mutex_;
  std::map<uint32_t, std::string> names_;  // By node number; guarded by names_mutex_.
  std::vector<NodeStore::Node> nodes_;     // Guarded by names_mutex_.
  std::mutex again_mutex_;
  std::vector<NodeRef> again_;  // Guarded by again_mutex_: to be reported once more.
};

// Calls Tick() on a thread of its own: at once, and then when it is due.
class MembershipThread {
 public:
  // Called on the thread; must not block. The thread ends after on_fatal.
  struct Callbacks {
    std::function<void(std::vector<NodeRef> dead)> on_dead;
    std::function<void(absl::Status why)> on_fatal;
    // Vouching has ended or begun again. It may come late, while the engine keeps a Tick waiting:
    // code that answers for a lease looks at vouch_until() itself.
    std::function<void(bool vouched)> on_vouch_change;
    // A heartbeat has failed, the first since one succeeded.
    std::function<void(const absl::Status& why)> on_heartbeat_failed;
    // Until when is vouched, where that does not hang on heartbeats alone. Asked on the thread;
    // must not block. Null: Membership::vouch_until().
    std::function<SteadyTime()> vouch_until;
  };

  // Both pointers outlive it.
  MembershipThread(Membership* membership, const Clock* clock, Callbacks callbacks);
  // Waits for a Tick that is under way.
  ~MembershipThread();

  MembershipThread(const MembershipThread&) = delete;
  MembershipThread& operator=(const MembershipThread&) = delete;

 private:
  void Run();
  // False: it is time to stop.
  bool WaitUntil(SteadyTime time);
  SteadyTime VouchUntil() const;
  void TellVouch();

  Membership* membership_;
  const Clock* clock_;
  Callbacks callbacks_;
  bool vouched_ = false;  // What was reported last; the thread's own.
  bool failing_ = false;  // Likewise.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace semaphored
