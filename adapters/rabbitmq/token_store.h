// layout=tokens for the ledger: a store that keeps nothing but answers in memory, and gives
// permits, which are unacknowledged messages of its connection. When the connection goes, so have
// they.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/store.h"
#include "adapters/rabbitmq/connection.h"
#include "adapters/rabbitmq/token_broker.h"

namespace semaphored::rabbitmq {

class TokenStore : public ledger::LedgerStore, public ledger::PermitSource {
 public:
  TokenStore(std::unique_ptr<Connection> connection, const Guarantees& guarantees);

  const Guarantees& guarantees() const override { return guarantees_; }
  bool owns_state() const override { return true; }
  ledger::PermitSource* permits() override { return this; }

  absl::StatusOr<ledger::Image> LoadAll() override { return ledger::Image(); }
  // Rows only.
  absl::StatusOr<ledger::Image> Load(absl::Span<const std::string> names) override;
  ledger::CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) override;
  ledger::CommitResult Settle(ledger::Transaction& transaction, SteadyTime deadline) override;
  absl::StatusOr<std::optional<ledger::Answer>> FindAnswer(const RequestKey& request,
                                                           const std::string& client_id) override;
  absl::StatusOr<std::vector<ledger::Hint>> Wait(SteadyTime deadline) override;
  void Wake() override { connection_->Wake(); }

  std::optional<Permit> Take(const std::string& semaphore, const Id& claim) override;
  absl::Status Provide(const SemaphoreRow& row) override;
  bool Unload(const std::string& semaphore) override;
  absl::StatusOr<uint32_t> HeldElsewhere(const std::string& semaphore) override;
  absl::StatusOr<ledger::Pruned> Prune(const std::string& semaphore) override;
  std::vector<ledger::LostPermit> TakeLostPermits() override;

  // Not asked of a store that owns its state.
  absl::StatusOr<std::vector<std::string>> Changed(absl::Span<const SemaphoreRow* const>) override;
  absl::StatusOr<SessionAt> LoadSession(const Id& session) override;
  absl::StatusOr<Hosted> HostedBy(absl::Span<const NodeRef> nodes) override;
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const std::string& after,
                                                 uint32_t rows_max) override;
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string& semaphore, uint64_t before,
                                                      uint32_t rows_max) override;

 private:
  struct Held {
    uint64_t delivery_tag = 0;
    std::string consumer_tag;
  };
  struct Consumer {
    std::string tag;
    uint32_t prefetch = 0;
    uint32_t outstanding = 0;  // Deliveries that have not been given back.
  };
  // A semaphore that is in use here.
  struct Used {
    StoredSemaphore stored;
    Channel channel = 0;
    absl::flat_hash_map<Id, Held> held;
    std::deque<Delivery> spare;             // Handed to us, and nobody's yet.
    std::map<int32_t, uint32_t> waiting;    // By priority.
    std::map<int32_t, Consumer> consumers;  // By priority.
    std::set<uint32_t> removed;             // Slots whose tokens were taken out, not yet struck.
    bool reaping = false;                   // We have the mutex, and take out what is too much.
  };

  absl::Status Ready();
  // The connection, or a channel, has gone with all that was held through it.
  void LoseAll();
  void Lose(const std::string& name, Used* used);
  Used* Find(const std::string& name);
  absl::StatusOr<Channel> ChannelOf(Used* used);
  absl::Status Apply(const ledger::SemaphoreDelta& delta);
  absl::Status Tend(const std::string& name, Used* used);
  absl::Status TendConsumers(Used* used);
  absl::Status Reap(const std::string& name, Used* used);
  void OnEvent(const BrokerEvent& event, std::vector<ledger::Hint>* hints);
  absl::Status GiveBack(Used* used, uint64_t delivery_tag, const std::string& consumer_tag);
  absl::Status GiveBackTaken();

  const std::unique_ptr<Connection> connection_;
  const Guarantees guarantees_;
  TokenBroker broker_;
  uint64_t life_ = 0;
  uint64_t tags_ = 0;
  std::map<std::string, Used> used_;
  std::vector<ledger::LostPermit> lost_;
  // Since the last commit: if it fails they are given back.
  std::vector<std::pair<std::string, Id>> taken_;
  std::map<uint32_t, std::map<uint64_t, ledger::Answer>> answers_;
};

}  // namespace semaphored::rabbitmq
