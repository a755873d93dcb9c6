// Tickets by the rules over DynamoDB: what they cost, how a worker of another daemon hears of one,
// and what is more than one transaction takes.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/lane.h"

namespace semaphored::dynamodb {
namespace {

using Result = FinishCommand::Result;

void Make(OneLane* lane, uint32_t limit) {
  REQUIRE(lane->Administer(AdminCreate{limit, {}}).kind == OutcomeKind::kDone);
}

void OpenSession(OneLane* lane, const Id& session) {
  OpenSessionCommand open;
  open.session = session;
  open.client_id = "worker";
  open.ttl_ms = 10'000;
  REQUIRE(lane->Run(open).kind == OutcomeKind::kDone);
}

// Dead letters with numbers from `first`, one after the other.
void Kill(OneLane* lane, uint64_t first, uint64_t count) {
  constexpr uint64_t kAtOnce = 50;
  for (uint64_t at = first; at < first + count; at += kAtOnce) {
    std::vector<Command> commands;
    for (uint64_t i = at; i < std::min(at + kAtOnce, first + count); ++i)
      commands.push_back(lane->Job(i, "payload"));
    for (uint64_t i = at; i < std::min(at + kAtOnce, first + count); ++i) {
      commands.push_back(lane->Offer(1'000'000 + i));
      commands.push_back(lane->Finish(1'000'000 + i, Result::kReject));
    }
    for (const Outcome& outcome : lane->RunAll(std::move(commands)))
      REQUIRE((outcome.kind == OutcomeKind::kEnqueued || outcome.kind == OutcomeKind::kGranted ||
               outcome.kind == OutcomeKind::kReleased));
  }
}

// docs/dynamodb.md, "Cost".
TEST_CASE("dynamodb tickets: in, assigned and done are one write request each", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OneLane lane(table, "a", proxy.endpoint());
  Make(&lane, 2);
  const Id session = MakeId(7);
  OpenSession(&lane, session);
  const auto cycle = [&](uint64_t number, std::vector<size_t>* items) {
    const auto counted = [&](Command command) {
      proxy.Take();
      const Outcome outcome = lane.Run(std::move(command));
      const DynamoProxy::Counted seen = proxy.Take();
      const auto writes = seen.requests.find("TransactWriteItems");
      REQUIRE(writes != seen.requests.end());
      CHECK(writes->second == 1);
      items->push_back(seen.items);
      return outcome.kind;
    };
    CHECK(counted(lane.Job(number, "payload")) == OutcomeKind::kEnqueued);
    CHECK(counted(lane.Offer(number + 500, session)) == OutcomeKind::kGranted);
    CHECK(counted(lane.Finish(number + 500, Result::kDone)) == OutcomeKind::kReleased);
  };
  std::vector<size_t> first;
  cycle(100, &first);  // Where the session has claims is written once.
  std::vector<size_t> items;
  cycle(101, &items);
  // Lane, head, ticket, payload, answer; lane, head, ticket, lease, session; lane, head, ticket,
  // payload, lease, history, answer.
  CHECK(items == std::vector<size_t>{5, 5, 7});
  // A worker that stands ready gets it in the commit that brings it.
  REQUIRE(lane.Run(lane.Offer(900, session)).kind == OutcomeKind::kQueued);
  proxy.Take();
  REQUIRE(lane.Run(lane.Job(102, "payload")).kind == OutcomeKind::kEnqueued);
  const DynamoProxy::Counted seen = proxy.Take();
  CHECK(seen.requests.at("TransactWriteItems") == 1);
  CHECK(seen.requests.at("BatchGetItem") == 1);  // The payload.
  // Lane, head, ticket, payload, answer; the offer, the lease, the session.
  CHECK(seen.items == 8);
  CHECK(lane.payloads[MakeId(900)] == "payload");
  // Done, and ready again: what is done costs seven, the offer two more.
  std::vector<Command> both;
  both.push_back(lane.Finish(900, Result::kDone));
  both.push_back(lane.Offer(901, session));
  proxy.Take();
  const std::vector<Outcome> outcomes = lane.RunAll(std::move(both));
  CHECK(outcomes[0].kind == OutcomeKind::kReleased);
  CHECK(outcomes[1].kind == OutcomeKind::kQueued);
  CHECK(proxy.Take().items == 9);
}

TEST_CASE("dynamodb tickets: a worker of another daemon gets what is enqueued here", "[dynamodb]") {
  StoreTable table;
  OneLane a(table, "a");
  OneLane b(table, "b");
  Make(&a, 1);
  const Id session = MakeId(7);
  OpenSession(&b, session);
  REQUIRE(b.Run(b.Offer(900, session)).kind == OutcomeKind::kQueued);
  const Outcome enqueued = a.Run(a.Job(100, "for b"));
  CHECK(enqueued.kind == OutcomeKind::kEnqueued);
  CHECK(enqueued.position() == 0);
  b.Await(Event::Kind::kGranted, 1);
  CHECK(b.claims[Event::Kind::kGranted] == std::vector<Id>{MakeId(900)});
  CHECK(b.payloads[MakeId(900)] == "for b");
  CHECK(a.payloads.empty());
  // And the next one, while it is at work, when it is done.
  REQUIRE(b.Run(b.Offer(901, session)).kind == OutcomeKind::kQueued);
  CHECK(a.Run(a.Job(101, "second")).position() == 1);
  REQUIRE(b.Run(b.Finish(900, Result::kDone)).kind == OutcomeKind::kReleased);
  b.Await(Event::Kind::kGranted, 2);
  CHECK(b.payloads[MakeId(901)] == "second");
  CHECK(a.Describe().tickets == TicketCounts{0, 0, 1, 0});
}

TEST_CASE("dynamodb tickets: a session is loaded alone when it takes what another lane hosts",
          "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OneLane a(table, "a");
  const Id session = MakeId(7);
  OpenSession(&a, session);
  Make(&a, 1);
  AcquireCommand elsewhere = a.Ask(1, "elsewhere", false);
  elsewhere.session = session;
  elsewhere.limit = 1;
  REQUIRE(a.Run(elsewhere).kind == OutcomeKind::kGranted);
  REQUIRE(a.Run(a.Job(100, "payload")).kind == OutcomeKind::kEnqueued);
  OneLane b(table, "b", proxy.endpoint());
  bool asked_elsewhere = false;
  proxy.OnRequest([&](DynamoProxy::Passing* passing) {
    asked_elsewhere =
        asked_elsewhere || passing->body.dump().find("SEMAPHORE#elsewhere") != std::string::npos;
  });
  REQUIRE(b.Run(b.Offer(900, session)).kind == OutcomeKind::kGranted);
  CHECK_FALSE(asked_elsewhere);
}

TEST_CASE("dynamodb tickets: large ones that come together are taken in in parts", "[dynamodb]") {
  constexpr uint64_t kMany = 80;
  StoreTable table;
  OneLane lane(table, "a");
  Make(&lane, 1);
  std::vector<Command> commands;
  for (uint64_t i = 0; i < kMany; ++i)
    commands.push_back(lane.Job(100 + i, std::string(65'536, static_cast<char>('0' + i % 10))));
  for (const Outcome& outcome : lane.RunAll(std::move(commands)))
    REQUIRE(outcome.kind == OutcomeKind::kEnqueued);
  CHECK(lane.Describe().tickets.queued == kMany);
  const Outcome shown = lane.Administer(AdminShowTicket{MakeId(100 + kMany - 1)});
  REQUIRE(shown.kind == OutcomeKind::kDone);
  CHECK(*shown.report->tickets.at(0).payload == std::string(65'536, '9'));
}

TEST_CASE("dynamodb tickets: very many dead letters are requeued, purged, and go with a destroy",
          "[dynamodb]") {
  constexpr uint64_t kMany = 300;
  StoreTable table;
  OneLane lane(table, "a");
  Make(&lane, 1);
  Kill(&lane, 1000, kMany);
  REQUIRE(lane.Describe().tickets == TicketCounts{0, 0, 0, kMany});
  const Outcome requeued = lane.Administer(AdminRequeue{}, "admin");
  CHECK(requeued.kind == OutcomeKind::kDone);
  CHECK(requeued.affected() == kMany);
  CHECK(lane.Describe().tickets == TicketCounts{kMany, 0, 0, 0});
  // Repeated it is answered, and not done.
  Kill(&lane, 2000, 1);
  CHECK(lane.Administer(AdminRequeue{}, "admin").kind == OutcomeKind::kDone);
  CHECK(lane.Describe().tickets.dead == 1);
  const Outcome refused = lane.Administer(AdminDestroy{DestroyPolicy::kWait});
  CHECK(refused.kind == OutcomeKind::kInUse);
  CHECK(lane.Administer(AdminDestroy{DestroyPolicy::kForce}).kind == OutcomeKind::kDone);
  CHECK(table.Items(PartitionOf("s")).empty());
  CHECK(table.Items(PayloadKey("s", MakeId(1000)).partition).empty());
  Make(&lane, 1);
  Kill(&lane, 3000, 150);
  CHECK(lane.Administer(AdminPurge{}).affected() == 150);
  CHECK(lane.Describe().tickets == TicketCounts());
  CHECK(table.Items(PayloadKey("s", MakeId(3000)).partition).empty());
}

TEST_CASE("dynamodb tickets: a limit of payloads that do not fit an item is refused at the start",
          "[dynamodb]") {
  StoreTable table;
  const std::unique_ptr<Engine> engine =
      OpenEngine(
          absl::StrCat("dynamodb://local/", table.url().table, "?endpoint=", table.url().endpoint))
          .value();
  ledger::LedgerOptions options;
  options.self = engine->nodes().Join("a").value();
  options.now = [] { return SteadyClock::now(); };
  options.now_unix_ms = [] { return int64_t{0}; };
  options.limits.payload_bytes_max = 384'001;
  const absl::Status status = engine->OpenLane(options).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).find("payload_bytes_max") != std::string::npos);
  options.limits.payload_bytes_max = 384'000;
  CHECK(engine->OpenLane(options).ok());
}

}  // namespace
}  // namespace semaphored::dynamodb
