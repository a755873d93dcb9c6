// What a node hosts is found without a scan, and where it has nothing any more is forgotten.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"
#include "tests/unit/adapters/dynamodb/lane.h"
#include "tests/unit/relay.h"

namespace semaphored::dynamodb {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using Names = std::vector<std::string>;

struct Clock {
  SteadyTime now = SteadyTime{} + std::chrono::hours(1);
  std::function<SteadyTime()> function() {
    return [this] { return now; };
  }
};

// Lets the store look whether there is something to tidy up.
void Idle(OpenStore* open, Clock* clock, std::chrono::minutes time) {
  for (const std::chrono::minutes part : {time, std::chrono::minutes(0)}) {
    clock->now += part + std::chrono::minutes(1);
    open->store->Wake();
    REQUIRE(open->store->Wait(SteadyClock::now() + std::chrono::seconds(10)).ok());
  }
}

Names NamesAt(const StoreTable& table, NodeRef node) {
  Names names;
  for (const json& item : table.Items(HostPartition(node.number)))
    names.push_back(KeyOf(item).sort);
  return names;
}

void Release(OpenStore* open, const Transaction& grant) {
  const LeasePtr lease = grant.semaphores[0].leases[0].after;
  Transaction release = Touch(*open, After(grant));
  release.semaphores[0].leases.push_back({lease, nullptr, EndCause::kReleased});
  REQUIRE(open->Commit(release).kind == Kind::kWon);
}

TEST_CASE("dynamodb hosted: where a node has had nothing for long is forgotten", "[dynamodb]") {
  Clock clock;
  StoreTable table;
  OpenStore open = Open(table, {.node_id = "a", .now = clock.function()});
  Transaction grant = Grant(open, Make(open, "s"), MakeLease(open, 1));
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  CHECK(NamesAt(table, open.self) == Names{"AT#s"});
  Idle(&open, &clock, std::chrono::minutes(20));
  CHECK(NamesAt(table, open.self) == Names{"AT#s"});
  Release(&open, grant);
  Idle(&open, &clock, std::chrono::minutes(5));
  CHECK(NamesAt(table, open.self) == Names{"AT#s"});
  Idle(&open, &clock, std::chrono::minutes(20));
  CHECK(NamesAt(table, open.self).empty());
  Transaction again = Grant(open, LoadOne(open, "s").row, MakeLease(open, 2));
  REQUIRE(open.Commit(again).kind == Kind::kWon);
  CHECK(NamesAt(table, open.self) == Names{"AT#s"});
}

TEST_CASE("dynamodb hosted: what an earlier life has left is found until it is gone",
          "[dynamodb]") {
  Clock clock;
  StoreTable table;
  auto first = std::make_unique<OpenStore>(Open(table));
  Transaction stays = Grant(*first, Make(*first, "s"), MakeLease(*first, 1));
  REQUIRE(first->Commit(stays).kind == Kind::kWon);
  Transaction goes = Grant(*first, Make(*first, "t"), MakeLease(*first, 2));
  REQUIRE(first->Commit(goes).kind == Kind::kWon);
  Release(first.get(), goes);
  const NodeRef before = first->self;
  first.reset();

  OpenStore open = Open(table, {.node_id = "a", .now = clock.function()});
  CHECK(open.store->HostedBy({&before, 1})->semaphores == Names{"s", "t"});
  // Also after this life has had a claim there.
  LoadOne(open, "t");
  Transaction own = Grant(open, LoadOne(open, "s").row, MakeLease(open, 3, 2));
  REQUIRE(open.Commit(own).kind == Kind::kWon);
  Release(&open, own);
  Idle(&open, &clock, std::chrono::minutes(20));
  CHECK(NamesAt(table, open.self) == Names{"AT#s"});
  CHECK(open.store->HostedBy({&before, 1})->semaphores == Names{"s"});

  // Adopted by this life, it is this life's.
  const ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  REQUIRE(loaded.leases.size() == 1);
  auto adopted = std::make_shared<Lease>(*loaded.leases[0]);
  adopted->host = open.self;
  ++adopted->epoch;
  Transaction adopt = Touch(open, loaded.row);
  adopt.semaphores[0].leases.push_back({loaded.leases[0], adopted});
  REQUIRE(open.Commit(adopt).kind == Kind::kWon);
  Idle(&open, &clock, std::chrono::minutes(20));
  CHECK(NamesAt(table, open.self) == Names{"AT#s"});
}

// The leases of the node, read by the daemon of this id, and the requests that reading them took.
struct TakenOver {
  size_t leases = 0;
  uint64_t requests = 0;
};
TakenOver TakeOver(const StoreTable& table, const std::string& node_id, NodeRef dead) {
  TakenOver taken;
  Relay relay(table.port());
  OneLane heir(table, node_id, absl::StrCat("http://127.0.0.1:", relay.port()));
  OrphansCommand page{{dead}};
  do {
    const Outcome outcome = heir.Run(page);
    REQUIRE(outcome.kind == OutcomeKind::kDone);
    for (const Orphan& orphan : outcome.report->orphans) taken.leases += orphan.claims.size();
    page.after = outcome.report->next;
  } while (!page.after.empty());
  taken.requests = relay.http_requests();
  return taken;
}

// A start and its heartbeat are counted, too.
TEST_CASE("dynamodb hosted: a restart and a take-over ask 1.5 times for each semaphore, at most",
          "[dynamodb]") {
  StoreTable table;
  constexpr uint64_t kLeases = 600;
  NodeRef dead;
  {
    OneLane first(table, "first");
    dead = first.self();
    std::vector<Command> commands;
    for (uint64_t i = 1; i <= kLeases; ++i) {
      AcquireCommand acquire = first.Ask(i, absl::StrCat("held/", i), false);
      acquire.limit = 1;
      commands.emplace_back(std::move(acquire));
    }
    for (const Outcome& outcome : first.RunAll(std::move(commands)))
      REQUIRE(outcome.kind == OutcomeKind::kGranted);
  }
  for (const char* node_id : {"heir", "first"}) {
    const TakenOver taken = TakeOver(table, node_id, dead);
    std::printf("dynamodb: %s reads %zu leases of as many semaphores with %llu requests\n", node_id,
                taken.leases, static_cast<unsigned long long>(taken.requests));
    CHECK(taken.leases == kLeases);
    CHECK(taken.requests <= kLeases * 3 / 2);
  }
}

// tests/deep.sh has more than can be asked about within one time-out.
uint64_t SessionsOfTest() {
  const char* const count =
      std::getenv("SEMAPHORED_TEST_SESSIONS");  // NOLINT(concurrency-mt-unsafe)
  return count == nullptr ? 320 : static_cast<uint64_t>(std::atoi(count));
}

// The time-out is that of a page, not of all of them.
TEST_CASE("dynamodb hosted: the sessions of a daemon that had very many", "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  const uint64_t sessions = SessionsOfTest();
  constexpr uint64_t kAtOnce = 20;
  for (uint64_t first = 1; first <= sessions; first += kAtOnce) {
    Transaction open = Begin(a);
    for (uint64_t id = first; id < first + kAtOnce; ++id) {
      auto session = std::make_shared<Session>();
      session->id = MakeId(id);
      session->host = a.self;
      session->ttl_ms = 5'000;
      session->holder = "holder";
      open.sessions.push_back({nullptr, session});
    }
    REQUIRE(a.Commit(open).kind == Kind::kWon);
  }
  OpenStore b = Open(table, {.node_id = "b", .timeout = std::chrono::seconds(5)});
  const auto hosted = b.store->HostedBy({&a.self, 1});
  INFO(hosted.status().ToString());
  REQUIRE(hosted.ok());
  CHECK(hosted->sessions.size() == sessions);
}

TEST_CASE("dynamodb hosted: a session goes where its host is", "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  auto session = std::make_shared<Session>();
  session->id = MakeId(7);
  session->host = a.self;
  session->ttl_ms = 5'000;
  session->holder = "holder";
  Transaction open = Begin(a);
  open.sessions.push_back({nullptr, session});
  REQUIRE(a.Commit(open).kind == Kind::kWon);
  const LeasePtr lease = MakeLease(a, 1);
  lease->session = session->id;
  Transaction grant = Grant(a, Make(a, "s"), lease);
  grant.epochs.push_back({session->id, 1});
  REQUIRE(a.Commit(grant).kind == Kind::kWon);
  ledger::SharedStore::Hosted hosted = b.store->HostedBy({&a.self, 1}).value();
  CHECK(hosted.semaphores == Names{"s"});
  REQUIRE(hosted.sessions.size() == 1);
  CHECK(hosted.sessions[0]->holder == "holder");

  auto moved = std::make_shared<Session>(*session);
  moved->host = b.self;
  moved->epoch = 2;
  Transaction move = Begin(b);
  move.sessions.push_back({b.store->LoadSession(session->id)->session, moved});
  REQUIRE(b.Commit(move).kind == Kind::kWon);
  hosted = a.store->HostedBy({&a.self, 1}).value();
  CHECK(hosted.semaphores.empty());
  CHECK(hosted.sessions.empty());
  CHECK(a.store->HostedBy({&b.self, 1})->semaphores == Names{"s"});
  // What its old host has decided meanwhile cannot land.
  Transaction late = Grant(a, After(grant), MakeLease(a, 2, 2));
  late.epochs.push_back({session->id, 1});
  const ledger::CommitResult lost = a.Commit(late);
  CHECK(lost.kind == Kind::kLost);
  CHECK(lost.stale.empty());

  Transaction close = Begin(b);
  close.sessions.push_back({moved, nullptr});
  REQUIRE(b.Commit(close).kind == Kind::kWon);
  b.store->Wake();
  REQUIRE(b.store->Wait(SteadyClock::now() + std::chrono::seconds(10)).ok());
  CHECK(table.Items(SessionPartition(session->id)).empty());
  CHECK(b.store->LoadSession(session->id)->session == nullptr);
}

}  // namespace
}  // namespace semaphored::dynamodb
