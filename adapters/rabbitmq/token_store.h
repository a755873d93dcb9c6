// layout=tokens for the adapter: a store that keeps nothing, and gives
// permits, which are unacknowledged messages of its connection. When the connection goes, so have
// they.
//
// Two connections: one that holds permits and publishes nothing, and one for everything else. A
// broker that runs out of room stops reading from those that publish; a release would then not be
// read either, and the connection given up with all that it holds.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/common/name_pages.h"
#include "adapters/common/upkeep.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/permit_store.h"
#include "adapters/rabbitmq/sealing.h"
#include "adapters/rabbitmq/token_broker.h"

namespace semaphored::rabbitmq {

// Before a name, on the exchange of changes: a daemon is about to collect what is free of it.
inline constexpr std::string_view kPruning = "pruning ";

class TokenStore : public PermitStore {
 public:
  // Connections that KeepLate. `prefix` stands before the names of all queues. `upkeep`: where errors of the upkeep are
  // reported.
  TokenStore(std::unique_ptr<Connection> holding, std::unique_ptr<Connection> administering,
             const std::string& prefix, const Guarantees& guarantees,
             std::shared_ptr<Upkeep> upkeep);
  // Strikes the slots whose tokens it has taken out, if the broker answers.
  ~TokenStore() override;

  // UNIMPLEMENTED: a newer daemon has made what is in the broker; nothing is changed. Other errors show
  // with the first command.
  absl::Status Start();

  const Guarantees& guarantees() const override { return guarantees_; }

  // Rows only. What is in use here is read again if it is known to have changed, or was read long
  // ago.
  absl::StatusOr<ledger::Image> Load(absl::Span<const std::string> names) override;
  ledger::CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) override;
  ledger::CommitResult Settle(ledger::Transaction& transaction, SteadyTime deadline) override;
  absl::StatusOr<std::vector<ledger::Hint>> Wait(SteadyTime deadline) override;
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const std::string& after,
                                                 uint32_t rows_max) override;
  absl::StatusOr<std::optional<Shown>> Look(const std::string& semaphore) override;
  void Wake() override { connection_->Wake(); }

  std::optional<Permit> Take(const std::string& semaphore, const Id& claim, bool waits) override;
  bool Silent(const std::string& semaphore) override;
  bool Withholds(const std::string& semaphore) override;
  std::map<std::string, absl::Status> TakeNotAsked() override {
    return std::exchange(not_asked_, {});
  }
  void Abandon() override { GiveBackTaken().IgnoreError(); }
  absl::Status Provide(const SemaphoreRow& row) override;
  bool Unload(const std::string& semaphore) override;
  absl::StatusOr<uint32_t> HeldElsewhere(const std::string& semaphore) override;
  absl::StatusOr<ledger::Pruned> Prune(const std::string& semaphore) override;
  absl::StatusOr<std::optional<ledger::Adoptable>> Adopt(const SemaphoreRow& row) override;
  absl::StatusOr<bool> Check(const std::string& semaphore, const Id& claim) override;
  std::vector<LostPermit> TakeLostPermits() override;
  std::vector<ledger::AskedRecall> TakeAskedRecalls() override { return std::exchange(asked_, {}); }

 private:
  struct Held {
    uint64_t delivery_tag = 0;
    std::string consumer_tag;
    uint32_t slot = 0;
  };
  struct Consumer {
    std::string tag;
    uint32_t prefetch = 0;
    uint32_t outstanding = 0;  // Deliveries that have not been given back.
  };
  // A semaphore that is in use here.
  struct Used {
    StoredSemaphore stored;
    bool stale = false;  // The broker's may be another by now.
    SteadyTime read_at{};
    Channel channel = 0;
    absl::flat_hash_map<Id, Held> held;
    std::deque<Delivery> spare;  // Delivered to us, and no claim's yet.
    // Messages that are not tokens: extra ones of the recipe, which only a prune takes in. They are kept out of
    // the queue meanwhile, whose head they would block.
    std::vector<Delivery> strangers;
    std::map<int32_t, uint32_t> waiting;    // By priority.
    std::map<int32_t, Consumer> consumers;  // By priority.
    // Of consumers that were begun or cancelled without an answer: cancelled once there is one.
    std::vector<std::string> doubtful_tags;
    SteadyTime unwanted_since{};   // Since then a consumer has had no waiters; 0: each has some.
    uint64_t asked_in_step = 0;    // When a message was last asked for.
    uint64_t checked_in_step = 0;  // When its queue was last looked for.
    SteadyTime given_back_at{};
    std::set<uint32_t> removed;        // Slots whose tokens were taken out, not yet struck.
    std::unique_ptr<Mutex> shrinking;  // Set: we take out what is too much.
    SteadyTime shrink_again{};         // Another daemon does; when to look whether it still does.
  };

  absl::Status Ready();
  absl::Status Subscribe();
  // The connection, or a channel, has gone with all that was held through it.
  void LoseAll();
  void Lose(const std::string& name, Used* used);
  Used* Find(const std::string& name);
  absl::StatusOr<Channel> ChannelOf(Used* used);
  absl::StatusOr<Used*> Read(const std::string& name);
  absl::Status LookForQueue(const std::string& name, Used* used);
  static void Keep(StoredSemaphore stored, Used* used);
  void KeepAlive();
  absl::StatusOr<std::optional<StoredSemaphore>> Ask(const std::string& name);
  std::optional<Permit> NotAsked(const std::string& semaphore, const absl::Status& why, bool waits);
  absl::StatusOr<uint32_t> CountElsewhere(const std::string& semaphore);

  // What of a row the broker has to know. nullopt: it is not known whether it stands.
  std::optional<absl::Status> Apply(ledger::SemaphoreDelta* delta, bool again);
  absl::StatusOr<StoredSemaphore> Write(const ledger::SemaphoreDelta& delta, bool again,
                                        bool* unknown);
  ledger::CommitResult CommitRows(ledger::Transaction* transaction, bool again);
  void Finish(const ledger::Transaction& transaction);
  void GiveBackEnded(const ledger::SemaphoreDelta& delta, Used* used);

  // token_consumers.cc
  absl::Status Tend(const std::string& name, Used* used);
  // An error is reported to the upkeep: the next act, or event, of the semaphore tries again.
  void TryToTend(const std::string& name, Used* used);
  absl::Status TendConsumers(Used* used);
  absl::Status DropUnwanted(Used* used);
  absl::Status Begin(Used* used, const std::string& tag, size_t prefetch, int32_t priority);
  absl::Status Cancel(Used* used, const std::string& tag);
  absl::Status CancelTags(Used* used, const std::vector<std::string>& tags);
  absl::Status CancelAll(Used* used);
  void OnAnsweredLate(const std::string& name, Used* used, std::vector<ledger::Hint>* hints);
  absl::Status Shrink(const std::string& name, Used* used);
  // There is too much, and another daemon takes it out, or none.
  static bool LeavesShrinking(const Used& used);
  void EndShrinking(Used* used);
  void StrikeRemoved(const std::string& name, Used* used, std::vector<ledger::Hint>* hints);
  void OnEvent(BrokerEvent event, std::vector<ledger::Hint>* hints);
  void OnChange(const std::string& text, std::vector<ledger::Hint>* hints);
  void OnShrinking(Used* used, BrokerEvent event);
  absl::Status GiveBack(Used* used, uint64_t delivery_tag, const std::string& consumer_tag);
  absl::Status GiveBackTaken();
  // True: there is a spare one.
  absl::StatusOr<bool> AskForOne(const std::string& name, Used* used);

  // token_asking.cc
  void TellOthers(const ledger::AskedRecall& wanted);
  void OnAsked(const std::string& text);
  // Adds to what is due.
  void Choose();
  SteadyTime NextChoice() const;

  // token_prune.cc
  struct Collected;
  absl::Status Collect(Used* used, Collected* collected);
  void KeepStranger(const std::string& name, Used* used, Delivery delivery);
  absl::Status GiveBackStrangers(Used* used);
  // Leaves in `strangers` what is to go back.
  absl::Status TakeIn(const std::string& name, Used* used, std::vector<Delivery>* strangers,
                      ledger::Pruned* pruned);
  absl::StatusOr<ledger::Pruned> PruneLocked(const std::string& name, Used* used);
  absl::Status PruneCollected(const std::string& name, Used* used, Collected* collected,
                              ledger::Pruned* pruned);
  absl::Status Mend(const std::string& name, Used* used, Collected* collected,
                    ledger::Pruned* pruned);

  const std::unique_ptr<Connection> connection_;
  const std::unique_ptr<Connection> administering_;
  const Guarantees guarantees_;
  const std::shared_ptr<Upkeep> upkeep_;
  TokenBroker broker_;
  uint64_t life_ = 0;
  Channel changes_ = 0;  // Of the subscription.
  uint64_t tags_ = 0;
  uint64_t step_ = 1;
  uint64_t act_ = 0;  // Of the last change of a row.
  std::string act_failed_;
  std::map<std::string, absl::Status> not_asked_;
  SteadyTime kept_alive_at_{};
  std::map<std::string, Used> used_;
  // Whose settings did not answer: they are not asked for before.
  std::map<std::string, SteadyTime> silent_until_;
  // What is known of semaphores that were shown in lists and are not in use here. A change notice removes it.
  struct Looked {
    SemaphoreRow row;
    uint32_t tokens = 0;
    SteadyTime read_at{};
  };
  absl::flat_hash_map<std::string, Looked> looked_;
  Channel looking_ = 0;
  NamePages pages_;
  std::vector<LostPermit> lost_;
  std::vector<ledger::AskedRecall> asked_;
  // A daemon asks all others for some leases: which ones shows once the free tokens have gone.
  struct Shrinking {
    ledger::AskedRecall wanted;
    std::set<uint32_t> not_meant;  // Slots of the one that asks.
    SteadyTime choose_at{};
  };
  std::vector<Shrinking> to_choose_;
  Sealing sealing_;
  std::vector<ledger::Hint> pending_hints_;  // For the next Wait.
  // Since the last commit: if it fails they are given back.
  std::vector<std::pair<std::string, Id>> taken_;
};

}  // namespace semaphored::rabbitmq
