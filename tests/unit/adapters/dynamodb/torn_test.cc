// Readings of a long queue while other daemons write to it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"
#include "tests/unit/adapters/dynamodb/lane.h"

namespace semaphored::dynamodb {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using std::chrono::milliseconds;

constexpr uint64_t kWaiters = 4000;
constexpr uint64_t kInOneCommit = 80;
constexpr int kReadings = 10;
constexpr int kReadingsOfLane = 4;
constexpr uint32_t kLimit = 4;

// A queue in "s" that a daemon of its own changes all the time: the first waiter goes and one comes, commit after commit. What
// was lost is read, as a ledger does. There is also a semaphore "t".
class CyclingQueue {
 public:
  explicit CyclingQueue(const StoreTable& table) : writer_(Open(table, {.node_id = "a"})) {
    Make(writer_, "t");
    row_ = Make(writer_, "s", kLimit);
    for (uint32_t slot = 1; slot <= kLimit; ++slot) {
      Transaction full = Grant(writer_, row_, MakeLease(writer_, kWaiters * 1000 + slot, slot));
      REQUIRE(writer_.Commit(full).kind == Kind::kWon);
      row_ = After(full);
    }
    while (next_ <= kWaiters) {
      Transaction queue = Touch(writer_, row_);
      for (uint64_t i = 0; i < kInOneCommit; ++i, ++next_)
        queue.semaphores[0].waiters.push_back(
            {nullptr, MakeWaiter(writer_, next_), EndCause::kNone});
      REQUIRE(writer_.Commit(queue).kind == Kind::kWon);
      row_ = After(queue);
    }
    cycling_ = std::thread([this] { Run(); });
  }
  ~CyclingQueue() { Stop(); }
  CyclingQueue(const CyclingQueue&) = delete;
  CyclingQueue& operator=(const CyclingQueue&) = delete;

  void Stop() {
    stop_ = true;
    if (cycling_.joinable()) cycling_.join();
  }
  int won() const { return won_; }
  int lost() const { return lost_; }

 private:
  void Read() {
    const ledger::Image image = writer_.store->Load(std::vector<std::string>{"s"}).value();
    row_ = image.semaphores.front().row;
    waiters_ = image.semaphores.front().waiters;
    std::ranges::sort(waiters_, {}, &Waiter::order);
  }
  void Run() {
    Read();
    while (!stop_) {
      Transaction cycle = Touch(writer_, row_);
      const WaiterPtr added = MakeWaiter(writer_, next_++);
      cycle.semaphores[0].waiters.push_back({waiters_.front(), nullptr, EndCause::kCancelled});
      cycle.semaphores[0].waiters.push_back({nullptr, added, EndCause::kNone});
      if (writer_.Commit(cycle).kind == Kind::kWon) {
        ++won_;
        row_ = After(cycle);
        waiters_.erase(waiters_.begin());
        waiters_.push_back(added);
      } else {
        ++lost_;
        Read();
      }
    }
  }

  OpenStore writer_;
  SemaphoreRow row_;
  uint64_t next_ = 1;
  std::vector<WaiterPtr> waiters_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> won_ = 0;
  std::atomic<int> lost_ = 0;
  std::thread cycling_;
};

TEST_CASE(
    "dynamodb: 4,000 waiters that cycle are read, and keep no other semaphore from being read",
    "[dynamodb]") {
  StoreTable table;
  OpenStore reader = Open(table, {.node_id = "b"});
  CyclingQueue queue(table);
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
  queue.Stop();
  std::printf(
      "dynamodb: %d readings of %llu waiters beside %d commits that won and %d that lost: %d torn, "
      "the longest took %lld ms\n",
      kReadings, static_cast<unsigned long long>(kWaiters), queue.won(), queue.lost(), torn,
      static_cast<long long>(longest.count()));
  CHECK(torn == 0);
  CHECK(queue.won() > 0);
}

TEST_CASE("dynamodb: a lane that reads 4,000 waiters that cycle serves others, and stays in touch",
          "[dynamodb]") {
  StoreTable table;
  OneLane lane(table, "b");
  CyclingQueue queue(table);
  OpenStore observer = Open(table, {.node_id = "c"});
  const auto counter = [&] {
    const std::vector<NodeStore::Node> nodes = observer.nodes->Observe().value();
    const auto node = std::ranges::find(nodes, lane.self(), &NodeStore::Node::ref);
    REQUIRE(node != nodes.end());
    CHECK_FALSE(node->dead);
    return node->counter;
  };
  const uint64_t before = counter();
  int refused = 0;
  for (uint64_t i = 1; i <= kReadingsOfLane; ++i) {
    const uint64_t claim = 1'000'000 + i;
    // The lane knows what it read the last time, and must read it again.
    const absl::StatusOr<Outcome> read = lane.Try(AdminCommand{{}, "s", 0, AdminDescribe{1000}});
    if (read.ok()) CHECK(read->report->info->waiting == kWaiters);
    refused += read.ok() ? 0 : 1;
    CHECK(lane.Run(lane.Ask(claim, "t", false)).kind == OutcomeKind::kGranted);
    CHECK(lane.Heartbeat().ok());
    ReleaseCommand release;
    release.requester = {absl::StrCat("client", claim), 2};
    release.semaphore = "t";
    release.claim = MakeId(claim);
    CHECK(lane.Run(release).kind == OutcomeKind::kReleased);
  }
  CHECK(counter() == before + kReadingsOfLane);
  queue.Stop();
  std::printf("dynamodb: of %d readings by a lane %d were refused, beside %d commits that won\n",
              kReadingsOfLane, refused, queue.won());
  CHECK(refused == 0);
  CHECK(queue.won() > 0);
}

}  // namespace
}  // namespace semaphored::dynamodb
