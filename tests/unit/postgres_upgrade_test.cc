// A database that daemons of version 1 have made and still use: today's daemons migrate it and go
// on beside them. What version 1 said is kept in postgres_version1, and never changes.
#include <algorithm>
#include <future>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "adapters/postgres/schema.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "catch2/matchers/catch_matchers_string.hpp"
#include "tests/unit/adapters/postgres/fixture.h"
#include "tests/unit/postgres_version1_daemon.h"

namespace semaphored::postgres {
namespace {

using ledger::CommitResult;
using ledger::Transaction;
using Kind = CommitResult::Kind;

TEST_CASE("postgres upgrade: what version 1 wrote is there, and it goes on beside us",
          "[postgres]") {
  OldDatabase database;
  Version1Daemon& old = *database.old;
  OpenStore open = Open(database.schema, {.node_id = "new"});
  CHECK(database.Version() == kSchemaVersion);
  CHECK(database.other.Number("SELECT oldest_daemon FROM semaphored.store") == 1);

  const ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  CHECK(loaded.row.limit == 3);
  CHECK(loaded.row.settings == Settings());
  REQUIRE(loaded.leases.size() == 1);
  CHECK(loaded.leases[0]->id == database.held);
  CHECK(loaded.leases[0]->slots == Slots{1});
  CHECK(static_cast<int64_t>(loaded.leases[0]->token) == database.token);
  CHECK(loaded.leases[0]->request.sequence == 5);
  const auto answer = open.store->FindAnswer({1, 5}, "client").value();
  REQUIRE(answer);
  CHECK(answer->claim == database.held);
  // What version 2 added.
  const pqxx::result holders = database.other.Run("SELECT slot, through FROM semaphored.holders");
  REQUIRE(holders.size() == 1);
  CHECK(holders[0][1].as<std::string>() == "old");

  // The new one grants; the old one's stale commit is refused.
  const View stale = old.Load("s");
  const LeasePtr ours = MakeLease(open, 2, 2);
  Transaction grant = Grant(open, loaded.row, ours);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  CHECK(static_cast<int64_t>(ours->token) > database.token);
  CHECK(old.Changed("s", stale.revision) == std::vector<std::string>{"s"});
  CHECK(old.Grant("s", stale.revision, MakeId(3), 3, "", 0) == "SM002");
  CHECK(LoadOne(open, "s").leases.size() == 2);

  // The old one reads and grants; the new one's stale commit is refused.
  const SemaphoreRow ours_stale = LoadOne(open, "s").row;
  const View view = old.Load("s");
  CHECK(view.slots ==
        std::map<int64_t, std::string>{{1, database.held.Hex()}, {2, ours->id.Hex()}});
  REQUIRE(old.Grant("s", view.revision, MakeId(3), 3, "", 0).empty());
  CHECK(old.last_token() > static_cast<int64_t>(ours->token));
  Transaction late = Grant(open, ours_stale, MakeLease(open, 4, 3));
  const CommitResult lost = open.Commit(late);
  CHECK(lost.kind == Kind::kLost);
  CHECK(lost.stale == std::vector<std::string>{"s"});
  CHECK(LoadOne(open, "s").leases.size() == 3);

  // Even a lie about a slot of the other's is refused.
  Transaction lie = Grant(open, LoadOne(open, "s").row, MakeLease(open, 5, 3));
  CHECK(open.Commit(lie).kind == Kind::kFailed);
  CHECK_THROWS_AS(old.Grant("s", old.Load("s").revision, MakeId(6), 2, "", 0),
                  pqxx::unique_violation);

  // A lost answer is settled on either side.
  CHECK(old.Settle());
  CHECK(old.Release("s", old.Load("s").revision, database.held.Hex(), 1).empty());
  CHECK(open.store->ReadHistory("s", 0, 10).value().size() == 1);
}

TEST_CASE("postgres upgrade: either takes over what the other leaves behind", "[postgres]") {
  OldDatabase database;
  OpenStore open = Open(database.schema, {.node_id = "new"});
  DeclareDead(database.schema, LoadOne(open, "s").leases.at(0)->host);
  // It can write nothing from here on, and what it held is found.
  CHECK(database.old->Grant("s", database.old->Load("s").revision, MakeId(2), 2, "", 0) == "SM001");
  const ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  const NodeRef dead[] = {loaded.leases[0]->host};
  CHECK(open.store->HostedBy(dead).value().semaphores == std::vector<std::string>{"s"});
  Transaction end = Begin(open);
  Touch(end, loaded.row).leases.push_back({loaded.leases[0], nullptr, EndCause::kExpired});
  end.history.push_back({0, "s", loaded.leases[0], 5, EndCause::kExpired});
  REQUIRE(open.Commit(end).kind == Kind::kWon);
  // It comes again, as it would after a restart.
  Version1Daemon again(database.schema, "old");
  CHECK(again.Load("s").slots.empty());
  CHECK(again.Grant("s", again.Load("s").revision, MakeId(3), 1, "", 0).empty());
}

TEST_CASE("postgres upgrade: old and new on one semaphore never exceed its limit", "[postgres]") {
  OldDatabase database;
  Version1Daemon& old = *database.old;
  OpenStore open = Open(database.schema, {.node_id = "new"});
  std::mt19937 random(GENERATE(1, 2, 3));
  const auto chance = [&](uint32_t of) { return random() % of == 0; };
  View view = old.Load("s");
  ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  uint64_t next_claim = 100;
  int64_t revision = view.revision;
  std::map<int64_t, int64_t> tokens;  // The last one of each slot.
  int refused = 0;
  for (int step = 0; step < 150; ++step) {
    const bool old_acts = chance(2);
    // Mostly it has looked anew before it acts.
    if (!chance(3)) {
      if (old_acts)
        view = old.Load("s");
      else
        loaded = LoadOne(open, "s");
    }
    std::map<int64_t, std::string> slots = view.slots;
    if (!old_acts) {
      slots.clear();
      for (const LeasePtr& lease : loaded.leases) slots[lease->slots[0]] = lease->id.Hex();
    }
    const bool is_stale =
        (old_acts ? view.revision : static_cast<int64_t>(loaded.row.revision)) != revision;
    bool won = false;
    if (slots.size() < 3 && !(slots.size() > 1 && chance(3))) {
      int64_t slot = 1;
      while (slots.contains(slot)) ++slot;
      if (old_acts) {
        const std::string refusal =
            old.Grant("s", view.revision, MakeId(++next_claim), slot, "", 0);
        won = refusal.empty();
        if (!won) REQUIRE(refusal == "SM002");
      } else {
        Transaction grant =
            Grant(open, loaded.row, MakeLease(open, ++next_claim, static_cast<uint32_t>(slot)));
        const CommitResult result = open.Commit(grant);
        won = result.kind == Kind::kWon;
        if (!won) REQUIRE(result.kind == Kind::kLost);
      }
    } else {
      const auto& [slot, claim] = *std::next(slots.begin(), random() % slots.size());
      if (old_acts) {
        const std::string refusal = old.Release("s", view.revision, claim, slot);
        won = refusal.empty();
        if (!won) REQUIRE(refusal == "SM002");
      } else {
        const auto lease = *std::ranges::find(loaded.leases, claim,
                                              [](const LeasePtr& each) { return each->id.Hex(); });
        Transaction end = Begin(open);
        Touch(end, loaded.row).leases.push_back({lease, nullptr, EndCause::kReleased});
        end.history.push_back({0, "s", lease, 5, EndCause::kReleased});
        const CommitResult result = open.Commit(end);
        won = result.kind == Kind::kWon;
        if (!won) REQUIRE(result.kind == Kind::kLost);
      }
    }
    REQUIRE(won == !is_stale);
    if (won)
      ++revision;
    else
      ++refused;
    // What both are bound to, as a third one sees it.
    std::set<int64_t> live;
    for (const auto& row : database.other.Run("SELECT slot, token FROM semaphored.leases WHERE "
                                              "completed_at IS NULL AND timed_out_at IS NULL")) {
      const auto slot = row[0].as<int64_t>();
      REQUIRE(live.insert(slot).second);
      REQUIRE(row[1].as<int64_t>() >= tokens[slot]);
      tokens[slot] = row[1].as<int64_t>();
    }
    REQUIRE(live.size() <= 3);
    REQUIRE(database.other.Number("SELECT revision FROM semaphored.semaphores") == revision);
  }
  CHECK(refused > 10);
}

TEST_CASE("postgres upgrade: several daemons migrate at the same moment, under a running one",
          "[postgres]") {
  OldDatabase database;
  std::vector<std::future<absl::Status>> opened;
  for (int i = 0; i < 3; ++i) {
    opened.push_back(
        std::async(std::launch::async, [&] { return OpenEngine(database.schema.Url()).status(); }));
  }
  // Meanwhile it goes on.
  for (int i = 0; i < 20; ++i) {
    REQUIRE(
        database.old->Grant("s", database.old->Load("s").revision, MakeId(50), 2, "", 0).empty());
    REQUIRE(
        database.old->Release("s", database.old->Load("s").revision, MakeId(50).Hex(), 2).empty());
  }
  for (auto& each : opened) CHECK(each.get() == absl::OkStatus());
  CHECK(database.Version() == kSchemaVersion);
}

TEST_CASE("postgres upgrade: version 1 is left alone with manage_schema=no", "[postgres]") {
  OldDatabase database;
  const absl::Status refused = OpenEngine(database.schema.Url("&manage_schema=no")).status();
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.message()), Catch::Matchers::ContainsSubstring("has version 1"));
  CHECK(database.Version() == 1);
}

}  // namespace
}  // namespace semaphored::postgres
