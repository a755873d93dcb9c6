// The slots of a lease: a set of numbers from 1 on, kept as runs of neighbours. A lease of a million slots
// mostly is one run, and giving one of them back makes two. Not synchronized.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace semaphored {

class Slots {
 public:
  // Both ends belong to it; first <= last.
  struct Run {
    uint32_t first = 0;
    uint32_t last = 0;
    uint32_t size() const { return last - first + 1; }
    friend bool operator==(const Run&, const Run&) = default;
  };

  // Goes through the single slots, rising.
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = uint32_t;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = uint32_t;

    Iterator() = default;
    Iterator(const Run* run, const Run* end)
        : run_(run), end_(end), slot_(run == end ? 0 : run->first) {}
    uint32_t operator*() const { return slot_; }
    Iterator& operator++() {
      if (slot_ != run_->last) {
        ++slot_;
      } else {
        *this = Iterator(run_ + 1, end_);
      }
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const Run* run_ = nullptr;
    const Run* end_ = nullptr;
    uint32_t slot_ = 0;
  };
  using value_type = uint32_t;
  using const_iterator = Iterator;

  Slots() = default;
  Slots(std::initializer_list<uint32_t> slots) : Slots(slots.begin(), slots.end()) {}
  // In any order; a slot that is given twice is one.
  template <std::input_iterator It>
  Slots(It begin, It end) : Slots(std::vector<uint32_t>(begin, end)) {}
  explicit Slots(std::vector<uint32_t> slots);

  Iterator begin() const { return {runs_.data(), runs_.data() + runs_.size()}; }
  Iterator end() const { return {runs_.data() + runs_.size(), runs_.data() + runs_.size()}; }
  // Rising, with a gap between any two.
  absl::Span<const Run> runs() const { return runs_; }
  // How many slots; costs as much as there are runs.
  size_t size() const;
  bool empty() const { return runs_.empty(); }
  // The lowest and the highest. REQUIRES: not empty.
  uint32_t front() const { return runs_.front().first; }
  uint32_t back() const { return runs_.back().last; }

  // REQUIRES: all slots of the run are above back().
  void Append(Run run);
  // The first of `others` that is not here; nullopt: all are.
  std::optional<uint32_t> FirstNotHere(const Slots& others) const;
  // What is here and not in `others`.
  Slots Without(const Slots& others) const;

  friend bool operator==(const Slots&, const Slots&) = default;

 private:
  absl::InlinedVector<Run, 1> runs_;
};

}  // namespace semaphored
