// How many rows of one-shot requests a lane remembers, and which of them may go. Rows whose claims wait
// or stand are counted in the state; here are those in their last state, in the order in which this
// node came to know it, on its steady clock. Single-threaded.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

#include "adapters/adapter.h"
#include "adapters/ledger/options.h"
#include "adapters/ledger/state/transaction.h"

namespace semaphored::ledger {

class OneShots {
 public:
  explicit OneShots(const LedgerOptions& options)
      : now_(options.now),
        rows_max_(options.one_shot_requests_max),
        retention_(options.request_retention) {}

  // A row that a former life has left in its last state: its age counts from now.
  void Add(const Id& one_shot) { ended_.push_back({one_shot, now_()}); }

  // `claims`: how many one-shot requests have claims that wait or stand.
  void BeginBatch(size_t claims);
  // Whether the batch may bring one more row. It is counted by AddNew, and stays counted until the next
  // batch, also if its command is then refused.
  bool HasRoom() const { return rows() < rows_max_; }
  void AddNew() { ++new_; }
  // Names the rows that may go: with a commit that writes anyway, or when there are too many.
  void Forget(Transaction* transaction) const;
  void Won(const Transaction& transaction);

  size_t rows() const { return rows_ - due_ + new_; }
  uint32_t rows_max() const { return rows_max_; }

 private:
  struct Ended {
    Id one_shot;
    SteadyTime since;
  };

  const std::function<SteadyTime()> now_;
  const uint32_t rows_max_;
  const std::chrono::milliseconds retention_;
  std::deque<Ended> ended_;
  // Of the batch: rows before it, how many of them may go, and new ones.
  size_t rows_ = 0;
  size_t due_ = 0;
  size_t new_ = 0;
};

}  // namespace semaphored::ledger
