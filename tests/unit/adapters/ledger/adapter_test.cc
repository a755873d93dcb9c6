// The ledger adapter over a store that is never first.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "adapters/ledger/ledger.h"
#include "adapters/ledger/shared_store.h"

namespace semaphored::ledger {
namespace {

// Empty, and another daemon is always first.
class NeverFirst : public SharedStore {
 public:
  explicit NeverFirst(int* commits) : commits_(commits) {}
  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<Image> LoadAll() override { return Image(); }
  absl::StatusOr<Image> Load(absl::Span<const std::string>) override { return Image(); }
  absl::StatusOr<std::vector<std::string>> Changed(absl::Span<const SemaphoreRow* const>) override {
    return std::vector<std::string>();
  }
  CommitResult Commit(Transaction&, SteadyTime) override {
    ++*commits_;
    CommitResult lost;
    lost.kind = CommitResult::Kind::kLost;
    return lost;
  }
  CommitResult Settle(Transaction& transaction, SteadyTime deadline) override {
    return Commit(transaction, deadline);
  }
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(absl::Span<const NamedRequest> requests,
                                                         uint64_t) override {
    return std::vector<FoundRequest>(requests.size());
  }
  absl::StatusOr<SessionAt> LoadSession(const Id&) override { return SessionAt(); }
  absl::StatusOr<Hosted> HostedBy(absl::Span<const NodeRef>) override { return Hosted(); }
  absl::StatusOr<std::vector<std::string>> Names(const std::string&, const std::string&,
                                                 uint32_t) override {
    return std::vector<std::string>();
  }
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string&, uint64_t,
                                                      uint32_t) override {
    return std::vector<HistoryRow>();
  }
  absl::StatusOr<std::vector<ChangeNotice>> Wait(SteadyTime) override {
    return std::vector<ChangeNotice>();
  }
  void Wake() override {}

 private:
  Guarantees guarantees_;
  int* commits_;
};

TEST_CASE("ledger adapter: a batch that is never first is given up at the deadline") {
  int commits = 0;
  SteadyTime now{};
  LedgerOptions options;
  options.self = {1, 1};
  options.now_unix_ms = [] { return int64_t{1}; };
  options.now = [&] { return now += std::chrono::milliseconds(100); };
  const auto adapter =
      MakeLedgerAdapter(std::make_unique<NeverFirst>(&commits), std::move(options)).value();
  AcquireCommand acquire;
  acquire.semaphore = "s";
  acquire.claim = acquire.session = Id{1, 1};
  acquire.limit = 1;
  const Submission submission{1, acquire};
  const auto early = adapter->Step({&submission, 1}, now + std::chrono::seconds(2));
  CHECK(early.status().code() == absl::StatusCode::kAborted);
  CHECK(commits > 1);
  CHECK(commits <= 20);
  commits = 0;
  const auto late = adapter->Step({&submission, 1}, now + std::chrono::hours(1));
  CHECK(late.status().code() == absl::StatusCode::kAborted);
  CHECK(commits == 50);
}

// Exclusive and empty; whatever touches "bad" fails, as if its rows were damaged.
class PartlyDamaged : public LedgerStore {
 public:
  PartlyDamaged() { guarantees_.exclusive = true; }
  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<Image> LoadAll() override { return Image(); }
  CommitResult Commit(Transaction& transaction, SteadyTime) override {
    ++commits;
    CommitResult result;
    for (const SemaphoreDelta& delta : transaction.semaphores) {
      if (delta.name != "bad") continue;
      result.kind = CommitResult::Kind::kFailed;
      result.status = failure;
    }
    return result;
  }
  CommitResult Settle(Transaction&, SteadyTime) override { return {}; }
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(absl::Span<const NamedRequest> requests,
                                                         uint64_t) override {
    return std::vector<FoundRequest>(requests.size());
  }
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string&, uint64_t,
                                                      uint32_t) override {
    return std::vector<HistoryRow>();
  }
  absl::StatusOr<std::vector<ChangeNotice>> Wait(SteadyTime) override {
    return std::vector<ChangeNotice>();
  }
  void Wake() override {}

  int commits = 0;
  absl::Status failure = absl::DataLossError("a row of bad is damaged");

 private:
  Guarantees guarantees_;
};

struct Damaged {
  explicit Damaged(int commands) {
    auto owned = std::make_unique<PartlyDamaged>();
    store = owned.get();
    LedgerOptions options;
    options.self = {1, 1};
    options.now_unix_ms = [] { return int64_t{1}; };
    options.now = [this] { return now; };
    adapter = MakeLedgerAdapter(std::move(owned), std::move(options)).value();
    for (int i = 0; i < commands; ++i) {
      AcquireCommand acquire;
      acquire.semaphore = i == commands / 3 ? "bad" : "good-" + std::to_string(i);
      acquire.claim = acquire.session = Id{1, static_cast<uint64_t>(i + 1)};
      acquire.limit = 1;
      batch.push_back({static_cast<uint64_t>(i), acquire});
    }
  }
  SteadyTime now{};
  PartlyDamaged* store = nullptr;
  std::unique_ptr<Adapter> adapter;
  std::vector<Submission> batch;
};

TEST_CASE("ledger adapter: in a batch of a hundred one damaged semaphore fails alone") {
  Damaged world(100);
  const auto result = world.adapter->Step(world.batch, world.now + std::chrono::seconds(2));
  REQUIRE(result.ok());
  REQUIRE(result->outcomes.size() == 100);
  for (size_t i = 0; i < 100; ++i) {
    const OutcomeKind expected = i == 33 ? OutcomeKind::kUnknown : OutcomeKind::kGranted;
    CHECK(result->outcomes[i].kind == expected);
  }
  const auto later = world.adapter->Step({}, world.now);
  REQUIRE(later.ok());
  REQUIRE(later->settled.size() == 1);
  CHECK(later->settled[0].number == 33);
  CHECK(absl::IsDataLoss(later->settled[0].outcome.status()));
  // Halving, not a commit for each command.
  CHECK(world.store->commits < 30);
}

TEST_CASE("ledger adapter: an outage, a full disk or a deadline is no reason to halve a batch") {
  for (const absl::Status& failure :
       {absl::UnavailableError("away"), absl::ResourceExhaustedError("the disk is full"),
        absl::DeadlineExceededError("too slow")}) {
    Damaged world(100);
    world.store->failure = failure;
    const auto result = world.adapter->Step(world.batch, world.now + std::chrono::seconds(2));
    CHECK(result.status() == failure);
    CHECK(world.store->commits == 1);
  }
}

}  // namespace
}  // namespace semaphored::ledger
