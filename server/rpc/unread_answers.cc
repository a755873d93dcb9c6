#include "server/rpc/unread_answers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace semaphored {
namespace {

// At the bound one part of so many of it is made free at once: each time all answers are looked at.
constexpr size_t kMadeFree = 8;

}  // namespace

void UnreadAnswers::Add(UnreadAnswer* answer, size_t bytes, SteadyTime now, size_t bytes_max) {
  answer->bytes_ = bytes;
  answer->sent_at_ = now;
  answer->place_ = answers_.insert(answers_.end(), answer);
  answer->listed_ = true;
  bytes_ += bytes;
  if (bytes_ > bytes_max) CutOffTheLargest(now, bytes_max);
}

void UnreadAnswers::Remove(UnreadAnswer* answer) {
  if (!answer->listed_) return;
  answer->listed_ = false;
  answers_.erase(answer->place_);
  bytes_ -= answer->bytes_;
}

void UnreadAnswers::CutOff(UnreadAnswer* answer) {
  Remove(answer);
  answer->OnUnread();
}

void UnreadAnswers::CutOffBefore(SteadyTime sent_at) {
  while (!answers_.empty() && oldest() <= sent_at) CutOff(answers_.front());
}

void UnreadAnswers::CutOffTheLargest(SteadyTime now, size_t bytes_max) {
  struct Client {
    size_t bytes = 0;
    std::vector<UnreadAnswer*> answers;
  };
  absl::flat_hash_map<std::string, Client> by_peer;
  for (UnreadAnswer* const answer : answers_) {
    Client& client = by_peer[answer->Peer()];
    client.bytes += answer->bytes_;
    client.answers.push_back(answer);
  }
  std::vector<std::pair<std::string, Client>> clients(std::make_move_iterator(by_peer.begin()),
                                                      std::make_move_iterator(by_peer.end()));
  std::ranges::sort(clients, [](const auto& one, const auto& other) {
    return one.second.bytes > other.second.bytes;
  });
  size_t calls = 0;
  size_t cut_off = 0;
  for (; bytes_ > bytes_max - bytes_max / kMadeFree; ++cut_off) {
    for (UnreadAnswer* const answer : clients[cut_off].second.answers) CutOff(answer);
    calls += clients[cut_off].second.answers.size();
  }
  if (const auto more = line_.Again(now)) {
    spdlog::warn(
        "answers_bytes_max ({}) is reached: {} calls of {} connection(s) that do not read the "
        "answers are cut off; {} left most unread{}",
        bytes_max, calls, cut_off, clients.front().first, *more);
  }
}

}  // namespace semaphored
