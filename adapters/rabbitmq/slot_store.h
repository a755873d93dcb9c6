// layout=slots for the adapter: a store that keeps nothing, and gives permits,
// which are exclusive queues of its connection. When that goes, so have they.
//
// The broker has no waiters here and sends no notice of a slot that comes free. So a slot that is
// given back is first offered to our own waiters, a bounded number of times in a row; and where
// foreign holders are in our waiters' way, it is tried again after a pause that grows while nothing
// changes.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/common/upkeep.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/permit_store.h"
#include "adapters/rabbitmq/slot_broker.h"

namespace semaphored::rabbitmq {

class SlotStore : public PermitStore {
 public:
  // `holding` has the permits; `probing` is another one, see SlotBroker.
  // `prefix` stands before the names of all queues. `upkeep`: where errors of the upkeep are reported.
  SlotStore(std::unique_ptr<Connection> holding, std::unique_ptr<Connection> probing,
            std::string prefix, const Guarantees& guarantees,
            std::shared_ptr<Upkeep> upkeep = std::make_shared<Upkeep>());

  const Guarantees& guarantees() const override { return guarantees_; }

  // Rows only. A semaphore whose slots others have removed while we hold some is shown as being
  // destroyed, until the last of ours has been given back: a holder keeps its permit. While the
  // broker takes no probes what is known stays.
  absl::StatusOr<ledger::Image> Load(absl::Span<const std::string> names) override;
  // An act whose connection broke is unknown until Settle has looked under the mutex, which that
  // connection has until it has ended. Then a semaphore is made or raised wholly or not at all;
  // where it was lowered or destroyed in part, Settle does the rest.
  ledger::CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) override;
  ledger::CommitResult Settle(ledger::Transaction& transaction, SteadyTime deadline) override;
  absl::StatusOr<std::vector<ledger::ChangeNotice>> Wait(SteadyTime deadline) override;
  void Wake() override { holding_->Wake(); }
  absl::StatusOr<std::vector<std::string>> Names(const std::string&, const std::string&,
                                                 uint32_t) override {
    return absl::UnimplementedError("rabbitmq: slots have no list of semaphores");
  }

  // Takes the lowest slot that is free. Sleeps for some milliseconds where others were first.
  std::optional<Permit> Take(const std::string& semaphore, const Id& claim, bool waits) override;
  std::map<std::string, absl::Status> TakeNotAsked() override {
    return std::exchange(not_asked_, {});
  }
  std::string Refuses(const std::string& semaphore, uint32_t limit) const override;
  void Abandon() override { GiveBackUncommitted(nullptr); }
  absl::Status Provide(const SemaphoreRow& row) override;
  bool Unload(const std::string& semaphore) override;
  // While the broker takes no probes: what it was.
  absl::StatusOr<uint32_t> HeldElsewhere(const std::string& semaphore) override;
  absl::StatusOr<ledger::Pruned> Prune(const std::string& semaphore) override;
  // Asks for its B queue, and for its A queue.
  absl::StatusOr<bool> Check(const std::string& semaphore, const Id& claim) override;
  // With the connection, all; one whose B queue is not ours any more, within 5 s (CheckDue).
  std::vector<LostPermit> TakeLostPermits() override;

 private:
  std::string Full(const std::string& name) const { return prefix_ + name; }

  // A slot whose B queue is ours.
  struct Slot {
    Id claim;                // Empty: it is offered to our waiters,
    SteadyTime offer_ends;   // … until then.
    uint32_t passed_on = 0;  // From claim to claim, since it was taken.
    // When the broker is next asked whether it is still ours, and after how long then.
    SteadyTime check_at = SteadyTime::min();
    std::chrono::milliseconds check_every{0};
  };
  // A semaphore that is in use here.
  struct Used {
    SemaphoreRow row;      // revision: ours; it rises with each change of the row.
    uint32_t highest = 0;  // Slot that was ever seen.
    std::map<uint32_t, Slot> slots;
    absl::flat_hash_map<Id, uint32_t> held;  // Which slot a claim has.
    uint32_t waiting = 0;
    std::optional<SlotView> view;  // As of this Step.
    // How many others held when it was last counted; nullopt: not yet, or it was destroyed since.
    std::optional<uint32_t> elsewhere;
    bool offered = false;  // Of which the ledger has not heard yet.
    // When it is tried again for the waiters, and for how long it was paused.
    SteadyTime retry_at{};
    std::chrono::milliseconds pause{0};
    std::set<uint32_t> last_taken;
  };

  // Opens the connection unless it is open; what was held through the former one is lost. In a decision what it has taken
  // is kept: UNAVAILABLE if that has gone with the former connection, and no new one is made.
  enum class Taken { kKept, kLost };
  absl::Status Ready(Taken taken = Taken::kKept);
  void LoseAll();
  void Lose(const std::string& name, Used* used);
  // Drops the claims whose B queues the view does not show.
  void LoseVanished(const std::string& name, Used* used);
  void LoseSlot(const std::string& name, Used* used, uint32_t slot);
  // Asks for the B queues of those slots that are due, some at a time, and loses what is not ours.
  void CheckDue();
  // Asks for one. False: it is not ours, and lost now. UNAVAILABLE: there is no answer; it stays.
  absl::StatusOr<bool> StillOurs(const std::string& name, Used* used, uint32_t slot);
  Used* Find(const std::string& name);
  // The view of this Step; `wide`: as far as any connection may hold a slot.
  absl::StatusOr<const SlotView*> See(const std::string& name, Used* used, bool wide);
  static uint32_t TakenElsewhere(const Used& used);
  void SetLimit(Used* used, uint32_t limit);
  std::optional<uint32_t> LowestFree(const Used& used) const;
  absl::Status Apply(const ledger::SemaphoreDelta& delta, bool* begun);
  absl::Status ApplyAgain(const ledger::SemaphoreDelta& delta, bool* unknown);
  void Keep(const ledger::SemaphoreDelta& delta, uint32_t from, uint32_t to);
  absl::Status Act(const std::string& name, uint32_t from, uint32_t to, bool* begun);
  void Finish(ledger::Transaction* transaction);
  std::optional<Permit> NotAsked(const std::string& semaphore, absl::Status why, bool waits);
  void GiveBackUncommitted(const ledger::Transaction* transaction);
  void CarryOut(const ledger::SemaphoreDelta& delta);
  void GiveBack(const std::string& name, Used* used, const Id& claim);
  void Free(const std::string& name, Used* used, uint32_t slot);
  void EndOffers(const std::string& name, Used* used, SteadyTime now);
  bool MayRetry(const Used& used) const;
  void RetryAfter(Used* used, std::chrono::milliseconds pause);
  void TakeDue(std::vector<ledger::ChangeNotice>* notices);
  SteadyTime NextDue() const;

  const std::unique_ptr<Connection> holding_;
  const std::unique_ptr<Connection> probing_;
  const std::string prefix_;
  const Guarantees guarantees_;
  const std::shared_ptr<Upkeep> upkeep_;
  SlotBroker broker_;
  uint64_t life_ = 0;
  uint64_t revisions_ = 0;
  std::map<std::string, Used> used_;
  std::vector<LostPermit> lost_;
  std::map<std::string, absl::Status> not_asked_;
  std::string act_failed_;  // Why it is not known what became of the last act.
  // Since the last commit: what that does not grant is given back.
  std::vector<std::pair<std::string, Id>> taken_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace semaphored::rabbitmq
