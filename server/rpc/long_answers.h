// Answers of many rows are composed of several slices, and take memory until the last slice has arrived. So only a few
// are composed at the same time; the others wait, and the connections take turns.
#pragma once

#include <cstddef>
#include <list>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace semaphored {

// A call that is to be answered at length.
class LongAnswer {
 public:
  // It is its turn, which lasts until LongAnswers::Done().
  virtual void Compose() = 0;

 protected:
  ~LongAnswer() = default;

 private:
  friend class LongAnswers;
  struct Client {
    std::string peer;
    std::list<LongAnswer*> waiting;
  };
  bool waits_ = false;
  // While it waits.
  std::list<Client>::iterator client_;
  std::list<LongAnswer*>::iterator place_;
};

// On the reactor's thread.
class LongAnswers {
 public:
  static constexpr size_t kAtOnce = 16;

  // Its turn comes now or later. `peer`: the connection.
  void Add(LongAnswer* answer, const std::string& peer) {
    auto found = places_.find(peer);
    if (found == places_.end())
      found = places_.emplace(peer, clients_.insert(clients_.end(), {peer, {}})).first;
    answer->client_ = found->second;
    auto& waiting = answer->client_->waiting;
    answer->place_ = waiting.insert(waiting.end(), answer);
    answer->waits_ = true;
    Next();
  }
  // It no longer needs a turn. False: it does not wait; if it has its turn, it keeps it.
  bool Remove(LongAnswer* answer) {
    if (!answer->waits_) return false;
    answer->waits_ = false;
    answer->client_->waiting.erase(answer->place_);
    if (answer->client_->waiting.empty()) {
      places_.erase(answer->client_->peer);
      clients_.erase(answer->client_);
    }
    return true;
  }
  // One whose turn had come is done.
  void Done() {
    --composed_;
    Next();
  }

 private:
  void Next() {
    if (choosing_) return;  // Within a Compose() that was done at once.
    choosing_ = true;
    while (composed_ < kAtOnce && !clients_.empty()) {
      LongAnswer* const first = clients_.front().waiting.front();
      // The next of its connection is behind the others'.
      clients_.splice(clients_.end(), clients_, clients_.begin());
      Remove(first);
      ++composed_;
      first->Compose();
    }
    choosing_ = false;
  }

  std::list<LongAnswer::Client> clients_;  // In the order of their turns; each has some that wait.
  absl::flat_hash_map<std::string, std::list<LongAnswer::Client>::iterator> places_;
  size_t composed_ = 0;
  bool choosing_ = false;
};

}  // namespace semaphored
