// The clients of the simulation. Each follows the rules of the API to the letter; what goes wrong
// is around them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "tests/simulation/actor.h"

namespace semaphored::simulation {

// One lease at a time: by Acquire and Renew, or by Hold.
class LeaseClient : public Actor {
 public:
  LeaseClient(Surroundings* around, int index, std::string name, bool holds)
      : Actor(around, index, std::move(name)), holds_(holds) {}

  void Start() override { Think(); }
  void Crash() override;
  bool idle() const override { return stage_ == Stage::kIdle; }

 private:
  enum class Stage { kIdle, kAsking, kHolding, kReleasing };

  void Think();
  void NewRequest();
  void Ask();
  void AskAgainSoon();
  void OnGranted(const Reply& reply);
  void OnAlive(const Reply& reply);
  void Believe(const Reply& reply);
  void KeepAlive();
  void ReleaseSome();
  void ReleaseAll();
  void SendRelease();
  void Lost();
  void Finish();
  void Handle(const Reply& reply) override;
  void HandleBroken() override;

  const bool holds_;
  Stage stage_ = Stage::kIdle;
  AcquireParams params_;
  int64_t give_up_at_us_ = 0;
  int64_t asked_at_us_ = 0;
  uint64_t call_ = 0;  // Tag of the call that is answered next; answers to others are of the past.
  Id claim_;
  ReleaseCommand release_;
};

// Many leases under one session.
class SessionClient : public Actor {
 public:
  using Actor::Actor;

  void Start() override { Work(); }
  void Crash() override;
  bool idle() const override { return session_.empty() && !opening_ && requests_.empty(); }

 private:
  struct Request {
    enum class Stage { kAsking, kHolding, kReleasing };
    Stage stage = Stage::kAsking;
    AcquireParams params;
    int64_t asked_at_us = 0;
    bool cancelled = false;
    Id claim;
    ReleaseCommand release;  // Once it is being released.
  };

  void Work();
  void Open();
  void Ping();
  void NewRequest();
  void SendRequest(uint64_t sequence);
  void StartRelease(uint64_t sequence);
  void SendAgain();
  void OnOpened(const Reply& reply);
  void OnGranted(const Reply& reply);
  void Prolong(const Reply& reply);
  void Drop(uint64_t sequence);
  void LoseSession();
  void Close();
  void Reconnect();
  void Handle(const Reply& reply) override;
  void HandleBroken() override;
  // By the sequence number of its acquire or of its release.
  std::map<uint64_t, Request>::iterator Find(uint64_t tag);

  int64_t ttl_ms_ = 0;
  Id session_;
  bool opening_ = false;
  bool opened_here_ = false;  // On the present channel.
  bool closing_ = false;
  uint64_t epoch_ = 0;
  int64_t deadline_us_ = 0;
  int64_t answered_at_us_ = 0;  // World time of the last answer.
  uint64_t open_tag_ = 0;
  uint64_t close_tag_ = 0;
  std::map<uint64_t, Request> requests_;  // By the sequence number of the acquire.
};

// Does what an administrator might, at the worst moments. One act at a time, repeated until it is
// answered.
class AdminClient : public Actor {
 public:
  using Actor::Actor;

  void Start() override { Think(); }
  void Crash() override {}
  bool idle() const override { return !acting_; }
  // Leaves every semaphore so that everybody can be served.
  void CleanUp();

 private:
  void Think();
  void Act();
  void Ask();
  AdminCommand RandomAct();
  void Handle(const Reply& reply) override;
  void HandleBroken() override;

  bool acting_ = false;
  AdminCommand command_;
  uint64_t call_ = 0;
  int to_clean_ = 0;
};

}  // namespace semaphored::simulation
