// layout=tokens for the adapter: a store that keeps nothing, and gives
// permits, which are unacknowledged messages of its connection. When the connection goes, so have
// they.
//
// Two connections: one that holds permits and publishes nothing, and one for everything else. A
// broker that runs out of room stops reading from those that publish; a release would then not be
// read either, and the connection given up with all that it holds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/common/name_pages.h"
#include "adapters/common/upkeep.h"
#include "adapters/rabbitmq/asked_recalls.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/permit_store.h"
#include "adapters/rabbitmq/row_commit.h"
#include "adapters/rabbitmq/sealing.h"
#include "adapters/rabbitmq/shown_semaphores.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/rabbitmq/used_semaphores.h"

namespace semaphored::rabbitmq {

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
  absl::StatusOr<std::vector<ledger::ChangeNotice>> Wait(SteadyTime deadline) override;
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const std::string& after,
                                                 uint32_t rows_max) override {
    return pages_.Page(prefix, after, rows_max, SteadyClock::now());
  }
  absl::StatusOr<std::optional<Shown>> Look(const std::string& semaphore) override;
  void Wake() override { connection_->Wake(); }

  std::optional<Permit> Take(const std::string& semaphore, const Id& claim, bool waits) override;
  bool Silent(const std::string& semaphore) override;
  bool Withholds(const std::string& semaphore) override;
  std::map<std::string, absl::Status> TakeNotAsked() override {
    return std::exchange(not_asked_, {});
  }
  void Abandon() override { GiveBackTaken(); }
  absl::Status Provide(const SemaphoreRow& row) override;
  bool Unload(const std::string& semaphore) override;
  absl::StatusOr<uint32_t> HeldElsewhere(const std::string& semaphore) override;
  absl::StatusOr<ledger::Pruned> Prune(const std::string& semaphore) override;
  absl::StatusOr<std::optional<ledger::Adoptable>> Adopt(const SemaphoreRow& row) override;
  absl::StatusOr<bool> Check(const std::string& semaphore, const Id& claim) override;
  std::vector<LostPermit> TakeLostPermits() override;
  std::vector<ledger::AskedRecall> TakeAskedRecalls() override { return recalls_.Take(); }

 private:
  using ChangeNotices = std::vector<ledger::ChangeNotice>;

  // Opens the connection unless it is open; what was held through the former one is lost. In a decision what it has taken
  // is kept: UNAVAILABLE if that has gone with the former connection, and no new one is made.
  enum class Taken { kKept, kLost };
  absl::Status Ready(Taken taken = Taken::kKept);
  absl::Status Subscribe();
  void KeepAlive();
  std::optional<Permit> NotAsked(const std::string& semaphore, const absl::Status& why, bool waits);
  // True: there is a spare one.
  absl::StatusOr<bool> AskForOne(UsedSemaphore* used);
  absl::StatusOr<uint32_t> CountElsewhere(const std::string& semaphore);
  void GiveBackTaken();

  ledger::CommitResult CommitRows(ledger::Transaction* transaction, bool again);
  void Finish(const ledger::Transaction& transaction);

  void OnEvent(BrokerEvent event, ChangeNotices* notices);
  void OnChange(const std::string& text, ChangeNotices* notices);
  void Strike(UsedSemaphore* used, ChangeNotices* notices);

  const std::unique_ptr<Connection> connection_;
  const std::unique_ptr<Connection> administering_;
  const Guarantees guarantees_;
  const std::shared_ptr<Upkeep> upkeep_;
  TokenBroker broker_;
  UsedSemaphores used_;
  ShownSemaphores shown_;
  NamePages pages_;
  uint64_t life_ = 0;
  Channel changes_ = 0;  // Of the subscription.
  uint64_t step_ = 1;
  std::map<std::string, absl::Status> not_asked_;
  SteadyTime kept_alive_at_{};
  Sealing sealing_;
  AskedRecalls recalls_;
  RowCommit rows_;
  ChangeNotices pending_notices_;  // For the next Wait.
  // Since the last commit: if it fails they are given back.
  std::vector<std::pair<std::string, Id>> taken_;
};

}  // namespace semaphored::rabbitmq
