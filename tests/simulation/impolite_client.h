// Clients that break the rules of the API: two of them share one client id. They ask with one id in
// two sessions and in calls beside them, use a sequence number for two things, begin again at 1,
// cancel what is being granted, and release what they were given twice. No other client may notice.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/actor.h"

namespace semaphored::simulation {

class ImpoliteClient;

// What the clients of one id know in common. Times are the world's.
struct ImpoliteBook {
  std::string client_id;
  uint64_t sequence = 0;                                 // The last one that was used.
  std::map<uint64_t, std::vector<AcquireParams>> asked;  // By sequence number.
  std::vector<Id> granted;                               // The last ones, …
  std::map<Id, std::string> semaphores;                  // … and of which semaphore.
  std::set<Id> given_back;
  std::vector<ImpoliteClient*> clients;
};

class ImpoliteClient : public Actor {
 public:
  ImpoliteClient(Surroundings* around, int index, std::shared_ptr<ImpoliteBook> book)
      : Actor(around, index, book->client_id), book_(std::move(book)) {
    client_id_ = book_->client_id;
    book_->clients.push_back(this);
  }

  void Start() override {
    Later(random().Between(1, 3000) * kMillisecond, [this] { Act(); });
  }
  void Crash() override { Leave(); }
  // It waits for nothing.
  bool idle() const override { return true; }

 private:
  void Act();
  void Open();
  void Ask();
  // A request that one of the clients of this id has made, with its effect or with another.
  AcquireParams Repeated();
  void Release();
  // An act with the id of another request, or with one that is new.
  void Administer();
  // What it believes in stays until its time is up: the daemon may have vouched for it.
  void Leave();
  void OnGranted(const Reply& reply);
  void Prolong(const Reply& reply);
  void Handle(const Reply& reply) override;
  void HandleBroken() override { session_ = Id{}; }

  std::shared_ptr<ImpoliteBook> book_;
  Id session_;  // Of the present channel; empty: none.
  int64_t deadline_us_ = 0;
  int64_t leave_at_us_ = 0;
  uint64_t epoch_ = 0;
  std::set<Id> of_session_;             // Claims that it believes in.
  std::map<uint64_t, uint64_t> calls_;  // Sequence number of each call beside a session, by tag.
};

}  // namespace semaphored::simulation
