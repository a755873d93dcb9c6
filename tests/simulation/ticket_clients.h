// Who enqueues tickets, and who carries them out. Both follow the rules of the API to the letter.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "tests/simulation/clients.h"

namespace semaphored::simulation {

// Enqueues one ticket after the other; each request is repeated, anywhere, until it is answered.
class TicketClient : public Actor {
 public:
  using Actor::Actor;

  void Start() override { Think(); }
  void Crash() override;
  bool idle() const override { return !asking_; }

 private:
  void Think();
  void NewTicket();
  void Ask();
  void AskAgainSoon();
  void Handle(const Reply& reply) override;
  void HandleBroken() override;

  bool asking_ = false;
  EnqueueCommand command_;
  uint64_t call_ = 0;
};

// Carries out tickets on a session that it resumes anywhere. What it has said of a ticket it
// repeats until it is answered.
class WorkClient : public StreamClient {
 public:
  // `everywhere`: it works for all semaphores in each of its lives, so that nothing is left over.
  WorkClient(Surroundings* around, int index, std::string name, bool everywhere)
      : StreamClient(around, index, std::move(name)), everywhere_(everywhere) {}

  bool idle() const override { return StreamClient::idle() && tasks_.empty(); }

 private:
  struct Task {
    TicketChecks::Told told;
    bool said = false;  // Then `finish` is what it says.
    FinishCommand finish;
  };

  OpenParams OpenWith() override;
  void Act() override;
  void Keep(const std::vector<Id>& claims) override;
  void SendAgain() override;
  void Forget() override;
  bool stands_by() const override { return everywhere_; }
  bool needed() const override { return everywhere_ && around_->checks->tickets().living() > 0; }
  void OnAssigned(const Reply& reply);
  void EndWork(const Id& claim);
  FinishCommand::Result RandomResult();
  void Say(const Id& claim);
  void SendFinish(const Task& task);
  void Handle(const Reply& reply) override;
  size_t working() const;
  std::map<Id, Task>::iterator FindSaid(uint64_t sequence);

  const bool everywhere_;
  std::shared_ptr<const WorkParams> work_;  // Of this life.
  std::map<Id, Task> tasks_;                // By lease.
  std::set<Id> resumed_with_;               // Leases that it had when it was resumed last.
};

}  // namespace semaphored::simulation
