#include "server/sessions/ticket_delays.h"

#include <memory>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

constexpr Id kDelayedTicket{3, 3};

struct DelayWorld {
  RoomHost host;
  std::vector<std::string> ripe;
  TicketDelays delays{&host, &host.timers,
                      [this](const std::string& semaphore) { ripe.push_back(semaphore); }};

  void Count(uint32_t number, int64_t delay_ms) {
    CountAt("jobs", kDelayedTicket, number, delay_ms);
  }
  void CountAt(const std::string& semaphore, const Id& id, uint32_t number, int64_t delay_ms) {
    Ticket ticket;
    ticket.id = id;
    ticket.delays = number;
    ticket.delay_ms = delay_ms;
    DelayedTicket delayed;
    delayed.semaphore = semaphore;
    delayed.ticket = std::make_shared<const Ticket>(ticket);
    delays.Count(delayed);
  }
};

TEST_CASE("ticket delays: a ticket is made ripe when its delay is over, once", "[unit]") {
  DelayWorld world;
  world.Count(1, 1000);
  world.Count(1, 1000);
  world.delays.Ripen(kDelayedTicket);
  CHECK(world.host.jobs.empty());  // Too early.
  const auto timer = world.host.Pass(Milliseconds(1000));
  REQUIRE(timer);
  CHECK(timer->kind == TimerKind::kRipen);
  CHECK(timer->id == kDelayedTicket);
  CHECK(world.host.timers.Next() == SteadyTime::max());
  world.delays.Ripen(timer->id);
  const auto ripen = world.host.Oldest<RipenCommand>();
  CHECK(ripen.semaphore == "jobs");
  CHECK(ripen.ticket == kDelayedTicket);
  CHECK(ripen.delay == 1);
  world.host.Answer(OutcomeKind::kDone);
  CHECK(world.ripe == std::vector<std::string>{"jobs"});
  CHECK_FALSE(world.delays.Contains(kDelayedTicket));
}

TEST_CASE("ticket delays: a command that was not carried out is tried again", "[unit]") {
  DelayWorld world;
  world.Count(1, 1000);
  REQUIRE(world.host.Pass(Milliseconds(1000)));
  world.delays.Ripen(kDelayedTicket);
  world.host.Answer(absl::UnavailableError("away"));
  CHECK(world.ripe.empty());
  REQUIRE(world.host.Pass(Milliseconds(500)));
  world.delays.Ripen(kDelayedTicket);
  world.host.Answer(OutcomeKind::kDamaged);
  CHECK_FALSE(world.host.Pass(Milliseconds(4999)));
  REQUIRE(world.host.Pass(Milliseconds(1)));
  world.delays.Ripen(kDelayedTicket);
  world.host.Answer(OutcomeKind::kNothing);  // Another daemon was first.
  CHECK(world.ripe.empty());
  CHECK_FALSE(world.delays.Contains(kDelayedTicket));
}

TEST_CASE("ticket delays: a later delay replaces an earlier one, whose answer then counts no more",
          "[unit]") {
  DelayWorld world;
  world.Count(1, 1000);
  REQUIRE(world.host.Pass(Milliseconds(1000)));
  world.delays.Ripen(kDelayedTicket);
  world.Count(2, 5000);
  world.host.Answer(OutcomeKind::kDone);
  CHECK(world.ripe.empty());
  CHECK(world.delays.Contains(kDelayedTicket));
  world.delays.Forget(kDelayedTicket);
  REQUIRE(world.host.Pass(Milliseconds(5000)));
  world.delays.Ripen(kDelayedTicket);
  CHECK(world.host.jobs.empty());
}

TEST_CASE("ticket delays: with a semaphore all its delays are forgotten, and no other", "[unit]") {
  DelayWorld world;
  world.Count(1, 1000);
  world.CountAt("jobs", Id{3, 4}, 1, 2000);
  world.CountAt("other jobs", Id{3, 5}, 1, 2000);
  world.delays.ForgetAt("jobs");
  CHECK_FALSE(world.delays.Contains(kDelayedTicket));
  CHECK_FALSE(world.delays.Contains(Id{3, 4}));
  CHECK(world.delays.Contains(Id{3, 5}));
}

}  // namespace
}  // namespace semaphored
