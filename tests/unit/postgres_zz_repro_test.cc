#include <chrono>
#include <string>
#include <vector>
#include <iostream>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "adapters/ledger/postgres/url.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/postgres_fixture.h"
#include "tests/unit/postgres_relay.h"

namespace semaphored::postgres {
namespace {
using ledger::CommitResult;
using ledger::Transaction;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Kind = CommitResult::Kind;

TEST_CASE("repro D1 parts", "[repro]") {
  TestSchema schema; Client other = schema.Connect();
  StoreOptions options; options.history_rows = 0; options.prune_interval = milliseconds(0);
  OpenStore open = Open(schema, {.store = options});
  Make(open, "s");
  const LeasePtr wide = MakeLease(open, 1, 1); wide->slots = {1, 2}; wide->permits = 2;
  Transaction t = Grant(open, LoadOne(open, "s").row, wide);
  REQUIRE(open.Commit(t).kind == Kind::kWon);
  const LeasePtr less = std::make_shared<Lease>(*wide); less->slots = {1}; less->permits = 1;
  t = Begin(open);
  Touch(t, LoadOne(open, "s").row).leases.push_back({wide, less, EndCause::kNone});
  REQUIRE(open.Commit(t).kind == Kind::kWon);
  t = Begin(open);
  Touch(t, LoadOne(open, "s").row).leases.push_back({less, nullptr, EndCause::kReleased});
  t.history.push_back({0, "s", less, 5, EndCause::kReleased});
  REQUIRE(open.Commit(t).kind == Kind::kWon);
  for (int i = 0; i < 5; ++i) REQUIRE(open.store->Wait(steady_clock::now()).ok());
  CHECK(other.Number("SELECT count(*) FROM semaphored.leases") == 0);
}
TEST_CASE("repro D2 passwords", "[repro]") {
  const std::string url = GENERATE("postgres://user:se?secret@host.invalid/db", "postgres://user:se?secret=x@host.invalid/db",
                                   "postgres://user:se@secret@host.invalid/db",
                                   "postgres://user@host.invalid/db?password=se&secret",
                                   "postgres://user:se@secret:5432@host.invalid/db",
                                   "postgres://user:secret@host.invalid:secre t/db");
  const absl::Status status = OpenEngine(url).status();
  std::cout << url << " -> " << status << "\n";
  CHECK_FALSE(absl::StrContains(status.message(), "secret"));
}
TEST_CASE("repro D3 order", "[repro]") {
  TestSchema schema; Client other = schema.Connect();
  StoreOptions options; options.history_rows = 0; options.prune_interval = milliseconds(0);
  OpenStore open = Open(schema, {.store = options});
  const auto add = [&](int number) { other.Run(absl::StrCat("INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, permits, holder, session, node, incarnation, epoch, ttl_ms, priority, queue_order, created_at, completed_at, end_cause, history_number) SELECT 's', 1, 'd', gen_random_uuid(), 1, 1, 'h', gen_random_uuid(), 1, 1, 1, 1000, 0, 1, now(), now(), 1, ", number)); };
  other.Run("SELECT setval('semaphored.history_numbers', 10)");
  for (int n : {1, 2, 4, 5}) add(n);  // 3 is drawn by a commit that is still under way
  for (int i = 0; i < 3; ++i) REQUIRE(open.store->Wait(steady_clock::now()).ok());
  add(3);
  for (int i = 0; i < 3; ++i) REQUIRE(open.store->Wait(steady_clock::now()).ok());
  CHECK(other.Number("SELECT count(*) FROM semaphored.leases") == 0);
}
TEST_CASE("repro D3b age", "[repro]") {
  TestSchema schema; Client other = schema.Connect();
  StoreOptions options; options.history_age_ms = 60000; options.prune_interval = milliseconds(0);
  OpenStore open = Open(schema, {.store = options});
  const auto add = [&](int number, int seconds) { other.Run(absl::StrCat("INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, permits, holder, session, node, incarnation, epoch, ttl_ms, priority, queue_order, created_at, completed_at, end_cause, history_number) SELECT 's', 1, 'd', gen_random_uuid(), 1, 1, 'h', gen_random_uuid(), 1, 1, 1, 1000, 0, 1, now(), now() - interval '", seconds, " seconds', 1, ", number)); };
  other.Run("SELECT setval('semaphored.history_numbers', 10)");
  add(1, 58); add(2, 70);  // daemons' clocks differ
  REQUIRE(open.store->Wait(steady_clock::now()).ok());
  CHECK(other.Number("SELECT count(*) FROM semaphored.leases") == 1);
  other.Run("UPDATE semaphored.leases SET completed_at = now() - interval '2 minutes'");
  for (int i = 0; i < 3; ++i) REQUIRE(open.store->Wait(steady_clock::now()).ok());
  CHECK(other.Number("SELECT count(*) FROM semaphored.leases") == 0);
}
TEST_CASE("repro D5 dropped lane", "[repro]") {
  TestSchema schema; Relay relay(schema.port());
  OpenStore open = Open(schema, {.port = relay.port(), .timeout = milliseconds(300)});
  const SemaphoreRow row = Make(open, "s");
  Transaction t = Grant(open, row, MakeLease(open, 1));
  relay.LoseAnswers();
  REQUIRE(open.Commit(t).kind == Kind::kUnknown);
  for (int i = 0; i < 2; ++i) Open(schema);
  CHECK(open.Settle(t).kind == Kind::kWon);
  for (int i = 0; i < 2; ++i) Open(schema);
  CHECK(open.Settle(t).kind != Kind::kFailed);
}
TEST_CASE("repro D8 busy at the lock", "[repro]") {
  TestSchema schema; Client holder = schema.Connect(); OpenStore open = Open(schema);
  const SemaphoreRow a = Make(open, "a"); const SemaphoreRow b = Make(open, "b");
  holder.Run("UPDATE semaphored.semaphores SET revision = revision + 1 WHERE name = 'a'");
  holder.Run("BEGIN"); holder.Run("SELECT 1 FROM semaphored.semaphores WHERE name = 'b' FOR UPDATE");
  Transaction t = Grant(open, a, MakeLease(open, 1));
  Touch(t, b).leases.push_back({nullptr, MakeLease(open, 2), EndCause::kNone});
  t.attempt = 3;
  const auto start = steady_clock::now();
  CommitResult r = open.Commit(t);
  std::cout << "kind " << (int)r.kind << " " << r.status << " busy " << r.busy.size() << " ms " << (steady_clock::now()-start)/milliseconds(1) << "\n";
  CHECK(r.kind == Kind::kFailed);
  CHECK(r.busy == std::vector<std::string>{"b"});
}
TEST_CASE("repro D6 busy at insert", "[repro]") {
  TestSchema schema; Client holder = schema.Connect(); OpenStore open = Open(schema);
  holder.Run("BEGIN"); holder.Run("INSERT INTO semaphored.semaphores (name, permits, revision) VALUES ('n', 1, 1)");
  Transaction t = Create(open, "n");
  CommitResult r = open.Commit(t);
  std::cout << "kind " << (int)r.kind << " " << r.status << " busy " << r.busy.size() << "\n";
  CHECK(r.busy == std::vector<std::string>{"n"});
}
TEST_CASE("repro two rivals busy", "[repro]") {
  TestSchema schema; Client holder = schema.Connect(); OpenStore open = Open(schema);
  const SemaphoreRow a = Make(open, "a"); const SemaphoreRow b = Make(open, "b");
  holder.Run("BEGIN"); holder.Run("SELECT 1 FROM semaphored.semaphores WHERE name = 'b' FOR KEY SHARE");
  Transaction t = Grant(open, b, MakeLease(open, 1));
  CHECK(open.Commit(t).kind == Kind::kWon);
  holder.Run("ROLLBACK");
}
TEST_CASE("repro terminated idle wait", "[repro]") {
  TestSchema schema; Client other = schema.Connect(); OpenStore open = Open(schema);
  (void)open.store->TakeMissedHints();
  other.Run("SELECT pg_terminate_backend(" + std::to_string(open.connection->backend_pid()) + ")");
  const auto start = steady_clock::now();
  const auto w = open.store->Wait(steady_clock::now() + milliseconds(3000));
  std::cout << w.status() << " ms " << (steady_clock::now()-start)/milliseconds(1) << "\n";
  const auto w2 = open.store->Wait(steady_clock::now() + milliseconds(3000));
  std::cout << w2.status() << " missed " << open.store->TakeMissedHints() << "\n";
}
TEST_CASE("repro silent two hosts", "[repro]") {
  TestSchema schema; SilentListener a, b;
  const auto start = steady_clock::now();
  const auto s = OpenEngine(absl::StrCat("postgres://u:secret@127.0.0.1:", a.port(), ",127.0.0.1:", b.port(), "/db?timeout_ms=500")).status();
  std::cout << s << " ms " << (steady_clock::now()-start)/milliseconds(1) << "\n";
}
TEST_CASE("repro manage-schema held migration", "[repro]") {
  TestSchema schema; Client other = schema.Connect();
  { REQUIRE(OpenEngine(schema.Url()).ok()); }
  other.Run("DROP VIEW semaphored.holders; DROP VIEW semaphored.history; UPDATE semaphored.store SET version = 1");
  Client holder = schema.Connect();
  holder.Run(std::string("SELECT pg_advisory_lock(hashtext('semaphored'), hashtext('") + schema.name() + "'))");
  const auto start = steady_clock::now();
  const auto s = OpenEngine(schema.Url()).status();
  std::cout << s << " ms " << (steady_clock::now()-start)/milliseconds(1) << "\n";
}
TEST_CASE("repro D0 settle's own answer lost", "[repro]") {
  TestSchema schema; Relay relay(schema.port()); Client other = schema.Connect();
  OpenStore open = Open(schema, {.port = relay.port(), .timeout = milliseconds(300)});
  const SemaphoreRow row = Make(open, "s");
  const LeasePtr lease = MakeLease(open, 1);
  Transaction t = Grant(open, row, lease);
  relay.DelayRequests();
  REQUIRE(open.Commit(t).kind == Kind::kUnknown);
  other.Run("CREATE FUNCTION semaphored.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_sleep(0.6); RETURN NULL; END $$");
  other.Run("CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON semaphored.lanes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION semaphored.slow()");
  REQUIRE(open.Settle(t).kind == Kind::kUnknown);
  REQUIRE(Within10s([&] { return other.Number("SELECT commits FROM semaphored.lanes") == 2; }));
  const CommitResult r = open.Settle(t);
  CHECK(r.kind == Kind::kLost);
  std::cout << "kind " << (int)r.kind << " token " << lease->token << " rows " << other.Number("SELECT count(*) FROM semaphored.leases") << "\n";
}
TEST_CASE("repro D8b busy at the lock", "[repro]") {
  TestSchema schema; Client holder = schema.Connect(); OpenStore open = Open(schema);
  const SemaphoreRow a = Make(open, "a");
  holder.Run("UPDATE semaphored.semaphores SET revision = revision + 1");
  holder.Run("BEGIN"); holder.Run("SELECT 1 FROM semaphored.semaphores FOR UPDATE");
  Transaction t = Grant(open, a, MakeLease(open, 1)); t.attempt = 3;
  CommitResult r = open.Commit(t);
  CHECK(r.kind == Kind::kFailed);
  CHECK(r.busy == std::vector<std::string>{"a"});
}
TEST_CASE("repro D14 withheld in locked transaction", "[repro]") {
  TestSchema schema; Client other = schema.Connect(); OpenStore open = Open(schema);
  const SemaphoreRow stale = Make(open, "s");
  other.Run("UPDATE semaphored.store SET timeline = '000000FF', withheld_ms = 50");
  OpenStore next = Open(schema, {.node_id = "b"});
  REQUIRE(next.store->GrantsWithheld());
  other.Run("UPDATE semaphored.semaphores SET revision = revision + 1");
  Transaction t = Grant(next, stale, MakeLease(next, 1)); t.attempt = 3;
  REQUIRE(next.Commit(t).kind == Kind::kLost);
  REQUIRE(Within10s([&] { return !next.store->GrantsWithheld(); }));
  REQUIRE(next.store->Wait(steady_clock::now()).ok());
  CHECK(other.Number("SELECT withheld::int FROM semaphored.store") == 0);
}
TEST_CASE("repro D15 withheld counts what ended", "[repro]") {
  TestSchema schema; Client other = schema.Connect(); OpenStore open = Open(schema);
  Make(open, "s");
  const auto r = other.Run("SELECT claim FROM semaphored.claim('s', 'h', interval '7 days')");
  other.Run("SELECT semaphored.release('s', '" + r[0][0].as<std::string>() + "')");
  other.Run("UPDATE semaphored.store SET timeline = '000000FF', withheld_ms = 50");
  OpenStore next = Open(schema, {.node_id = "b"});
  CHECK(Within10s([&] { return !next.store->GrantsWithheld(); }));
}
}
}
