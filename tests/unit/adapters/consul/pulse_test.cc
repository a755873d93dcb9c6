// Permits that end with a health check of their daemon (sessions=daemon), on a real server.
#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::consul {
namespace {

using ledger::CommitResult;
using ledger::Transaction;
using Kind = CommitResult::Kind;

constexpr std::chrono::seconds kBound{20};

template <typename Condition>
bool Within(Condition condition) {
  const auto deadline = SteadyClock::now() + kBound;
  while (!condition()) {
    if (SteadyClock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Two daemons on one prefix, and a semaphore "s".
struct Two {
  TestPrefix prefix;
  OpenStore a = OpenWithPulse(prefix, "a");
  OpenStore b = OpenWithPulse(prefix, "b");
  SemaphoreRow row = Make(a, "s");

  void Grant(OpenStore& by, const LeasePtr& lease) {
    Transaction grant = consul::Grant(by, LoadOne(by, "s").row, lease);
    REQUIRE(by.Commit(grant).kind == Kind::kWon);
  }

  LockRecord Record() {
    return ReadLockRecord(prefix.Value(prefix.keys().Lock("s")), kSemaphoreFlags).value();
  }

  // As when nobody has passed it in time.
  void FailCheckOf(const OpenStore& daemon) {
    const Url url = prefix.ParsedUrl();
    const size_t entries = prefix.Tree(prefix.keys().Folder("s")).size();
    Client client(url);
    REQUIRE(client.Put(HttpTarget("/v1/agent/check/fail/", Pulse::CheckOf(url, daemon.self)), "")
                .answered());
    REQUIRE(Within([&] { return prefix.Tree(prefix.keys().Folder("s")).size() < entries; }));
  }
};

TEST_CASE("consul: a permit ends with the health check of its daemon", "[consul]") {
  Two two;
  two.Grant(two.a, MakeLease(two.a, 1, 1));
  two.Grant(two.b, MakeLease(two.b, 2, 2));
  REQUIRE(two.Record().holders.size() == 2);
  const uint64_t revision = LoadOne(two.b, "s").row.revision;
  two.FailCheckOf(two.a);

  const ledger::LoadedSemaphore seen = LoadOne(two.b, "s");
  REQUIRE(seen.leases.size() == 1);
  CHECK(seen.leases[0]->id == MakeId(2));
  CHECK(seen.row.revision > revision);
  CHECK(two.Record().holders.size() == 1);
  // Its own daemon hears of it as well.
  SemaphoreRow known = two.row;
  known.revision = revision;
  const SemaphoreRow* const rows[] = {&known};
  CHECK(two.a.store->Changed(rows).value() == std::vector<std::string>{"s"});
  CHECK(LoadOne(two.a, "s").leases.size() == 1);
}

TEST_CASE("consul: a permit hangs on the daemon that its client is with, whoever granted it",
          "[consul]") {
  Two two;
  two.Grant(two.a, MakeLease(two.b, 1, 1));  // B's waiter was next.
  two.Grant(two.a, MakeLease(two.a, 2, 2));
  two.FailCheckOf(two.b);
  const ledger::LoadedSemaphore seen = LoadOne(two.a, "s");
  REQUIRE(seen.leases.size() == 1);
  CHECK(seen.leases[0]->id == MakeId(2));
}

TEST_CASE("consul: a permit whose client has moved hangs on the daemon that it is with now",
          "[consul]") {
  Two two;
  const LeasePtr before = MakeLease(two.a, 1);
  two.Grant(two.a, before);
  auto moved = std::make_shared<Lease>(*before);
  moved->host = two.b.self;
  ++moved->epoch;
  Transaction move = Begin(two.b);
  ledger::SemaphoreDelta& delta = move.semaphores.emplace_back();
  delta.name = "s";
  delta.before = LoadOne(two.b, "s").row;
  delta.after = delta.before;
  delta.leases.push_back({before, moved, EndCause::kNone});
  REQUIRE(two.b.Commit(move).kind == Kind::kWon);
  REQUIRE(two.Record().holders.size() == 1);

  Client client(two.prefix.ParsedUrl());
  REQUIRE(client
              .Put(HttpTarget("/v1/agent/check/fail/",
                              Pulse::CheckOf(two.prefix.ParsedUrl(), two.a.self)),
                   "")
              .answered());
  // When a session of A's has ended, all of them have.
  REQUIRE(Within([&] {
    const Reply sessions = client.Get("/v1/session/list?consistent");
    return sessions.body.find(absl::StrCat(two.prefix.prefix(), " ", two.a.self.number, ".")) ==
           std::string::npos;
  }));
  CHECK(LoadOne(two.b, "s").leases.size() == 1);
  CHECK(two.Record().holders.size() == 1);
}

TEST_CASE("consul: a permit of a daemon goes from hand to hand without foreign clients noticing",
          "[consul]") {
  Two two;
  const LeasePtr first = MakeLease(two.a, 1);
  two.Grant(two.a, first);
  const auto index = [&] {
    return two.prefix.Tree(two.prefix.keys().Lock("s")).front().modify_index;
  };
  const uint64_t before = index();
  Transaction pass = Grant(two.a, LoadOne(two.a, "s").row, MakeLease(two.a, 2));
  pass.semaphores[0].leases.push_back({first, nullptr, EndCause::kReleased});
  REQUIRE(two.a.Commit(pass).kind == Kind::kWon);
  CHECK(index() == before);
  CHECK(LoadOne(two.a, "s").leases.size() == 1);
}

TEST_CASE("consul: what is granted to a daemon that is gone hangs on the one that grants it",
          "[consul]") {
  Two two;
  const LeasePtr orphan = MakeLease(two.b, 1);
  two.b.store.reset();
  two.b.pulse.reset();
  two.Grant(two.a, orphan);
  CHECK(LoadOne(two.a, "s").leases.size() == 1);
  CHECK(two.Record().holders.size() == 1);
}

TEST_CASE("consul: nothing is granted or vouched for without the health check", "[consul]") {
  TestPrefix prefix;
  Relay relay(prefix.port());
  const Url url = prefix.ParsedUrl("?sessions=daemon&check_ttl_s=3&timeout_ms=1000", relay.port());
  const std::unique_ptr<Engine> engine = OpenEngine(prefix.UrlText()).value();
  const NodeRef self = engine->nodes().Join("a").value();
  Pulse pulse(url, self);
  REQUIRE(pulse.Start().ok());
  ConsulStore store(prefix.ParsedUrl("?sessions=daemon&check_ttl_s=3"), engine->guarantees(), self,
                    0, &pulse);
  REQUIRE(store.Start().ok());
  REQUIRE(store.Wait(SteadyClock::now()).ok());
  relay.LoseAllAnswers();
  REQUIRE(Within([&] { return !pulse.Check().ok(); }));
  CHECK(store.Wait(SteadyClock::now()).status().code() == absl::StatusCode::kUnavailable);
  Transaction nothing;
  nothing.node = self;
  CHECK(store.Commit(nothing, SteadyTime::max()).status.code() == absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace semaphored::consul
