// Tickets on a real Postgres: written once a commit, payloads apart, nothing half done; what others
// do past the daemons; long queues, of which only what has changed is read again.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/postgres/array.h"
#include "adapters/postgres/store.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/matchers/catch_matchers_string.hpp"
#include "tests/unit/adapters/postgres/fixture.h"
#include "tests/unit/adapters/postgres/ticket_rows.h"
#include "tests/unit/relay.h"

namespace semaphored::postgres {
namespace {

using ledger::CommitResult;
using ledger::LoadedSemaphore;
using ledger::Transaction;
using Kind = CommitResult::Kind;

TEST_CASE("postgres tickets: what was committed is loaded, and the payload apart", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  const auto ticket = MakeTicket(1);
  ticket->priority = -7;
  ticket->payload_bytes = 9;
  ticket->attempt = 3;
  ticket->max_attempts = 4'000'000'000;
  ticket->back_off = {123, 150, 456'789};
  ticket->delays = 2;
  ticket->host = open.self;
  ticket->content_type = "application/\"json\\";
  ticket->trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  ticket->reasons = {{1, "a \"quoted\" \\ {reason}, \xc3\xa4", 5}, {3, "", 6}};
  const std::string bytes("\0\x01\xff'\\\" {}", 9);
  const auto empty = MakeTicket(2);
  empty->payload_bytes = 0;
  const auto large = MakeTicket(3);
  large->payload_bytes = 65536;
  const TicketPtr delayed = Delayed(*large, open.self, 5000);
  Transaction transaction = Begin(open);
  auto& delta = Touch(transaction, Make(open, "s"));
  Add(&delta, ticket, bytes);
  delta.tickets.push_back({nullptr, empty, nullptr});
  Add(&delta, delayed, std::string(65536, 'x'));
  delta.after->next_order = 9;
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);

  OpenStore other = Open(schema, {.node_id = "b"});
  for (OpenStore* each : {&open, &other}) {
    const LoadedSemaphore loaded = LoadOne(*each, "s");
    CHECK(loaded.row.next_order == 9);
    REQUIRE(loaded.tickets.size() == 3);
    CHECK(*FindTicket(loaded, 1) == *ticket);
    CHECK(*FindTicket(loaded, 2) == *empty);
    CHECK(*FindTicket(loaded, 3) == *delayed);
    CHECK(*PayloadOf(*each, 1) == bytes);
    CHECK(PayloadOf(*each, 2)->empty());
    CHECK(PayloadOf(*each, 3)->size() == 65536);
    CHECK(PayloadOf(*each, 4) == nullptr);
  }
  // In the order in which they are asked for.
  const std::vector<ledger::LedgerStore::TicketAt> asked = {
      {"s", MakeId(2)}, {"s", MakeId(9)}, {"s", MakeId(1)}, {"s", MakeId(1)}};
  const std::vector<PayloadPtr> payloads = open.store->ReadPayloads(asked).value();
  REQUIRE(payloads.size() == 4);
  CHECK(payloads[0]->empty());
  CHECK(payloads[1] == nullptr);
  CHECK(*payloads[2] == bytes);
  CHECK(*payloads[3] == bytes);
}

TEST_CASE("postgres tickets: a zero byte in a text is no end of it", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  const auto ticket = MakeTicket(1);
  ticket->reasons = {{1, std::string("a\0b", 3), 5}, {2, "broken \xff", 5}};
  Transaction transaction = Begin(open);
  auto& delta = Touch(transaction, Make(open, "s"));
  Add(&delta, ticket, "x");
  const LeasePtr lease = MakeLease(open, 7);
  lease->holder = std::string("c\0d", 3);
  delta.leases.push_back({nullptr, lease, EndCause::kNone});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  const LoadedSemaphore loaded = LoadOne(open, "s");
  REQUIRE(loaded.tickets.at(0)->reasons.size() == 2);
  CHECK(loaded.tickets[0]->reasons[0].text ==
        "a\xef\xbf\xbd"
        "b");
  CHECK(loaded.leases.at(0)->holder ==
        "c\xef\xbf\xbd"
        "d");
}

TEST_CASE("postgres tickets: whatever happens to one in a commit is one write", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema);
  const auto stays = MakeTicket(1);
  const auto passing = MakeTicket(2);
  Transaction transaction = Begin(open);
  auto& delta = Touch(transaction, Make(open, "s"));
  Add(&delta, stays, "stays");
  delta.tickets.push_back({stays, WithAttempt(*stays, 1), nullptr});
  delta.tickets.push_back({WithAttempt(*stays, 1), WithAttempt(*stays, 2), nullptr});
  Add(&delta, passing, "passing");
  delta.tickets.push_back({passing, nullptr, nullptr});
  REQUIRE(open.Commit(transaction).kind == Kind::kWon);
  CHECK(LoadOne(open, "s").tickets.at(0)->attempt == 2);
  CHECK(other.Number("SELECT count(*) FROM semaphored.payloads") == 1);
  CHECK(other.Number("SELECT changed FROM semaphored.tickets") ==
        static_cast<int64_t>(LoadOne(open, "s").row.revision));

  // Changed and gone in one; and one in its place, with its order.
  const auto next = MakeTicket(3, stays->order);
  Transaction gone = Begin(open);
  auto& end = Touch(gone, LoadOne(open, "s").row);
  end.tickets.push_back({stays, WithAttempt(*stays, 3), nullptr});
  end.tickets.push_back({WithAttempt(*stays, 3), nullptr, nullptr});
  Add(&end, next, "next");
  REQUIRE(open.Commit(gone).kind == Kind::kWon);
  CHECK(LoadOne(open, "s").tickets.at(0)->id == next->id);
  CHECK(PayloadOf(open, 1) == nullptr);
  CHECK(*PayloadOf(open, 3) == "next");
}

TEST_CASE("postgres tickets: a semaphore may come and go with its tickets", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema);
  Transaction made = Create(open, "s");
  made.semaphores[0].after->made_on_use = true;
  Add(&made.semaphores[0], MakeTicket(1), "first");
  REQUIRE(open.Commit(made).kind == Kind::kWon);
  SemaphoreRow row = LoadOne(open, "s").row;
  CHECK(row.made_on_use);
  CHECK(row.revision == made.semaphores[0].revision);
  CHECK(other.Number("SELECT changed FROM semaphored.tickets") ==
        static_cast<int64_t>(row.revision));

  Transaction destroyed = Begin(open);
  auto& delta = Touch(destroyed, row);
  delta.tickets.push_back({LoadOne(open, "s").tickets.at(0), nullptr, nullptr});
  delta.after.reset();
  REQUIRE(open.Commit(destroyed).kind == Kind::kWon);
  CHECK(other.Number("SELECT count(*) FROM semaphored.tickets") == 0);
  CHECK(other.Number("SELECT count(*) FROM semaphored.payloads") == 0);
  // What knows nothing of tickets may not.
  row = Make(open, "s");
  Put(open, "s", {MakeTicket(2)});
  Transaction blind = Begin(open);
  Touch(blind, LoadOne(open, "s").row).after.reset();
  const CommitResult refused = open.Commit(blind);
  CHECK(refused.kind == Kind::kFailed);
  CHECK(refused.status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(refused.status.message()),
             Catch::Matchers::ContainsSubstring("has tickets"));
  CHECK(LoadOne(open, "s").tickets.size() == 1);
}

// ---- what is not as it was ----

TEST_CASE("postgres tickets: of a batch about rows that are not as they were nothing is done",
          "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema);
  Make(open, "s");
  Put(open, "s", {MakeTicket(1), MakeTicket(2)});
  const LoadedSemaphore before = LoadOne(open, "s");
  const SemaphoreRow elsewhere = Make(open, "t");
  Transaction batch = Begin(open);
  Touch(batch, elsewhere).leases.push_back({nullptr, MakeLease(open, 9), EndCause::kNone});
  auto& delta = Touch(batch, before.row);
  Add(&delta, MakeTicket(3), "third");
  SECTION("a ticket that changes is not there") {
    const auto missing = MakeTicket(4);
    delta.tickets.push_back({missing, WithAttempt(*missing, 1), nullptr});
  }
  SECTION("a ticket that goes is another") {
    delta.tickets.push_back({MakeTicket(4, 1), nullptr, nullptr});
  }
  SECTION("a ticket that goes is not there") {
    delta.tickets.push_back({FindTicket(before, 1), nullptr, nullptr});
    other.Run("DELETE FROM semaphored.tickets WHERE queue_order = 1");
  }
  SECTION("a ticket that comes is there") { Add(&delta, MakeTicket(2, 50), "again"); }
  SECTION("its place is taken") { Add(&delta, MakeTicket(5, 2), "in the place of 2"); }
  SECTION("an offer that leaves is not there") {
    delta.waiters.push_back({MakeOffer(open, 8), nullptr, EndCause::kCancelled});
  }
  const CommitResult lost = open.Commit(batch);
  CHECK(lost.kind == Kind::kLost);
  CHECK(lost.stale == std::vector<std::string>{"t", "s"});
  CHECK(LoadOne(open, "t").row == elsewhere);
  CHECK(LoadOne(open, "t").leases.empty());
  CHECK(LoadOne(open, "s").row == before.row);
  CHECK(PayloadOf(open, 3) == nullptr);
  // And the lane goes on.
  Put(open, "s", {MakeTicket(6)});
  CHECK(PayloadOf(open, 6) != nullptr);
}

TEST_CASE("postgres tickets: who is second with a batch of tickets has lost it", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  OpenStore rival = Open(schema, {.node_id = "b"});
  const SemaphoreRow row = Make(open, "s");
  Put(rival, "s", {MakeTicket(1)});
  for (int attempt = 0; attempt < 5; ++attempt) {
    Transaction late = Begin(open);
    late.attempt = attempt;
    Add(&Touch(late, row), MakeTicket(2), "late");
    const CommitResult lost = open.Commit(late);
    CHECK(lost.kind == Kind::kLost);
    CHECK(lost.stale == std::vector<std::string>{"s"});
  }
  // Under the lock that it has by now.
  Transaction now = Begin(open);
  now.attempt = 5;
  Add(&Touch(now, LoadOne(open, "s").row), MakeTicket(2), "now");
  REQUIRE(open.Commit(now).kind == Kind::kWon);
  CHECK(LoadOne(rival, "s").tickets.size() == 2);
  CHECK(*PayloadOf(rival, 2) == "now");
}

TEST_CASE("postgres tickets: a payload that is missing is told as such", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema);
  Make(open, "s");
  Put(open, "s", {MakeTicket(1), MakeTicket(2)});
  other.Run("DELETE FROM semaphored.payloads WHERE ticket = '" + MakeId(1).Hex() + "'");
  CHECK(PayloadOf(open, 1) == nullptr);
  CHECK(PayloadOf(open, 2) != nullptr);
  // It goes all the same.
  Transaction gone = Begin(open);
  const LoadedSemaphore loaded = LoadOne(open, "s");
  Touch(gone, loaded.row).tickets.push_back({FindTicket(loaded, 1), nullptr, nullptr});
  CHECK(open.Commit(gone).kind == Kind::kWon);
}

TEST_CASE("postgres tickets: a commit whose answer was lost is found out", "[postgres]") {
  TestSchema schema;
  Relay relay(schema.port());
  OpenStore open = Open(schema, {.port = relay.port(), .timeout = std::chrono::milliseconds(1500)});
  OpenStore other = Open(schema, {.node_id = "b"});
  Make(open, "s");
  Put(open, "s", {MakeTicket(1)});
  const LoadedSemaphore before = LoadOne(open, "s");
  const TicketPtr ticket = before.tickets.at(0);
  const LeasePtr lease = MakeLease(open, 7);
  lease->ticket = ticket->id;
  lease->attempt = 1;
  Transaction batch = Begin(open);
  auto& delta = Touch(batch, before.row);
  delta.tickets.push_back({ticket, Assigned(*ticket, lease->id), nullptr});
  delta.leases.push_back({nullptr, lease, EndCause::kNone});
  Add(&delta, MakeTicket(2), std::string(100'000, 'p'));

  SECTION("it had landed") {
    relay.LoseAnswers();
    REQUIRE(open.Commit(batch).kind == Kind::kUnknown);
    REQUIRE(open.Settle(batch).kind == Kind::kWon);
    CHECK(lease->token != 0);
    const LoadedSemaphore loaded = LoadOne(other, "s");
    CHECK(*FindTicket(loaded, 1) == *Assigned(*ticket, lease->id));
    CHECK(loaded.leases.at(0)->ticket == ticket->id);
    CHECK(loaded.leases.at(0)->attempt == 1);
    CHECK(PayloadOf(other, 2)->size() == 100'000);
    CHECK(LoadOne(open, "s").row.revision == before.row.revision + 1);
  }
  SECTION("it had not, and cannot land later") {
    relay.DelayRequests();
    REQUIRE(open.Commit(batch).kind == Kind::kUnknown);
    const CommitResult settled = open.Settle(batch);
    CHECK(settled.kind == Kind::kLost);
    CHECK(settled.stale == std::vector<std::string>{"s"});
    REQUIRE(relay.DeliverDelayed());
    CHECK(LoadOne(other, "s").row == before.row);
    CHECK(*LoadOne(other, "s").tickets.at(0) == *ticket);
    CHECK(PayloadOf(other, 2) == nullptr);
    REQUIRE(open.Commit(batch).kind == Kind::kWon);
    CHECK(PayloadOf(other, 2) != nullptr);
  }
}

// ---- offers, delays, and who has died ----

TEST_CASE("postgres tickets: an offer comes, is found with its session, and leaves", "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema);
  const bool detached = GENERATE(false, true);
  auto session = std::make_shared<Session>();
  session->id = MakeId(5);
  session->host = open.self;
  session->ttl_ms = 1000;
  const WaiterPtr offer = MakeOffer(open, 8, detached ? Id() : session->id);
  Transaction batch = Begin(open);
  Touch(batch, Make(open, "s")).waiters.push_back({nullptr, offer, EndCause::kNone});
  if (!detached) batch.sessions.push_back({nullptr, session});
  REQUIRE(open.Commit(batch).kind == Kind::kWon);

  const std::string names[] = {"s"};
  const ledger::Image image = open.store->Load(names).value();
  REQUIRE(image.semaphores.at(0).waiters.size() == 1);
  const Waiter& loaded = *image.semaphores[0].waiters[0];
  CHECK(loaded.works);
  CHECK(loaded.id == offer->id);
  CHECK(loaded.order == offer->order);
  CHECK(loaded.holder == offer->holder);
  CHECK(loaded.host == offer->host);
  CHECK(image.sessions.size() == (detached ? 0 : 1));
  if (!detached) {
    CHECK(open.store->LoadSession(session->id).value().semaphores == std::vector<std::string>{"s"});
  }
  const NodeRef nodes[] = {open.self};
  CHECK(open.store->HostedBy(nodes).value().semaphores == std::vector<std::string>{"s"});
  // It is no waiter that a client in SQL has to let go first.
  CHECK(other.Run("SELECT * FROM semaphored.claim('s')").size() == 1);
  const SemaphoreRow row = LoadOne(open, "s").row;

  OpenStore another = Open(schema, {.node_id = "b"});
  Transaction end = Begin(another);
  Touch(end, row).waiters.push_back(
      {image.semaphores[0].waiters[0], nullptr, EndCause::kCancelled});
  REQUIRE(another.Commit(end).kind == Kind::kWon);
  CHECK(LoadOne(another, "s").waiters.empty());
}

TEST_CASE("postgres tickets: who counts a delay is found when he is dead, and is not forgotten",
          "[postgres]") {
  TestSchema schema;
  Client other = schema.Connect();
  OpenStore open = Open(schema);
  StoreOptions options;
  options.prune.interval = std::chrono::milliseconds(0);
  options.prune.requests_kept = std::chrono::milliseconds(0);
  options.prune.thorough_every = 1;
  OpenStore survivor = Open(schema, {.node_id = "b", .store = options});
  for (const char* name : {"delayed", "queued"}) Make(open, name);
  Put(open, "delayed", {Delayed(*MakeTicket(1), open.self, 1000), MakeTicket(2)});
  Put(open, "queued", {MakeTicket(3)});
  const auto dead = [&](const NodeRef& node) {
    return survivor.store->HostedBy({&node, 1}).value().semaphores;
  };
  DeclareDead(schema, open.self);
  CHECK(dead(open.self) == std::vector<std::string>{"delayed"});
  CHECK(dead({open.self.number, open.self.incarnation - 1}).empty());
  // Of a daemon of whom nothing is left the row would go.
  for (int i = 0; i < 4; ++i) REQUIRE(survivor.store->Wait(SteadyClock::now()).ok());
  CHECK(dead(open.self) == std::vector<std::string>{"delayed"});
  CHECK(survivor.engine->nodes().Observe().value().size() == 2);
  // Ripe.
  const LoadedSemaphore loaded = LoadOne(survivor, "delayed");
  const TicketPtr ticket = FindTicket(loaded, 1);
  CHECK(ticket->host == open.self);
  Transaction ripe = Begin(survivor);
  auto queued = std::make_shared<Ticket>(*ticket);
  queued->state = TicketState::kQueued;
  queued->delay_ms = 0;
  Touch(ripe, loaded.row).tickets.push_back({ticket, queued, nullptr});
  REQUIRE(survivor.Commit(ripe).kind == Kind::kWon);
  CHECK(dead(open.self).empty());
}

TEST_CASE("postgres tickets: what SQL gives back wakes who offers to work", "[postgres]") {
  TestSchema schema;
  Client sql = schema.Connect();
  OpenStore open = Open(schema);
  const SemaphoreRow row = Make(open, "s", 1);
  const pqxx::result claimed = sql.Run("SELECT claim FROM semaphored.claim('s')");
  Transaction batch = Begin(open);
  Touch(batch, LoadOne(open, "s").row)
      .waiters.push_back({nullptr, MakeOffer(open, 8), EndCause::kNone});
  REQUIRE(open.Commit(batch).kind == Kind::kWon);
  REQUIRE(open.store->Wait(SteadyTime::min()).ok());
  sql.Run("SELECT semaphored.release('s', '" + claimed[0][0].as<std::string>() + "')");
  REQUIRE(Within10s([&] {
    const std::vector<ledger::ChangeNotice> notices = open.store->Wait(SteadyTime::min()).value();
    return std::ranges::count(notices, "s", &ledger::ChangeNotice::semaphore) > 0;
  }));
}

// ---- what others do who do not know of tickets ----

TEST_CASE("postgres tickets: one whose lease was ended past us is given back", "[postgres]") {
  TestSchema schema;
  Client sql = schema.Connect();
  OpenStore open = Open(schema);
  Make(open, "s");
  const auto ticket = MakeTicket(1);
  ticket->max_attempts = GENERATE(0, 1, 2);
  CAPTURE(ticket->max_attempts);
  Put(open, "s", {ticket});
  const LeasePtr lease = MakeLease(open, 7);
  Transaction batch = Begin(open);
  auto& delta = Touch(batch, LoadOne(open, "s").row);
  delta.tickets.push_back({ticket, Assigned(*ticket, lease->id), nullptr});
  delta.leases.push_back({nullptr, lease, EndCause::kNone});
  REQUIRE(open.Commit(batch).kind == Kind::kWon);
  sql.Run("UPDATE semaphored.leases SET completed_at = now(), end_cause = 3");
  sql.Run("UPDATE semaphored.semaphores SET revision = revision + 1");

  const LoadedSemaphore loaded = LoadOne(open, "s");
  const Ticket& back = *loaded.tickets.at(0);
  CHECK(back.state == (ticket->max_attempts == 1 ? TicketState::kDead : TicketState::kQueued));
  CHECK(back.lease.empty());
  CHECK(back.attempt == 1);
  REQUIRE(back.reasons.size() == 1);
  CHECK(back.reasons[0].attempt == 1);
  CHECK(*LoadOne(open, "s").tickets.at(0) == back);
  // And goes on as any other.
  const LeasePtr next = MakeLease(open, 8);
  Transaction again = Begin(open);
  auto& change = Touch(again, loaded.row);
  change.tickets.push_back({loaded.tickets[0], Assigned(back, next->id), nullptr});
  change.leases.push_back({nullptr, next, EndCause::kNone});
  REQUIRE(open.Commit(again).kind == Kind::kWon);
  const LoadedSemaphore now = LoadOne(open, "s");
  CHECK(now.leases.at(0)->ticket == ticket->id);
  CHECK(now.leases.at(0)->attempt == 2);
  CHECK(now.tickets.at(0)->reasons == back.reasons);
}

TEST_CASE("postgres tickets: that a semaphore was made by its first use is kept", "[postgres]") {
  TestSchema schema;
  OpenStore open = Open(schema);
  Transaction made = Create(open, "s");
  made.semaphores[0].after->made_on_use = true;
  REQUIRE(open.Commit(made).kind == Kind::kWon);
  SemaphoreRow row = LoadOne(open, "s").row;
  REQUIRE(row.made_on_use);
  SECTION("until it is changed") {
    const bool lasts = GENERATE(true, false);
    Transaction resized = Begin(open);
    auto& delta = Touch(resized, row);
    delta.after->limit = 9;
    delta.after->made_on_use = !lasts;
    REQUIRE(open.Commit(resized).kind == Kind::kWon);
    CHECK(LoadOne(open, "s").row.limit == 9);
    CHECK(LoadOne(open, "s").row.made_on_use == !lasts);
  }
  SECTION("while it is only used") {
    Transaction grant = Grant(open, row, MakeLease(open, 1));
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
    CHECK(LoadOne(open, "s").row.made_on_use);
  }
}

TEST_CASE("postgres tickets: people see them", "[postgres]") {
  TestSchema schema;
  Client sql = schema.Connect();
  OpenStore open = Open(schema);
  Make(open, "s");
  const auto ticket = MakeTicket(1);
  ticket->reasons = {{1, "first", 1}, {2, "last", 2}};
  const LeasePtr lease = MakeLease(open, 7);
  Put(open, "s", {MakeTicket(2)});
  Transaction batch = Begin(open);
  auto& delta = Touch(batch, LoadOne(open, "s").row);
  Add(&delta, Assigned(*ticket, lease->id), "bytes");
  delta.leases.push_back({nullptr, lease, EndCause::kNone});
  REQUIRE(open.Commit(batch).kind == Kind::kWon);
  const pqxx::result work = sql.Run(
      "SELECT ticket, state, holder, last_reason, convert_from(payload, 'UTF8') FROM "
      "semaphored.work ORDER BY queue_order");
  REQUIRE(work.size() == 2);
  CHECK(ReadId(work[0][0].c_str()) == ticket->id);
  CHECK(work[0][1].as<std::string>() == "assigned");
  CHECK(work[0][2].as<std::string>() == "holder");
  CHECK(work[0][3].as<std::string>() == "last");
  CHECK(work[0][4].as<std::string>() == "bytes");
  CHECK(work[1][1].as<std::string>() == "queued");
  CHECK(work[1][2].is_null());
}

}  // namespace
}  // namespace semaphored::postgres
