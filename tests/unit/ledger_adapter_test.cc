// The ledger adapter over a store that is never first.
#include "adapters/ledger/ledger_adapter.h"

#include <memory>
#include <utility>

#include <catch2/catch_test_macros.hpp>

#include "adapters/ledger/store.h"

namespace semaphored::ledger {
namespace {

// Empty, and another daemon is always first.
class NeverFirst : public LedgerStore {
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
  absl::StatusOr<std::optional<Answer>> FindAnswer(const RequestKey&, const std::string&) override {
    return std::optional<Answer>();
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
  absl::StatusOr<std::vector<Hint>> Wait(SteadyTime) override { return std::vector<Hint>(); }
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

}  // namespace
}  // namespace semaphored::ledger
