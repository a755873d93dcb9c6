// Where each remembered answer lies: an index, in memory, over the rows of the table `answers`.
//
// Each commit appends one row with all of its answers, whoever asked: sixty clients that ask in one
// batch cost one page and not sixty, as they would in a table ordered by client. The price is that
// a row can only be deleted when none of its answers is wanted any more. So the log is cut at the
// front; when more than half of it is dead, commits move what still lives in the first rows to the
// end, a few at a time, so that it stays in proportion to what is remembered. 16 bytes of memory
// for each answer.
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

class AnswerLog {
 public:
  // Key of the row that the next commit appends.
  uint64_t next_row() const { return first_row_ + rows_.size(); }
  // Key of the row in which this answer lies; nullopt: not remembered.
  std::optional<uint64_t> Find(const RequestKey& request) const;
  // The highest sequence number remembered of this client; 0: none.
  uint64_t Highest(uint32_t client) const;

  // Rows below may be deleted. 0: not enough of them to be worth a write.
  uint64_t DeadBelow() const;
  // Rows [first, last), at the front, whose living answers the next commit should move to its own
  // row, and delete. Empty most of the time; never more answers in them than `answers_max`, or one
  // row.
  struct Range {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  Range RowsToMove(uint64_t answers_max) const;

  // A row has been appended, or is being loaded; its answers are then given one by one. The first
  // one loaded sets where the log begins; each other must have the next key.
  void BeginRow(uint64_t row);
  // An answer in the last row: new, or moved there from another row.
  void Add(const RequestKey& request);
  // Met while loading: an answer in the last row that nobody wants.
  void AddDead();
  // Everything below is deleted. REQUIRES: no living answer lies there.
  void CutBelow(uint64_t row);
  // Answers of the client with a lower sequence number are not wanted any more.
  void RaiseFloor(uint32_t client, uint64_t below);
  void Forget(uint32_t client);

 private:
  struct Row {
    uint32_t answers = 0;
    uint32_t living = 0;
  };
  struct Place {
    uint64_t sequence = 0;
    uint64_t row = 0;
  };
  // Rising by sequence, from `begin` on; what is before has been forgotten.
  struct Answers {
    absl::InlinedVector<Place, 1> places;
    size_t begin = 0;
  };

  Row& RowAt(uint64_t row) { return rows_[row - first_row_]; }
  void Drop(const Place& place);

  uint64_t first_row_ = 1;
  std::deque<Row> rows_;
  absl::flat_hash_map<uint32_t, Answers> by_client_;
  uint64_t answers_ = 0;
  uint64_t living_ = 0;
};

}  // namespace semaphored::sqlite
