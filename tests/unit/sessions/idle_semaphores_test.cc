#include "server/sessions/idle_semaphores.h"

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

constexpr int64_t kIdleAfterMs = 80'000;        // So that a sweep comes …
constexpr Milliseconds kIdleSweepEach{10'000};  // … every 10 s.

SemaphoreInfo UnusedSemaphore(const std::string& name, uint64_t revision) {
  SemaphoreInfo info = InfoOf(name, revision);
  info.row.made_on_use = true;
  return info;
}

struct IdleWorld {
  RoomHost host;
  IdleSemaphores idle{&host, &host.timers, &host.lists, kIdleAfterMs};

  // A sweep is due, and finds these.
  void Sweep(std::vector<SemaphoreInfo> infos) {
    const auto timer = host.Pass(kIdleSweepEach);
    REQUIRE(timer);
    REQUIRE(timer->kind == TimerKind::kIdle);
    idle.Sweep();
    host.AnswerList(std::move(infos));
  }
};

TEST_CASE("idle semaphores: one that is unused all the time is destroyed at its revision",
          "[unit]") {
  IdleWorld world;
  world.idle.Arm();
  for (int i = 0; i < 8; ++i) world.Sweep({UnusedSemaphore("a", 5)});
  CHECK(world.host.jobs.empty());
  world.Sweep({UnusedSemaphore("a", 5)});
  const auto destroy = world.host.Oldest<AdminCommand>();
  CHECK(destroy.semaphore == "a");
  CHECK(destroy.expected_revision == 5);
  CHECK(std::get<AdminDestroy>(destroy.act).policy == DestroyPolicy::kRefuse);
}

TEST_CASE("idle semaphores: use, another revision or a gap in the lists begins the time again",
          "[unit]") {
  IdleWorld world;
  world.idle.Arm();
  SemaphoreInfo used = UnusedSemaphore("used", 1);
  used.held = 1;
  SemaphoreInfo configured = UnusedSemaphore("configured", 1);
  configured.row.made_on_use = false;
  for (int i = 0; i < 20; ++i) {
    const bool middle = i % 8 == 7;
    std::vector<SemaphoreInfo> infos{configured, UnusedSemaphore("changed", i / 8)};
    infos.push_back(middle ? used : UnusedSemaphore("used", 1));
    if (!middle) infos.push_back(UnusedSemaphore("gone", 1));
    world.Sweep(std::move(infos));
    CHECK(world.host.jobs.empty());
  }
}

TEST_CASE("idle semaphores: a sweep goes through all slices, and after an error there is another",
          "[unit]") {
  IdleWorld world;
  world.idle.Arm();
  world.idle.Arm();
  REQUIRE(world.host.Pass(kIdleSweepEach));
  CHECK_FALSE(world.host.Pass(kIdleSweepEach));  // Armed once.
  world.idle.Sweep();
  world.host.AnswerList({UnusedSemaphore("a", 1)}, /*more=*/true);
  CHECK(world.host.Oldest<ListCommand>().after == "a");
  world.idle.Arm();
  CHECK_FALSE(world.host.Pass(kIdleSweepEach));  // It is under way.
  world.host.Answer(absl::UnavailableError("away"));
  CHECK(world.host.Pass(kIdleSweepEach));
}

TEST_CASE("idle semaphores: where each reading is paid for, a long time is eight sweeps",
          "[unit]") {
  constexpr int64_t kDayMs = 86'400'000;
  const auto interval = [](bool push) {
    RoomHost host;
    host.promises.push = push;
    IdleSemaphores idle(&host, &host.timers, &host.lists, kDayMs);
    idle.Arm();
    return host.timers.Next() - host.time.Now();
  };
  CHECK(interval(true) == Milliseconds(600'000));
  CHECK(interval(false) == Milliseconds(kDayMs / 8));
}

TEST_CASE("idle semaphores: none is looked for where none may be destroyed", "[unit]") {
  RoomHost host;
  IdleSemaphores never(&host, &host.timers, &host.lists, 0);
  never.Arm();
  for (bool Guarantees::*const need :
       {&Guarantees::names, &Guarantees::revisions, &Guarantees::made_on_use}) {
    host.promises.*need = false;
    IdleSemaphores without(&host, &host.timers, &host.lists, kIdleAfterMs);
    without.Arm();
    CHECK(host.timers.Next() == SteadyTime::max());
    host.promises.*need = true;
  }
}

}  // namespace
}  // namespace semaphored
