// Very many foreign holders die at the same time, as when a machine goes.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/consul/engine.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

constexpr uint32_t kHolders = 500;
constexpr uint32_t kWaiters = 30;
constexpr int kStepsMax = 100;

TEST_CASE("consul: five hundred foreign holders die at the same time", "[consul]") {
  TestPrefix prefix;
  const std::unique_ptr<Engine> engine = OpenEngine(prefix.UrlText()).value();
  SteadyTime now = SteadyClock::now();
  ledger::LedgerOptions options;
  options.self = engine->nodes().Join("a").value();
  options.now_unix_ms = [] { return int64_t{1}; };
  options.now = [&] { return now; };
  const std::unique_ptr<Adapter> lane = engine->OpenLane(options).value();
  uint64_t number = 0;
  const auto run = [&](Command command) {
    const Submission submission{++number, std::move(command)};
    StepResult result = lane->Step({&submission, 1}, now + std::chrono::seconds(30)).value();
    REQUIRE(result.outcomes.size() == 1);
    return std::move(result.outcomes.front());
  };
  REQUIRE(run(AdminCommand{{}, "s", 0, AdminCreate{kHolders, {}}}).kind == OutcomeKind::kDone);
  std::vector<std::unique_ptr<ForeignClient>> holders;
  LockRecord record;
  record.limit = kHolders;
  for (uint32_t i = 0; i < kHolders; ++i) {
    holders.push_back(std::make_unique<ForeignClient>(&prefix, "s", kHolders));
    record.holders.insert(holders.back()->session());
  }
  prefix.Put(prefix.keys().Lock("s"), WriteLockRecord(record));
  AcquireCommand acquire;
  acquire.semaphore = "s";
  acquire.wait = true;
  acquire.ttl_ms = 10'000;
  // The daemon hears of foreign holders by watching, or when its commit loses.
  for (uint32_t i = 0; i < kWaiters; ++i) {
    acquire.claim = acquire.session = MakeId(i + 1);
    REQUIRE(run(acquire).kind == OutcomeKind::kQueued);
  }
  const std::vector<std::string> dead(record.holders.begin(), record.holders.end());
  for (const std::unique_ptr<ForeignClient>& holder : holders) holder->Die();
  // A bounded number of Steps: each sweeps, and grants as many as one commit takes.
  size_t granted = 0;
  int steps = 0;
  for (; granted < kWaiters && steps < kStepsMax; ++steps) {
    now += std::chrono::seconds(6);
    const StepResult result = lane->Step({}, SteadyTime::min()).value();
    for (const Event& event : result.events) granted += event.kind == Event::Kind::kGranted ? 1 : 0;
  }
  CHECK(granted == kWaiters);
  CHECK(steps < 20);
  const LockRecord after = Record(prefix, "s");
  CHECK(after.limit == kHolders);
  CHECK(after.holders.size() == kWaiters);
  for (const std::string& session : dead) CHECK_FALSE(after.holders.contains(session));
  // A foreign client that comes now finds room.
  ForeignClient late(&prefix, "s", kHolders);
  CHECK(late.TryAcquire());
}

}  // namespace
}  // namespace semaphored::consul
