#include "server/service/unread_answers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace semaphored {

void UnreadAnswers::Add(UnreadAnswer* answer, size_t bytes, SteadyTime now, size_t bytes_max) {
  answer->bytes_ = bytes;
  answer->sent_at_ = now;
  answer->place_ = answers_.insert(answers_.end(), answer);
  answer->listed_ = true;
  bytes_ += bytes;
  while (bytes_ > bytes_max) CutOffTheLargest(now, bytes_max);
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
  absl::flat_hash_map<std::string, Client> clients;
  for (UnreadAnswer* const answer : answers_) {
    Client& client = clients[answer->Peer()];
    client.bytes += answer->bytes_;
    client.answers.push_back(answer);
  }
  const auto largest = std::max_element(
      clients.begin(), clients.end(),
      [](const auto& one, const auto& other) { return one.second.bytes < other.second.bytes; });
  for (UnreadAnswer* const answer : largest->second.answers) CutOff(answer);
  if (const auto more = line_.Again(now)) {
    spdlog::warn(
        "answers_bytes_max ({}) is reached: {} calls of {}, which does not read the answers, are "
        "cut off{}",
        bytes_max, largest->second.answers.size(), largest->first, *more);
  }
}

}  // namespace semaphored
