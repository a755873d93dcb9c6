// What all simulated clients have in common: a clock of their own, one channel at a time, leases
// that they believe in until a deadline of their own, and numbers for their requests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/checks.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/wire.h"
#include "tests/simulation/world.h"

namespace semaphored::simulation {

// Everything that a client can reach. Outlives it.
struct Surroundings {
  World* world = nullptr;
  Network* network = nullptr;
  Cluster* cluster = nullptr;
  Checks* checks = nullptr;
  Mutant mutant = Mutant::kNone;
  const MemoryEngine* engine = nullptr;
  int semaphores = 1;
  // Several clients are one holder.
  bool shared_holders = false;
  // Somebody enqueues tickets, and somebody carries them out.
  bool tickets = false;
  // Administrators end leases by acts alone, whatever their holders rely on.
  bool acts_now = false;
  // Many tickets become dead letters.
  bool dead_letters = false;
  // No new requests: everybody finishes what is begun.
  bool winding_down = false;
};

class Actor : public Receiver, public Believer, public std::enable_shared_from_this<Actor> {
 public:
  Actor(Surroundings* around, int index, std::string name);

  virtual void Start() = 0;
  // The process ends without a word, and another one begins.
  virtual void Crash() = 0;
  // Nothing is under way any more.
  virtual bool idle() const = 0;
  void PauseUntil(int64_t time_us) { paused_until_us_ = std::max(paused_until_us_, time_us); }

  // ---- Believer ----
  const std::string& name() const override { return client_id_; }
  int64_t ClockUs() const override { return clock_.NowUs(); }
  const std::map<Id, Belief>& beliefs() const override { return beliefs_; }

  // ---- Receiver ----
  void OnReply(uint64_t channel, const Reply& reply) final;
  void OnBroken(uint64_t channel) final;

 protected:
  virtual void Handle(const Reply& reply) = 0;
  virtual void HandleBroken() = 0;

  World& world() { return *around_->world; }
  Random& random() { return around_->world->random(); }
  Checks& checks() { return *around_->checks; }
  // Runs `work` later unless NewStage() was called in between.
  void Later(int64_t delay_us, std::function<void()> work);
  void NewStage() { ++stage_; }
  // Runs `work` later unless NewClientId() was called in between.
  void InThisLife(int64_t delay_us, std::function<void()> work);

  // False: nobody is there.
  bool Connect(int node);
  // To any node, at random.
  bool ConnectAnywhere() {
    return Connect(
        static_cast<int>(random().Below(static_cast<uint64_t>(around_->cluster->nodes()))));
  }
  bool connected() const { return channel_ != nullptr && channel_->open(); }
  void Disconnect();
  // Sends, and returns the call's tag. What was sent when is remembered.
  uint64_t Send(std::function<void(Connection&, uint64_t tag)> call);
  void SendWith(uint64_t tag, std::function<void(Connection&, uint64_t tag)> call);
  // Nothing was done, and it may be done later: the engine is away, or the semaphore damaged.
  static bool IsForLater(const Reply& reply) {
    return reply.kind == Reply::Kind::kRefused && (reply.code == absl::StatusCode::kUnavailable ||
                                                   reply.code == absl::StatusCode::kDataLoss);
  }
  // The deadline that an answer to `tag` gives, on this client's clock.
  int64_t DeadlineUs(const Reply& reply) const;
  // The lease is recalled, as the reply says: it is counted on no longer than the recall allows. Without a recall
  // nothing happens.
  void BoundByRecall(const Reply& reply, const RecallNotice& recall, Belief* belief) const;
  // Begins a new life: a client id that nobody has had.
  void NewClientId();
  void Trace(const std::string& line);

  Surroundings* around_;
  const int index_;
  std::string base_name_;
  std::string client_id_;
  int lives_ = 0;
  DriftingClock clock_;
  std::shared_ptr<Channel> channel_;
  std::map<Id, Belief> beliefs_;
  uint64_t sequence_ = 0;

 private:
  int64_t paused_until_us_ = 0;
  uint64_t stage_ = 0;
  uint64_t next_tag_ = 1;
  std::map<uint64_t, int64_t> sent_us_;
};

// A request for permits as a client of the simulation would make it.
AcquireParams RandomAcquire(Surroundings& around, const std::string& client_id, uint64_t sequence);

}  // namespace semaphored::simulation
