// What a command costs the embedded store, counted in pages of its log.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/ledger/ledger.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/sqlite/fixture.h"

namespace semaphored::sqlite {
namespace {

// The rules over a store on a file, and a semaphore "s".
class CountedLane {
 public:
  CountedLane(uint32_t limit, const Settings& settings)
      : open_(Open(folder_ / "state.db", {}, false)) {
    ledger::LedgerOptions options;
    options.self = open_.self;
    options.now = [] { return SteadyTime(std::chrono::hours(1)); };
    options.now_unix_ms = [] { return int64_t{1'800'000'000'000}; };
    lane_ = ledger::MakeLedgerAdapter(std::move(open_.store), options).value();
    const AdminCommand create{{}, "s", 0, AdminCreate{limit, settings}};
    REQUIRE(RunAll({create}).front().kind == OutcomeKind::kDone);
  }

  std::vector<Outcome> RunAll(std::vector<Command> commands) {
    std::vector<Submission> batch;
    for (Command& command : commands) batch.push_back({++number_, std::move(command)});
    return std::move(lane_->Step(batch, SteadyTime::max()).value().outcomes);
  }
  static AcquireCommand Ask(uint64_t claim, uint32_t permits, const std::string& holder) {
    AcquireCommand acquire;
    acquire.semaphore = "s";
    acquire.claim = acquire.session = MakeId(claim);
    acquire.permits = permits;
    acquire.wait = true;
    acquire.ttl_ms = 10'000;
    acquire.holder = holder;
    return acquire;
  }
  // The pages that the release writes. Empty slots: all.
  int PagesOfRelease(uint64_t claim, Slots slots = {}) {
    const int before = open_.database->log_pages();
    const ReleaseCommand release{{}, "s", MakeId(claim), std::move(slots)};
    REQUIRE(RunAll({release}).front().kind == OutcomeKind::kReleased);
    return open_.database->log_pages() - before;
  }

 private:
  TemporaryFolder folder_;
  OpenStore open_;
  std::unique_ptr<Adapter> lane_;
  uint64_t number_ = 0;
};

int PagesOfReturn(uint32_t permits) {
  CountedLane lane(permits, {});
  REQUIRE(lane.RunAll({CountedLane::Ask(1, permits, "h")}).front().kind == OutcomeKind::kGranted);
  return lane.PagesOfRelease(1, Slots{permits / 2 + 1});
}

TEST_CASE("sqlite cost: the return of one slot of a million is what that of three is") {
  const int of_three = PagesOfReturn(3);
  CHECK(of_three > 0);
  CHECK(PagesOfReturn(1'000'000) == of_three);
}

TEST_CASE("sqlite cost: what waits at its holder's cap costs others nothing") {
  // Their rows fill more pages than any release may write.
  constexpr uint64_t kCapped = 2'000;
  constexpr int kPagesMax = 20;
  CountedLane lane(2, {.permits_per_holder = 1});
  std::vector<Command> asked = {CountedLane::Ask(1, 1, "greedy"), CountedLane::Ask(2, 1, "modest")};
  for (uint64_t i = 0; i < kCapped; ++i) asked.emplace_back(CountedLane::Ask(100 + i, 1, "greedy"));
  asked.emplace_back(CountedLane::Ask(3, 1, "patient"));
  REQUIRE(lane.RunAll(std::move(asked)).back().kind == OutcomeKind::kQueued);
  const int pages = lane.PagesOfRelease(2);
  CHECK(pages > 0);
  CHECK(pages <= kPagesMax);
  const VerifyCommand verify{"s", MakeId(3), 0, 0};
  CHECK(lane.RunAll({verify}).front().kind == OutcomeKind::kHeld);
}

}  // namespace
}  // namespace semaphored::sqlite
