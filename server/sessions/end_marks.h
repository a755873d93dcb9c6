// Ends of claims that another lane has reported before the claim's own lane has reported the grant. If the grant comes
// after that, the request fails. A mark stays until every lane has finished a Step that began after the mark was made: a
// lane carries out its jobs in order, so what it did before it has reported by then. Single-threaded (the reactor's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class EndMarks {
 public:
  // Beyond this bound no mark is made, and has_all() is false.
  static constexpr size_t kMarksMax = 100'000;

  // The host outlives it.
  explicit EndMarks(SessionsHost* host) : host_(host) {}

  // The claim has ended. Submits a job to each lane, unless such jobs are under way.
  void Add(const Id& claim, EndCause cause);
  // Null: the claim has no mark. Valid until the next call of a method that is not const.
  const EndCause* Find(const Id& claim) const {
    if (marks_.empty()) return nullptr;
    const auto found = marks_.find(claim);
    return found == marks_.end() ? nullptr : &found->second.cause;
  }
  // False: a mark was left out, and not every lane has finished a Step that began after that. A claim without a mark may
  // have ended before its grant is reported.
  bool has_all() const { return !left_out_.has_value(); }
  // After each lane's results. If all lanes have answered: removes the marks that are old enough, and submits jobs again
  // if some are left, or left out, and `go_on`.
  void Age(bool go_on);

 private:
  struct Mark {
    EndCause cause = EndCause::kNone;
    uint64_t round = 0;  // round_ when the mark was made.
  };

  void AskLanes();

  SessionsHost* host_;
  absl::flat_hash_map<Id, Mark> marks_;
  std::optional<uint64_t> left_out_;  // round_ when a mark was left out last.
  uint64_t round_ = 0;
  size_t lanes_asked_ = 0;  // Lanes that have not answered in this round.
};

}  // namespace semaphored
