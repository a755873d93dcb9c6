// An engine in memory in which some semaphores are damaged: they cannot be read, or no commit to them
// succeeds. It counts what is read and written.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/ledger/ledger.h"
#include "adapters/open.h"
#include "tests/simulation/memory_engine.h"
#include "tests/simulation/memory_store.h"
#include "tests/simulation/world.h"

namespace semaphored {

// What all daemons share, and what is wrong with it.
struct DamagedWorld {
  simulation::World world{/*seed=*/1, /*tracing=*/false};
  simulation::Faults faults;
  simulation::MemoryEngine engine;
  simulation::Notifier notifier{&world, &faults};

  std::set<std::string> unreadable;
  std::set<std::string> unwritable;
  // A commit that it says true of fails.
  std::function<bool(const ledger::Transaction&)> refuses;
  // Runs once, before the next commit reaches the engine.
  std::function<void()> before_commit;
  // Runs once, before rows of requests are looked up next.
  std::function<void()> before_find;
  // Commits whose answer is lost, and which do not land.
  int lose_commits = 0;
  uint32_t grants_per_commit_max = 0;
  int commits = 0;
  int loaded = 0;                    // Semaphores that were read, …
  size_t loaded_max = 0;             // … the most at once, …
  std::map<std::string, int> loads;  // … and each of them.
  // Each reading of semaphores fails with what it returns.
  std::function<absl::Status()> on_load;
  size_t concerns_max = 0;      // Of one commit.
  std::vector<size_t> settled;  // Of how many rows each transaction that was settled was.

  absl::Status damage = absl::DataLossError("a row is damaged");
};

class DamagedStore : public simulation::MemoryStore {
 public:
  DamagedStore(DamagedWorld* damaged, bool exclusive)
      : MemoryStore({&damaged->engine, &damaged->notifier},
                    std::make_shared<simulation::EngineLink>(&damaged->world, &damaged->faults),
                    nullptr),
        damaged_(damaged),
        own_(MemoryStore::guarantees()) {
    own_.exclusive = exclusive;
    own_.grants_per_commit_max = damaged->grants_per_commit_max;
  }

  const Guarantees& guarantees() const override { return own_; }
  absl::StatusOr<ledger::Image> Load(absl::Span<const std::string> names) override {
    std::vector<std::string> readable;
    for (const std::string& name : names) {
      if (!damaged_->unreadable.contains(name)) readable.push_back(name);
    }
    if (damaged_->on_load) {
      if (absl::Status status = damaged_->on_load(); !status.ok()) return status;
    }
    damaged_->loaded += static_cast<int>(names.size());
    damaged_->loaded_max = std::max(damaged_->loaded_max, names.size());
    for (const std::string& name : names) ++damaged_->loads[name];
    absl::StatusOr<ledger::Image> image = MemoryStore::Load(readable);
    for (const std::string& name : names) {
      if (image.ok() && damaged_->unreadable.contains(name))
        image->damaged.emplace_back(name, damaged_->damage);
    }
    return image;
  }
  absl::StatusOr<std::vector<std::string>> Changed(
      absl::Span<const SemaphoreRow* const> semaphores) override {
    absl::StatusOr<std::vector<std::string>> changed = MemoryStore::Changed(semaphores);
    for (const SemaphoreRow* row : semaphores) {
      if (changed.ok() && damaged_->unreadable.contains(row->name)) changed->push_back(row->name);
    }
    return changed;
  }
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(
      absl::Span<const ledger::NamedRequest> requests, uint64_t window) override {
    if (damaged_->before_find) std::exchange(damaged_->before_find, nullptr)();
    return MemoryStore::FindRequests(requests, window);
  }
  ledger::CommitResult Commit(ledger::Transaction& transaction, SteadyTime deadline) override {
    if (damaged_->before_commit) std::exchange(damaged_->before_commit, nullptr)();
    ++damaged_->commits;
    damaged_->concerns_max = std::max(damaged_->concerns_max, transaction.concerns.size());
    if (damaged_->lose_commits > 0) {
      --damaged_->lose_commits;
      return {ledger::CommitResult::Kind::kUnknown, {}, false, {}, {}};
    }
    if (Fails(transaction))
      return {ledger::CommitResult::Kind::kFailed, {}, false, {}, damaged_->damage};
    return MemoryStore::Commit(transaction, deadline);
  }
  // What was lost has not landed.
  ledger::CommitResult Settle(ledger::Transaction& transaction, SteadyTime) override {
    damaged_->settled.push_back(transaction.semaphores.size());
    return {ledger::CommitResult::Kind::kLost, {}, false, {}, {}};
  }

 private:
  bool Fails(const ledger::Transaction& transaction) const {
    if (damaged_->refuses && damaged_->refuses(transaction)) return true;
    for (const ledger::SemaphoreDelta& delta : transaction.semaphores) {
      if (damaged_->unwritable.contains(delta.name) || damaged_->unreadable.contains(delta.name))
        return true;
    }
    return false;
  }

  DamagedWorld* damaged_;
  Guarantees own_;
};

// For daemons that share it, or for one that has it alone.
class DamagedEngine : public Engine {
 public:
  explicit DamagedEngine(DamagedWorld* damaged, bool exclusive = false)
      : damaged_(damaged),
        exclusive_(exclusive),
        nodes_(&damaged->engine,
               std::make_shared<simulation::EngineLink>(&damaged->world, &damaged->faults)),
        guarantees_(DamagedStore(damaged, exclusive).guarantees()) {}

  const Guarantees& guarantees() const override { return guarantees_; }
  NodeStore& nodes() override { return nodes_; }
  absl::StatusOr<std::unique_ptr<Adapter>> OpenLane(const ledger::LedgerOptions& options) override {
    return ledger::MakeLedgerAdapter(std::make_unique<DamagedStore>(damaged_, exclusive_), options);
  }

 private:
  DamagedWorld* damaged_;
  bool exclusive_;
  simulation::MemoryNodeStore nodes_;
  Guarantees guarantees_;
};

}  // namespace semaphored
