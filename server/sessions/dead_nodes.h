// Nodes that have ended. Reads what they left behind from the lanes, page by page: between two pages a lane carries out
// other commands.
// Single-threaded (the reactor's), except for pages().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "server/base/timers.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class DeadNodes {
 public:
  // What to do with what a page has.
  struct Actions {
    std::function<void(const Orphan& orphan)> absorb;
    std::function<void(const DelayedTicket& delayed)> count_delay;
  };

  // `host` and `timers` outlive it.
  DeadNodes(SessionsHost* host, Timers* timers, Actions actions)
      : host_(host), timers_(timers), actions_(std::move(actions)) {}

  // As Sessions::TakeOver.
  void TakeOver(const std::vector<NodeRef>& dead, absl::AnyInvocable<void(absl::Status)> ready);
  // Of all nodes that were taken over so far, each with its last life: a semaphore can be read that could not be read then.
  // After an error it is tried again (TimerKind::kTakeOver, when this is to be called).
  void TakeOverAgain();
  // Pages that were received so far. Any thread.
  uint64_t pages() const { return pages_; }
  // Reads no further page.
  void Stop() { stopped_ = true; }

 private:
  struct Gathering;

  void NoteDead(const std::vector<NodeRef>& dead);
  // Reads a page from a lane, and then the next one.
  void Gather(std::shared_ptr<Gathering> gathering, OrphansCommand page);

  SessionsHost* host_;
  Timers* timers_;
  Actions actions_;
  std::vector<NodeRef> dead_;  // Of each node the last life.
  bool stopped_ = false;
  std::atomic<uint64_t> pages_ = 0;
};

}  // namespace semaphored
