// Where each remembered request's row lies: an index, in memory, over the rows of the table
// `requests`.
//
// Each commit appends one row of the table with all requests that it changes, whichever clients they
// are from: sixty clients in one batch cost one page and not sixty, as they would in a table ordered
// by client. A request that changes is written again, and what was written of it before is dead. The
// price is that a row can only be deleted when none of its requests is wanted any more. So the log is
// cut at the front; when more than half of it is dead, commits move what still lives in the first
// rows to the end, a few at a time, so that it stays in proportion to what is remembered. 16 bytes of
// memory for each request, some 40 for one with a one-shot id.
//
// Single-threaded. Changed only after the commit has won: a commit that fails leaves it as it was.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "adapters/types.h"

namespace semaphored::sqlite {

class RequestLog {
 public:
  // Key of the row that the next commit appends.
  uint64_t next_row() const { return first_row_ + rows_.size(); }
  // Key of the row in which this request lies; nullopt: not remembered.
  std::optional<uint64_t> Find(const RequestKey& request) const;
  // Key of the row with the last word on this request, also if that is its removal; nullopt: there is none.
  std::optional<uint64_t> RowOf(const RequestKey& request) const;
  // The highest sequence number remembered of this client, removed ones included; 0: none.
  uint64_t Highest(uint32_t client) const;

  // Rows below may be deleted. 0: not enough of them to be worth a write.
  uint64_t DeadBelow() const;
  // Rows [first, last), at the front, whose living requests the next commit should move to its own
  // row, and delete. Empty most of the time; never more requests in them than `requests_max`, or one
  // row.
  struct Range {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  Range RowsToMove(uint64_t requests_max) const;

  // A row has been appended, or is being loaded; its requests are then given one by one. The first
  // one loaded sets where the log begins; each other must have the next key.
  void BeginRow(uint64_t row);
  // A request in the last row: new, or changed. A pinned one is not forgotten, however high the floor,
  // until it is unpinned or its client is forgotten.
  void Add(const RequestKey& request, bool pinned) { Put(request, pinned, /*removed=*/false); }
  // The last row says that the request is no more. Its number stays until the floor is above it: without it what is
  // below the window could seem new after a restart. That of a one-shot request does not.
  void AddRemoval(const RequestKey& request);
  // As it is, in the last row.
  void Move(const RequestKey& request);
  // Met while loading, of no use in the last row.
  void AddDead();
  // Its claim has ended: from now on it goes with the floor.
  void Unpin(const RequestKey& request);
  bool IsPinned(const RequestKey& request) const;
  // Everything below is deleted. REQUIRES: no living request lies there.
  void CutBelow(uint64_t row);
  // Requests of the client with a lower sequence number are not wanted any more, but for the pinned.
  void RaiseFloor(uint32_t client, uint64_t below);
  void Forget(uint32_t client);
  // Calls `take` with the ids of the one-shot requests that are not pinned, in any order.
  template <typename Take>
  void ForEachOneShotUnpinned(Take&& take) const {
    for (const auto& [id, place] : one_shots_) {
      if (place.pinned == 0) take(id);
    }
  }

 private:
  struct Row {
    uint32_t requests = 0;
    uint32_t living = 0;
  };
  struct Place {
    uint64_t sequence = 0;
    uint64_t row : 62 = 0;
    uint64_t pinned : 1 = 0;
    uint64_t removed : 1 = 0;
  };
  // Rising by sequence, from `begin` on; what is before has been forgotten.
  struct Requests {
    absl::InlinedVector<Place, 1> places;
    size_t begin = 0;
  };

  Row& RowAt(uint64_t row) { return rows_[row - first_row_]; }
  Place* At(const RequestKey& request);
  const Place* At(const RequestKey& request) const;
  void Put(const RequestKey& request, bool pinned, bool removed);
  void Drop(const Place& place);
  // Gives back what is before `begin`, now and then, and the whole entry when nothing is left.
  void Tidy(uint32_t client, Requests* requests);

  uint64_t first_row_ = 1;
  std::deque<Row> rows_;
  absl::flat_hash_map<uint32_t, Requests> by_client_;
  absl::flat_hash_map<Id, Place> one_shots_;  // Their sequence numbers are 0.
  uint64_t written_ = 0;
  uint64_t living_ = 0;
};

}  // namespace semaphored::sqlite
