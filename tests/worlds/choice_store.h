// A lane's connection to a MemoryEngine on which nothing happens by chance: what becomes of a commit is
// chosen by the explorer, and change notices arrive when it says so.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/ledger/shared_store.h"
#include "tests/simulation/memory_store.h"

namespace semaphored::worlds {

enum class Fate : uint8_t {
  kLands,
  kAnswerLost,  // It lands, and the answer does not come.
  kNever,       // It does not land, and the answer does not come.
  kLater,  // The answer does not come; it lands when it is settled, or before, if it still may.
  kCount
};

// A commit whose answer did not come. It can outlive its daemon.
struct InFlight {
  Fate fate = Fate::kNever;
  size_t lane = 0;
  std::vector<Command> commands;  // Those for which it was sent.
  ledger::Transaction transaction;
  std::shared_ptr<simulation::MemoryStore> connection;
  std::optional<ledger::CommitResult> result;  // What became of it in the engine.
};

// Whose commit is being carried out: for the checks of what lands.
struct Author {
  size_t lane = 0;
  std::vector<Command> commands;
};

// The planted faults of a store.
struct StoreFaults {
  bool settle_says_won = false;   // Settle reports that a commit has landed, whether or not it has.
  bool settle_says_lost = false;  // Settle reports that it was lost, whether or not it was.
  bool half_requests = false;     // The row of a request does not follow its claim.
};

struct Notice {
  ledger::ChangeNotice notice;
  std::optional<ledger::ChangeDetails> details;
};

class ChoiceStore : public ledger::SharedStore {
 public:
  // `author` outlives the store.
  ChoiceStore(size_t lane, bool exclusive, Author* author, StoreFaults faults,
              std::shared_ptr<simulation::MemoryStore> connection);

  // ---- the explorer's choices ----
  // Of the commit with this number, from 0, among those that follow; all others land.
  void Plan(int commit, Fate fate);
  int commits() const { return commits_; }  // Since Plan.
  const std::shared_ptr<InFlight>& in_flight() const { return in_flight_; }
  void Deliver(Notice notice) { notice_box_.push_back(std::move(notice)); }

  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<ledger::Image> LoadAll() override { return connection_->LoadAll(); }
  absl::StatusOr<ledger::Image> Load(absl::Span<const std::string> names) override {
    return connection_->Load(names);
  }
  absl::StatusOr<std::vector<std::string>> Changed(
      absl::Span<const SemaphoreRow* const> semaphores) override {
    return connection_->Changed(semaphores);
  }
  ledger::CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) override;
  ledger::CommitResult Settle(ledger::Transaction& transaction, SteadyTime deadline) override;
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(
      absl::Span<const ledger::NamedRequest> requests, uint64_t window) override {
    return connection_->FindRequests(requests, window);
  }
  absl::StatusOr<SessionAt> LoadSession(const Id& session) override {
    return connection_->LoadSession(session);
  }
  absl::StatusOr<Hosted> HostedBy(absl::Span<const NodeRef> nodes) override {
    return connection_->HostedBy(nodes);
  }
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const std::string& after,
                                                 uint32_t rows_max) override {
    return connection_->Names(prefix, after, rows_max);
  }
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string& semaphore, uint64_t before,
                                                      uint32_t rows_max) override {
    return connection_->ReadHistory(semaphore, before, rows_max);
  }
  absl::StatusOr<std::vector<ledger::ChangeNotice>> Wait(SteadyTime deadline) override;
  std::optional<ledger::ChangeDetails> ReadDetails(const ledger::ChangeNotice& notice) override;
  void Wake() override {}

 private:
  const size_t lane_;
  Author* author_;
  const StoreFaults faults_;
  std::shared_ptr<simulation::MemoryStore> connection_;
  Guarantees guarantees_;
  int planned_ = -1;
  Fate fate_ = Fate::kLands;
  int commits_ = 0;
  std::shared_ptr<InFlight> in_flight_;
  std::vector<Notice> notice_box_;
  std::map<std::string, ledger::ChangeDetails> details_;  // Of the notices that Wait returned last.
};

// The write reaches the engine, if it has not yet: it lands, or is lost for good.
void Land(InFlight* write, Author* author);

}  // namespace semaphored::worlds
