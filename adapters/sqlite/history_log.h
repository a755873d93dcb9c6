// Which rows the table `history` has. Each commit appends one, with all leases that ended in it;
// its key is the number of the first of them. Single-threaded; changed only after the commit has
// won.
#pragma once

#include <cstdint>
#include <deque>

namespace semaphored::sqlite {

class HistoryLog {
 public:
  // Leases to remember; 0: none at all.
  explicit HistoryLog(uint64_t rows_max) : rows_max_(rows_max) {}

  bool kept() const { return rows_max_ != 0; }
  // Number of the next lease to end, and key of the next row.
  uint64_t next() const { return next_; }
  // Leases with lower numbers are not shown any more, though they may still be in the table.
  uint64_t floor() const { return next_ > rows_max_ ? next_ - rows_max_ : 1; }

  // Rows with lower keys may be deleted. 0: not enough of them to be worth a write.
  uint64_t DeadBelow() const {
    const uint64_t floor = this->floor();
    if (firsts_.size() < 2 || firsts_[1] > floor) return 0;
    // The worth is judged by the rows at the front, so that this need not count.
    const bool many = firsts_.size() > kRowsDeletedMin && firsts_[kRowsDeletedMin] <= floor;
    const bool large = floor - firsts_.front() >= kLeasesDeletedMin;
    if (!many && !large) return 0;
    uint64_t below = firsts_[1];
    for (size_t i = 2; i < firsts_.size() && i <= kRowsDeletedMax && firsts_[i] <= floor; ++i)
      below = firsts_[i];
    return below;
  }

  void Append(uint64_t first, uint64_t leases) {
    firsts_.push_back(first);
    next_ = first + leases;
  }
  // While loading, when how many they are is known only of the last row.
  void SetLeasesOfLast(uint64_t leases) { next_ = firsts_.back() + leases; }
  void CutBelow(uint64_t first) {
    while (!firsts_.empty() && firsts_.front() < first) firsts_.pop_front();
  }

 private:
  static constexpr size_t kRowsDeletedMin = 64;
  static constexpr size_t kRowsDeletedMax = 256;
  static constexpr uint64_t kLeasesDeletedMin = 4096;

  uint64_t rows_max_;
  uint64_t next_ = 1;
  std::deque<uint64_t> firsts_;
};

}  // namespace semaphored::sqlite
