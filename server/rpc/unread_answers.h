// The answers to unary calls that their clients have not taken yet. What gRPC keeps of them is bounded: a client that
// does not read loses its calls.
#pragma once

#include <cstddef>
#include <list>
#include <string>

#include "adapters/common/rare_line.h"
#include "server/base/clock.h"
#include "server/rpc/reactor.h"

namespace semaphored {

// One of them. Its owner reports when the client has taken it.
class UnreadAnswer {
 public:
  // The client has not taken it in time: cuts the call off.
  virtual void OnUnread() = 0;
  // Of the connection: which calls are one client's.
  virtual std::string Peer() const = 0;

 protected:
  ~UnreadAnswer() = default;

 private:
  friend class UnreadAnswers;
  size_t bytes_ = 0;
  SteadyTime sent_at_{};
  bool listed_ = false;
  std::list<UnreadAnswer*>::iterator place_;
};

// On the reactor's thread.
class UnreadAnswers {
 public:
  // It has been handed to gRPC. If all of them together are more than `bytes_max`, the calls are cut off of the
  // connections that leave most unread, until at most 7/8 of it are left; this one of them may be.
  void Add(UnreadAnswer* answer, size_t bytes, SteadyTime now, size_t bytes_max);
  // It has been taken, or its call has ended.
  void Remove(UnreadAnswer* answer);
  // Cuts off those that have not been taken since this time.
  void CutOffBefore(SteadyTime sent_at);

  size_t bytes() const { return bytes_; }
  // When the oldest was sent. REQUIRES: !empty().
  SteadyTime oldest() const { return answers_.front()->sent_at_; }
  bool empty() const { return answers_.empty(); }

 private:
  void CutOff(UnreadAnswer* answer);
  void CutOffTheLargest(SteadyTime now, size_t bytes_max);

  std::list<UnreadAnswer*> answers_;  // The oldest first.
  size_t bytes_ = 0;
  RareLine line_;
};

}  // namespace semaphored
