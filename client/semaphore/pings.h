// Inside the client: the pings of a session. Their numbers rise over all its streams.
#ifndef SEMAPHORED_CLIENT_SEMAPHORE_PINGS_H_
#define SEMAPHORED_CLIENT_SEMAPHORE_PINGS_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "client/semaphore/clock.h"

namespace semaphore {

class Pings {
 public:
  // Returns the number of the ping that is sent now; the next is due after the pause.
  std::uint64_t Send(TimePoint now, std::chrono::milliseconds pause) {
    sent_.emplace_back(++last_, now);
    if (sent_.size() > kRemembered) sent_.pop_front();
    due_ = now + pause;
    wanted_ = false;
    return last_;
  }
  bool IsDue(TimePoint now) const { return wanted_ || now >= due_; }
  // By its time alone. kNever: none is.
  TimePoint due() const { return due_; }
  void DueAt(TimePoint at) { due_ = at; }
  // The next is due at once.
  void Want() { wanted_ = true; }

  // False: an answer to this number, or to a later one, has come, or none can come.
  bool Awaits(std::uint64_t number) const { return number > answered_; }
  void Answered(std::uint64_t number) { answered_ = number; }
  // What was not answered on the stream before never will be.
  void AwaitNone() { answered_ = last_; }

  // When it was sent; kNever: it is not known, or not any more.
  TimePoint SentAt(std::uint64_t number) const {
    const auto sent = std::find_if(sent_.begin(), sent_.end(),
                                   [&](const auto& ping) { return ping.first == number; });
    return sent == sent_.end() ? kNever : sent->second;
  }
  // When the first that is awaited was sent; kNever: none is.
  TimePoint AwaitedSince() const { return SentAt(answered_ + 1); }
  // When the oldest that is remembered was sent; kNever: none is.
  TimePoint Oldest() const { return sent_.empty() ? kNever : sent_.front().second; }

 private:
  // At eight within the time that is vouched for, those of several such times: what a recall names was sent long after the
  // oldest of them.
  static constexpr std::size_t kRemembered = 64;

  std::uint64_t last_ = 0;
  std::uint64_t answered_ = 0;  // The last number that is not awaited any more.
  std::deque<std::pair<std::uint64_t, TimePoint>> sent_;  // The latest, with when they were sent.
  TimePoint due_ = kNever;
  bool wanted_ = false;  // Before that.
};

}  // namespace semaphore

#endif  // SEMAPHORED_CLIENT_SEMAPHORE_PINGS_H_
