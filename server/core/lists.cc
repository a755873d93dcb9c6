#include "server/core/lists.h"

#include <algorithm>

namespace semaphored {

void Lists::Add(ListCommand list, Reply<AdminAnswer> reply) {
  list.rows_max = std::min(list.rows_max, rows_max_);
  waiting_.push_back({std::move(list), std::move(reply)});
  ReadNext();
}

void Lists::ReadNext() {
  while (!waiting_.empty() && rows_under_way_ + waiting_.front().slice.rows_max <= rows_max_) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const uint32_t rows = next.slice.rows_max;
    rows_under_way_ += rows;
    read_(std::move(next.slice),
          [this, rows, reply = std::move(next.reply)](Result<AdminAnswer> result) mutable {
            rows_under_way_ -= rows;
            reply(std::move(result));
            ReadNext();
          });
  }
}

std::vector<Reply<AdminAnswer>> Lists::TakeWaiting() {
  std::vector<Reply<AdminAnswer>> replies;
  replies.reserve(waiting_.size());
  for (Waiting& each : std::exchange(waiting_, {})) replies.push_back(std::move(each.reply));
  return replies;
}

}  // namespace semaphored
