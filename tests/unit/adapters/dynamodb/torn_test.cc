// Readings of a long queue while other daemons write to it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"

namespace semaphored::dynamodb {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using std::chrono::milliseconds;

constexpr uint64_t kWaiters = 4000;
constexpr uint64_t kInOneCommit = 80;
constexpr int kReadings = 10;

TEST_CASE(
    "dynamodb: 4,000 waiters that cycle are read, and keep no other semaphore from being read",
    "[dynamodb]") {
  StoreTable table;
  OpenStore writer = Open(table, {.node_id = "a"});
  OpenStore reader = Open(table, {.node_id = "b"});
  Make(writer, "t");
  SemaphoreRow row = Make(writer, "s");
  uint64_t next = 1;
  for (; next <= kWaiters;) {
    Transaction queue = Touch(writer, row);
    for (uint64_t i = 0; i < kInOneCommit; ++i, ++next)
      queue.semaphores[0].waiters.push_back({nullptr, MakeWaiter(writer, next), EndCause::kNone});
    REQUIRE(writer.Commit(queue).kind == Kind::kWon);
    row = After(queue);
  }
  std::atomic<bool> stop{false};
  std::atomic<int> won{0};
  std::atomic<int> lost{0};
  // The first goes and one comes, commit after commit. What was lost is read, as a ledger does.
  std::thread cycling([&] {
    std::vector<WaiterPtr> waiters;
    const auto read = [&] {
      const ledger::Image image = writer.store->Load(std::vector<std::string>{"s"}).value();
      row = image.semaphores.front().row;
      waiters = image.semaphores.front().waiters;
      std::ranges::sort(waiters, {}, &Waiter::order);
    };
    read();
    while (!stop) {
      Transaction cycle = Touch(writer, row);
      const WaiterPtr added = MakeWaiter(writer, next++);
      cycle.semaphores[0].waiters.push_back({waiters.front(), nullptr, EndCause::kCancelled});
      cycle.semaphores[0].waiters.push_back({nullptr, added, EndCause::kNone});
      const Kind kind = writer.Commit(cycle).kind;
      if (kind == Kind::kWon) {
        ++won;
        row = After(cycle);
        waiters.erase(waiters.begin());
        waiters.push_back(added);
      } else {
        ++lost;
        read();
      }
    }
  });
  const std::vector<std::string> names = {"s", "t"};
  int torn = 0;
  milliseconds longest{0};
  for (int i = 0; i < kReadings; ++i) {
    const SteadyTime begun = SteadyClock::now();
    const absl::StatusOr<ledger::Image> image = reader.store->Load(names);
    longest =
        std::max(longest, std::chrono::duration_cast<milliseconds>(SteadyClock::now() - begun));
    if (!image.ok()) FAIL_CHECK(image.status());
    if (!image.ok()) break;
    torn += static_cast<int>(image->damaged.size());
    const bool has_other = std::ranges::any_of(
        image->semaphores, [](const auto& each) { return each.row.name == "t"; });
    if (!has_other) FAIL_CHECK("the other semaphore was not read");
    for (const ledger::LoadedSemaphore& each : image->semaphores) {
      if (each.row.name == "s" && each.waiters.size() != kWaiters) FAIL_CHECK("torn");
    }
  }
  stop = true;
  cycling.join();
  std::printf(
      "dynamodb: %d readings of %llu waiters beside %d commits that won and %d that lost: %d torn, "
      "the longest took %lld ms\n",
      kReadings, static_cast<unsigned long long>(kWaiters), won.load(), lost.load(), torn,
      static_cast<long long>(longest.count()));
  CHECK(torn == 0);
  CHECK(won > 0);
}

}  // namespace
}  // namespace semaphored::dynamodb
