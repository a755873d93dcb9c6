// What is counted of claims, and under which name.
#include "server/figures/semaphore_metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

class Counted {
 public:
  explicit Counted(size_t semaphores_max)
      : metrics(&clock, semaphores_max, [this](auto visit) {
          for (auto& [name, claims] : this->claims) {
            for (auto& claim : claims) visit(name, claim.get());
          }
        }) {}

  ClaimFigures* Claim(const std::string& semaphore) {
    return claims[semaphore].emplace_back(std::make_unique<ClaimFigures>()).get();
  }
  ClaimFigures* Grant(const std::string& semaphore, uint32_t permits = 1) {
    ClaimFigures* claim = Claim(semaphore);
    metrics.Asked(claim);
    metrics.Granted(semaphore, claim, permits);
    return claim;
  }
  void Use(const std::string& semaphore) { metrics.Ended(Grant(semaphore), EndCause::kReleased); }
  std::map<std::string, SessionsFigures::Named> Look() {
    SessionsFigures figures;
    metrics.Snapshot(&figures);
    std::map<std::string, SessionsFigures::Named> by_name;
    for (auto& each : figures.semaphores) by_name[each.semaphore] = each;
    CHECK(by_name.size() == figures.semaphores.size());
    return by_name;
  }
  static SemaphoreInfo Info(const std::string& name, uint32_t limit, uint32_t held) {
    SemaphoreInfo info;
    info.row.name = name;
    info.row.limit = limit;
    info.held = held;
    return info;
  }

  ManualClock clock;
  std::map<std::string, std::vector<std::unique_ptr<ClaimFigures>>> claims;
  SemaphoreMetrics metrics;
};

}  // namespace

TEST_CASE("semaphore metrics: each reason and each cause is counted as itself", "[metrics]") {
  Counted counted(10);
  for (size_t reason = 0; reason < kReasons; ++reason) {
    for (size_t times = 0; times <= reason; ++times)
      counted.metrics.Denied("a", counted.Grant("a"), static_cast<Reason>(reason));
  }
  for (size_t cause = 2; cause < kCauses; ++cause) {
    for (size_t times = 0; times <= cause; ++times)
      counted.metrics.Ended(counted.Grant("a"), static_cast<EndCause>(cause));
  }
  const auto a = counted.Look()["a"];
  for (size_t reason = 0; reason < kReasons; ++reason) {
    INFO(ReasonName(static_cast<Reason>(reason)));
    CHECK(a.here.denials[reason] == reason + 1);
    // Each has a name of its own, so none lies beyond the last.
    CHECK((ReasonName(static_cast<Reason>(reason)) == "UNSPECIFIED") == (reason == 0));
  }
  for (size_t cause = 2; cause < kCauses; ++cause) CHECK(a.here.losses[cause] == cause + 1);
  CHECK(ReasonName(static_cast<Reason>(kReasons)) == "UNSPECIFIED");
  CHECK(kReasons > static_cast<size_t>(Reason::kQuota));
  CHECK(kCauses > static_cast<size_t>(EndCause::kEngineLost));
  CHECK(kMethods > static_cast<size_t>(Method::kOther));
}

TEST_CASE("semaphore metrics: a claim's life", "[metrics]") {
  Counted counted(10);
  ClaimFigures* first = counted.Grant("a", 3);
  ClaimFigures* second = counted.Claim("a");
  counted.metrics.Asked(second);
  counted.metrics.Waiting("a", second);
  counted.clock.Advance(Milliseconds(700));
  ClaimFigures* third = counted.Claim("a");
  counted.metrics.Asked(third);
  counted.metrics.Waiting("a", third);
  counted.clock.Advance(Milliseconds(300));
  auto a = counted.Look()["a"];
  CHECK(a.here.grants == 1);
  CHECK(a.here.held_permits == 3);
  CHECK(a.here.waiters == 2);
  CHECK(a.oldest_waiter_age_ms == 1000);

  counted.metrics.Changed(first, 2);
  counted.metrics.Granted("a", second, 1);
  a = counted.Look()["a"];
  CHECK(a.here.held_permits == 3);
  CHECK(a.here.leases == 2);
  CHECK(a.oldest_waiter_age_ms == 300);
  CHECK(a.here.wait_us.counts[0] == 1);  // The first, at once.
  CHECK(a.here.wait_us.counts[5] == 1);  // One second.
  CHECK(a.here.wait_us.sum == 1'000'000);

  counted.metrics.Denied("a", third, Reason::kWaitExpired);
  counted.metrics.Forget(third);
  counted.metrics.Recalled(first);
  counted.metrics.Ended(first, EndCause::kRecalled);
  counted.metrics.Ended(first, EndCause::kRecalled);  // Told twice.
  counted.metrics.Forget(first);
  counted.metrics.Forget(second);  // Went to another daemon.
  a = counted.Look()["a"];
  CHECK(a.here.denials[static_cast<size_t>(Reason::kWaitExpired)] == 1);
  CHECK(a.here.recalls == 1);
  CHECK(a.here.losses[static_cast<size_t>(EndCause::kRecalled)] == 1);
  CHECK(a.here.leases == 0);
  CHECK(a.here.waiters == 0);
  CHECK(a.here.hold_us.sum == 1'000'000);
  CHECK(a.oldest_waiter_age_ms == 0);
}

TEST_CASE("semaphore metrics: off, nothing is counted", "[metrics]") {
  Counted counted(0);
  counted.Use("a");
  counted.metrics.Denied("a", nullptr, Reason::kFull);
  CHECK(counted.Look()[""].here.grants == 0);
}

TEST_CASE("semaphore metrics: what does not exist takes no place", "[metrics]") {
  Counted counted(2);
  for (int i = 0; i < 10; ++i)
    counted.metrics.Denied("x" + std::to_string(i), nullptr, Reason::kNoSuchSemaphore);
  const auto figures = counted.Look();
  CHECK(figures.size() == 1);
  CHECK(figures.at("").here.denials[static_cast<size_t>(Reason::kNoSuchSemaphore)] == 10);
}

TEST_CASE("semaphore metrics: places are kept while in use and go to the busiest", "[metrics]") {
  Counted counted(2);
  ClaimFigures* held = counted.Grant("a");
  counted.Use("b");
  counted.Use("c");
  ClaimFigures* in_rest = counted.Grant("d", 5);
  counted.Use("d");
  auto figures = counted.Look();
  CHECK(figures.size() == 3);
  CHECK(figures[""].here.grants == 3);
  CHECK(figures[""].here.held_permits == 5);

  // Ten minutes later b is idle and a still held; d was used more than c.
  counted.clock.Advance(Milliseconds(600'000));
  counted.Use("c");
  counted.Use("d");
  counted.Use("d");
  figures = counted.Look();
  CHECK(figures.contains("a"));
  CHECK_FALSE(figures.contains("b"));
  REQUIRE(figures.contains("d"));
  // Its claims came along; what was counted in the rest stays there.
  CHECK(figures["d"].here.held_permits == 5);
  CHECK(figures["d"].here.grants == 0);
  CHECK(figures[""].here.held_permits == 0);
  CHECK(figures[""].here.grants == 6);
  counted.metrics.Ended(in_rest, EndCause::kReleased);
  counted.metrics.Ended(held, EndCause::kReleased);
  CHECK(counted.Look()["d"].here.held_permits == 0);
}

TEST_CASE("semaphore metrics: waiters that move from the rest stand by age", "[metrics]") {
  Counted counted(1);
  counted.Use("a");
  std::vector<ClaimFigures*> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(counted.Claim("b"));
    counted.metrics.Asked(waiters.back());
    counted.metrics.Waiting("b", waiters.back());
    counted.clock.Advance(Milliseconds(1000));
  }
  counted.clock.Advance(Milliseconds(600'000));
  auto figures = counted.Look();
  REQUIRE(figures.contains("b"));
  CHECK(figures["b"].here.waiters == 3);
  CHECK(figures["b"].oldest_waiter_age_ms == 603'000);
  counted.metrics.Forget(waiters[0]);
  CHECK(counted.Look()["b"].oldest_waiter_age_ms == 602'000);
  counted.metrics.Forget(waiters[2]);
  counted.metrics.Forget(waiters[1]);
  CHECK(counted.Look()["b"].here.waiters == 0);
}

TEST_CASE("semaphore metrics: what the engine has", "[metrics]") {
  Counted counted(2);
  counted.Use("a");
  CHECK_FALSE(counted.Look()["a"].engine.has_value());
  counted.clock.Advance(Milliseconds(1));
  counted.metrics.BeginList();
  counted.metrics.List({Counted::Info("a", 5, 4), Counted::Info("b", 1, 0)});
  counted.metrics.List({Counted::Info("c", 7, 2), Counted::Info("d", 3, 3)});
  CHECK_FALSE(counted.metrics.list_begun_at().has_value());
  counted.metrics.EndList(true);
  auto figures = counted.Look();
  CHECK(figures["a"].engine->limit == 5);
  CHECK(figures["a"].engine->held_permits == 4);
  CHECK(figures[""].engine->limit + figures["b"].engine.value_or(EngineSemaphoreFigures{}).limit +
            figures["c"].engine.value_or(EngineSemaphoreFigures{}).limit +
            figures["d"].engine.value_or(EngineSemaphoreFigures{}).limit ==
        11);
  // Destroyed through another daemon: the place is free.
  counted.clock.Advance(Milliseconds(20'000));
  counted.metrics.BeginList();
  counted.metrics.List({Counted::Info("d", 3, 3)});
  counted.metrics.EndList(true);
  figures = counted.Look();
  CHECK_FALSE(figures.contains("a"));
  CHECK(figures["d"].engine->limit == 3);
  // Used after the list had begun: it may be newer.
  counted.metrics.BeginList();
  counted.clock.Advance(Milliseconds(1));
  counted.Use("new");
  counted.metrics.EndList(true);
  CHECK(counted.Look().contains("new"));
}

TEST_CASE("semaphore metrics: Sessions count", "[metrics]") {
  SessionsOptions options;
  options.metrics_semaphores_max = 5;
  SessionsWorld world(options);
  WorkerStream worker;
  REQUIRE_FALSE(world.Enqueue("t", "payload"));
  world.Work(&worker, {{"t"}, {}, 1});
  REQUIRE(worker.assigned.size() == 1);
  SessionsFigures figures;
  bool refreshed = false;
  world.sessions().RefreshFigures([&] { refreshed = true; });
  world.Settle();
  CHECK(refreshed);
  world.sessions().Figures(&figures);
  REQUIRE(figures.semaphores.size() == 2);
  CHECK(figures.semaphores[0].here.grants == 1);
  CHECK(figures.semaphores[0].here.leases == 1);
  CHECK(figures.semaphores[0].engine->tickets_assigned == 1);
  CHECK(figures.workers == 1);
  CHECK(figures.sessions_open == 1);
  CHECK(figures.list_complete);
  world.Finish(&worker, worker.assigned[0], FinishCommand::Result::kDone);
  figures = {};
  world.sessions().Figures(&figures);
  CHECK(figures.semaphores[0].here.releases == 1);
  CHECK(figures.semaphores[0].here.leases == 0);
}

TEST_CASE("semaphore metrics: the fullest of a list, and the oldest pause", "[metrics]") {
  Counted counted(1);
  const auto list = [&](const std::vector<std::string>& paused, uint64_t waiting,
                        bool ends = true) {
    counted.metrics.BeginList();
    for (const char* name : {"a", "b", "c"}) {
      SemaphoreInfo info = Counted::Info(name, 1, 0);
      info.row.paused = std::ranges::find(paused, name) != paused.end();
      info.waiting = info.row.name == "b" ? waiting : 1;
      info.tickets.queued = 2;
      info.tickets.dead = info.row.name == "c" ? 3 : 0;
      counted.metrics.List({info});
    }
    if (ends) counted.metrics.EndList(true);
    counted.clock.Advance(Milliseconds(1'000));
    SessionsFigures figures;
    counted.metrics.Snapshot(&figures);
    return figures;
  };
  const SessionsFigures first = list({}, 7);
  CHECK(first.most_waiters == 7);
  CHECK(first.most_tickets == 2);
  CHECK(first.most_dead_letters == 3);
  CHECK(first.oldest_pause_ms == 0);
  CHECK(list({"b"}, 0).oldest_pause_ms == 1'000);
  CHECK(list({"a", "b"}, 0).oldest_pause_ms == 2'000);
  CHECK(list({}, 0, false).oldest_pause_ms == 3'000);  // It was broken off: the last one holds.
  CHECK(list({"a"}, 0).oldest_pause_ms == 3'000);
  CHECK(list({"c"}, 0).oldest_pause_ms == 1'000);
  const SessionsFigures last = list({}, 0);
  CHECK(last.oldest_pause_ms == 0);
  CHECK(last.most_waiters == 1);
}

}  // namespace semaphored
