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
  void CheckReleased(const Reply& reply);
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
  uint64_t recall_ = 0;    // To acknowledge with the next Renew; 0: none.
  size_t slots_left_ = 0;  // Of the lease, once what is being returned is returned.
};

// A client with a session: keeps it alive, resumes it anywhere, ends it. What it has under it is
// for the derived class.
class StreamClient : public Actor {
 public:
  using Actor::Actor;

  void Start() override { Work(); }
  void Crash() override;
  bool idle() const override { return session_.empty() && !opening_; }

 protected:
  // What a new stream is opened with; client id, TTL, session and holder are filled in.
  virtual OpenParams OpenWith() { return {}; }
  // Now and then, while the session is open: begins something, or closes it.
  virtual void Act() = 0;
  // The session was resumed and has no other claims than these.
  virtual void Keep(const std::vector<Id>& claims) = 0;
  // A new stream stands: whatever is not answered is sent again.
  virtual void SendAgain() = 0;
  // The session is no more, and nothing of it will be asked for again.
  virtual void Forget() = 0;
  // When nothing new is begun any more: it looks now and then whether it is needed all the same.
  virtual bool stands_by() const { return false; }
  virtual bool needed() const { return false; }

  // True: the reply was about the session itself.
  bool HandleSession(const Reply& reply);
  void HandleBroken() override { Reconnect(); }
  void Close();
  bool open_here() const { return opened_here_; }
  bool closing() const { return closing_; }
  int64_t ttl_ms() const { return ttl_ms_; }
  // Of all its leases, on its own clock.
  int64_t deadline_us() const { return deadline_us_; }

 private:
  void Work();
  void Open();
  void Ping();
  void OnOpened(const Reply& reply);
  void OnRecalled(const Reply& reply);
  void Prolong(const Reply& reply);
  void LoseSession();
  void Reconnect();

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
};

// Many leases under one session.
class SessionClient : public StreamClient {
 public:
  // `crowd`: it has hundreds of requests under way, where others have a few.
  SessionClient(Surroundings* around, int index, std::string name, bool crowd)
      : StreamClient(around, index, std::move(name)), crowd_(crowd) {}

  bool idle() const override { return StreamClient::idle() && requests_.empty(); }

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

  void Act() override;
  void Keep(const std::vector<Id>& claims) override;
  void SendAgain() override;
  void Forget() override;
  void NewRequest();
  void SendRequest(uint64_t sequence);
  void StartRelease(uint64_t sequence);
  void OnGranted(const Reply& reply);
  void Drop(uint64_t sequence);
  // The acquire with this number is answered; `claim`: with what, if it is a claim.
  void IsAnswered(uint64_t sequence, const Id& claim);
  void GiveBackUnclaimed();
  void Handle(const Reply& reply) override;
  // By the sequence number of its acquire or of its release.
  std::map<uint64_t, Request>::iterator Find(uint64_t tag);

  const bool crowd_;
  std::map<uint64_t, Request> requests_;  // By the sequence number of the acquire.
  // Leases that the last resume has listed, and that are of no request here; and the acquires that were sent again
  // then, one of which may be what such a lease is of.
  std::set<Id> unclaimed_;
  std::set<uint64_t> claimants_;
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
  void CheckAnswer(const Reply& reply);
  AdminCommand RandomAct(const std::string& semaphore);
  AdminResize RandomResize();
  int64_t RandomGrace(int64_t most_ms);
  AdminRevoke RandomRevoke(const std::string& semaphore);
  AdminCommand RandomTicketAct(const std::string& semaphore);
  void Handle(const Reply& reply) override;
  void HandleBroken() override;

  bool acting_ = false;
  AdminCommand command_;
  uint64_t call_ = 0;
  int64_t asked_at_us_ = 0;  // For the first time.
  int to_clean_ = 0;
};

}  // namespace semaphored::simulation
