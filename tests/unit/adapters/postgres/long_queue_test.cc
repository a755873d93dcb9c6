// Long queues of tickets on Postgres: only what has changed is read again, and it is right whatever
// others have done.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "adapters/postgres/store.h"
#include "adapters/postgres/ticket_cache.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/postgres/fixture.h"
#include "tests/unit/adapters/postgres/ticket_rows.h"

namespace semaphored::postgres {
namespace {

using ledger::LoadedSemaphore;
using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;

std::vector<TicketPtr> MakeTickets(uint64_t from, uint64_t to) {
  std::vector<TicketPtr> tickets;
  for (uint64_t number = from; number <= to; ++number) tickets.push_back(MakeTicket(number));
  return tickets;
}

std::vector<Ticket> ByOrder(const LoadedSemaphore& loaded) {
  std::vector<Ticket> tickets;
  for (const TicketPtr& ticket : loaded.tickets) tickets.push_back(*ticket);
  std::ranges::sort(tickets, {}, &Ticket::order);
  return tickets;
}

// How many of `after` are the very objects of `before`.
int64_t Same(const LoadedSemaphore& before, const LoadedSemaphore& after) {
  return std::ranges::count_if(after.tickets, [&](const TicketPtr& ticket) {
    return std::ranges::find(before.tickets, ticket) != before.tickets.end();
  });
}

TEST_CASE("postgres long queue: what has not changed is not read again", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  OpenStore other = Open(schema, {.node_id = "b"});
  Make(open, "s");
  Put(other, "s", MakeTickets(1, 100));
  const LoadedSemaphore before = LoadOne(open, "s");
  Transaction batch = Begin(other);
  auto& delta = Touch(batch, before.row);
  delta.tickets.push_back({FindTicket(before, 1), nullptr, nullptr});
  delta.tickets.push_back({FindTicket(before, 50), WithAttempt(*MakeTicket(50), 4), nullptr});
  Add(&delta, MakeTicket(101), "payload");
  REQUIRE(other.Commit(batch).kind == Kind::kWon);
  const LoadedSemaphore after = LoadOne(open, "s");
  CHECK(after.tickets.size() == 100);
  CHECK(Same(before, after) == 98);
  CHECK(FindTicket(after, 1) == nullptr);
  CHECK(FindTicket(after, 50)->attempt == 4);
  CHECK(FindTicket(after, 101) != nullptr);
  CHECK(ByOrder(after) == ByOrder(LoadOne(other, "s")));
  // Nothing has.
  CHECK(Same(after, LoadOne(open, "s")) == 100);
  // Its own changes come back as any other's.
  Put(open, "s", {MakeTicket(102)});
  CHECK(ByOrder(LoadOne(open, "s")).size() == 101);
  // A short one is read as a whole.
  Make(open, "t");
  Put(open, "t", MakeTickets(1001, 1010));
  CHECK(Same(LoadOne(open, "t"), LoadOne(open, "t")) == 0);
}

TEST_CASE("postgres long queue: all is read after a change past the revision, or a new connection",
          "[postgres]") {
  TestSchema schema;
  Client sql = schema.Connect();
  OpenStore open = Open(schema);
  Make(open, "s");
  Put(open, "s", MakeTickets(1, 100));
  const LoadedSemaphore before = LoadOne(open, "s");
  sql.Run("UPDATE semaphored.tickets SET queue_order = 1000 WHERE queue_order = 1");
  SECTION("a commit that rests on it is lost") {
    Transaction batch = Begin(open);
    Touch(batch, before.row).tickets.push_back({FindTicket(before, 1), nullptr, nullptr});
    CHECK(open.Commit(batch).kind == Kind::kLost);
    CHECK(Same(before, LoadOne(open, "s")) == 0);
  }
  SECTION("a place is not known") { CHECK(Same(before, LoadOne(open, "s")) == 0); }
  SECTION("another connection") {
    sql.Run("SELECT pg_terminate_backend(" + std::to_string(open.connection->backend_pid()) + ")");
    const std::string names[] = {"s"};
    REQUIRE(Within10s([&] { return open.store->Load(names).ok(); }));
    CHECK(Same(before, LoadOne(open, "s")) == 0);
  }
  CHECK(FindTicket(LoadOne(open, "s"), 1)->order == 1000);
}

TEST_CASE("postgres long queue: a semaphore of the same name is another one", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  OpenStore other = Open(schema, {.node_id = "b"});
  Make(open, "s");
  Put(open, "s", MakeTickets(1, 100));
  const LoadedSemaphore before = LoadOne(open, "s");
  Transaction destroyed = Begin(other);
  auto& delta = Touch(destroyed, before.row);
  delta.after.reset();
  for (const TicketPtr& ticket : before.tickets)
    delta.tickets.push_back({ticket, nullptr, nullptr});
  REQUIRE(other.Commit(destroyed).kind == Kind::kWon);
  if (GENERATE(true, false)) {
    const std::string names[] = {"s"};
    CHECK(open.store->Load(names).value().semaphores.empty());
  }
  Make(other, "s");
  std::vector<TicketPtr> anew;
  for (uint64_t place = 1; place <= 100; ++place) anew.push_back(MakeTicket(200 + place, place));
  Put(other, "s", anew);
  CHECK(ByOrder(LoadOne(open, "s")) == ByOrder(LoadOne(other, "s")));
  CHECK(LoadOne(open, "s").tickets.at(0)->id.low > 200);
}

TEST_CASE("postgres long queue: whatever two daemons do, both read the same", "[postgres]") {
  TestSchema schema;
  OpenStore daemons[] = {Open(schema), Open(schema, {.node_id = "b"})};
  OpenStore fresh = Open(schema, {.node_id = "c"});
  Make(fresh, "s");
  Put(fresh, "s", MakeTickets(1, 90));
  std::mt19937 random(GENERATE(1, 2));
  uint64_t next = 91;
  for (int step = 0; step < 60; ++step) {
    OpenStore& daemon = daemons[random() % 2];
    const LoadedSemaphore loaded = LoadOne(daemon, "s");
    Transaction batch = Begin(daemon);
    auto& delta = Touch(batch, loaded.row);
    std::vector<TicketPtr> tickets = loaded.tickets;
    std::ranges::shuffle(tickets, random);
    for (size_t i = 0; i < random() % 4 && i < tickets.size(); ++i) {
      delta.tickets.push_back(
          {tickets[i], random() % 2 == 0 ? WithAttempt(*tickets[i], step) : nullptr, nullptr});
    }
    for (uint32_t i = random() % 4; i > 0; --i) Add(&delta, MakeTicket(next++), "payload");
    REQUIRE(daemon.Commit(batch).kind == Kind::kWon);
    if (step % 5 == 0) {
      OpenStore& reader = daemons[random() % 2];
      REQUIRE(ByOrder(LoadOne(reader, "s")) == ByOrder(LoadOne(fresh, "s")));
      fresh.store->ForgetClientsBut([](uint32_t) { return true; });
    }
  }
}

TEST_CASE("postgres long queue: to be shown, tickets are counted", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  Make(open, "none");
  Make(open, "s");
  const auto dead = MakeTicket(3);
  dead->state = TicketState::kDead;
  Put(open, "s", {MakeTicket(1), Delayed(*MakeTicket(2), open.self, 5), dead, MakeTicket(4)});
  const std::string names[] = {"none", "s", "missing"};
  const ledger::Image image = open.store->Look(names).value();
  REQUIRE(image.semaphores.size() == 2);
  for (const LoadedSemaphore& loaded : image.semaphores) {
    std::vector<TicketState> states;
    for (const TicketPtr& ticket : loaded.tickets) states.push_back(ticket->state);
    CHECK(states == (loaded.row.name == "none"
                         ? std::vector<TicketState>{}
                         : std::vector{TicketState::kQueued, TicketState::kQueued,
                                       TicketState::kDelayed, TicketState::kDead}));
  }
}

TEST_CASE("a ticket cache forgets queues that nobody looks at") {
  TicketCache cache(/*tickets_min=*/2, /*idle_max=*/2);
  CHECK(cache.Known("s") == 0);
  REQUIRE(cache.Update("s", 5, MakeTickets(1, 3), std::nullopt)->size() == 3);
  REQUIRE(cache.Update("short", 5, MakeTickets(1, 1), std::nullopt)->size() == 1);
  CHECK(cache.Known("s") == 5);
  CHECK(cache.Known("short") == 0);
  cache.Age();
  cache.Age();
  REQUIRE(cache.Update("s", 6, {}, std::vector<int64_t>{1, 3})->size() == 2);
  cache.Age();
  cache.Age();
  CHECK(cache.Known("s") == 6);
  // A place that is not known, a revision that has gone back: what was known is of no use.
  SECTION("in time") { cache.Age(); }
  SECTION("by a place") { CHECK_FALSE(cache.Update("s", 7, {}, std::vector<int64_t>{1, 2, 3})); }
  SECTION("by a revision") { CHECK_FALSE(cache.Update("s", 5, {}, std::vector<int64_t>{1, 3})); }
  CHECK(cache.Known("s") == 0);
  CHECK_FALSE(cache.Update("s", 8, {}, std::vector<int64_t>{}));
}

// Not run with the others: what a look at a long queue costs, in milliseconds.
TEST_CASE("postgres long queue: speed", "[.speed]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  OpenStore other = Open(schema, {.node_id = "b"});
  Make(open, "s");
  constexpr uint64_t kTickets = 10'000;
  for (uint64_t from = 1; from < kTickets; from += 1000)
    Put(other, "s", MakeTickets(from, from + 999));
  const auto measure = [&](const char* what) {
    const auto start = SteadyClock::now();
    LoadOne(open, "s");
    const std::chrono::duration<double, std::milli> took = SteadyClock::now() - start;
    std::printf("%s: %.1f ms\n", what, took.count());
  };
  for (uint64_t round = 0; round < 5; ++round) {
    open.store->ForgetClientsBut([](uint32_t) { return true; });
    measure(round == 0 ? "all 10,000 tickets" : "what one commit has changed");
    Put(other, "s", {MakeTicket(kTickets + 1 + round)});
  }
}

}  // namespace
}  // namespace semaphored::postgres
