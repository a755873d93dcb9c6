// What people do by hand to the keys of a semaphore, and what the Consul store makes of it.
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "adapters/consul/folder.h"
#include "adapters/consul/places.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;

// One permit each.
void Hold(OpenStore& open, const std::string& name, uint32_t count) {
  for (uint32_t i = 1; i <= count; ++i) {
    Transaction grant = Grant(open, LoadOne(open, name).row, MakeLease(open, i, i));
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
  }
}

void CheckAllReplaced(const TestPrefix& prefix, const LockRecord& before, const LockRecord& after) {
  CHECK(after.holders.size() == before.holders.size());
  for (const std::string& holder : after.holders) {
    CHECK_FALSE(before.holders.contains(holder));
    CHECK_FALSE(prefix.Tree(prefix.keys().Folder("s") + holder).empty());
  }
}

TEST_CASE("consul: a record that was removed is put back with our holders", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  Transaction grant = Grant(open, Make(open, "s", 2), MakeLease(open, 1));
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  const LockRecord before = Record(prefix, "s");
  prefix.Delete(prefix.keys().Lock("s"));
  SemaphoreRow row = LoadOne(open, "s").row;
  CHECK(row.revision == grant.semaphores[0].revision);
  CHECK(Record(prefix, "s") == before);
}

TEST_CASE("consul: a session that was ended by hand is replaced", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  const LeasePtr lease = MakeLease(open, 1);
  Transaction grant = Grant(open, Make(open, "s", 2), lease);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  const std::string place = *Record(prefix, "s").holders.begin();
  prefix.DestroySession(place);
  SemaphoreRow stale;
  stale.name = "s";
  stale.revision = grant.semaphores[0].revision;
  const SemaphoreRow* row = &stale;
  CHECK(open.store->Changed({&row, 1}).value() == std::vector<std::string>{"s"});
  CHECK(LoadOne(open, "s").leases.size() == 1);
  const LockRecord after = Record(prefix, "s");
  REQUIRE(after.holders.size() == 1);
  CHECK(*after.holders.begin() != place);
  CHECK(open.store->Changed({&row, 1}).value().empty());
  // Its token is what it was.
  CHECK(LoadOne(open, "s").leases[0]->token == lease->token);
}

TEST_CASE("consul: nothing is granted on a garbled record; it is written anew when asked for",
          "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  const LeasePtr lease = MakeLease(open, 1);
  Transaction grant = Grant(open, Make(open, "s", 3), lease);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  prefix.Put(prefix.keys().Lock("s"), "garbled");
  ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  uint32_t held = 0;
  for (const LeasePtr& each : loaded.leases) held += each->permits;
  CHECK(held == 3);
  CHECK_FALSE(open.store->WhyUnusable("s").ok());

  SECTION("not while foreign clients may hold") {
    ForeignClient foreign(&prefix, "s", 3);
    const std::optional<ledger::Pruned> pruned = open.store->Repair("s").value();
    CHECK(pruned.value().unresolved == 1);
    CHECK(prefix.Value(prefix.keys().Lock("s")) == "garbled");
  }
  SECTION("when there are none") {
    CHECK(open.store->Repair("s").value().value().unresolved == 0);
    CHECK(Record(prefix, "s").holders.size() == 1);
    CHECK(LoadOne(open, "s").leases.size() == 1);
    CHECK(open.store->WhyUnusable("s").ok());
  }
  SECTION("what is held can be given back") {
    Transaction release = Grant(open, loaded.row, MakeLease(open, 2));
    release.semaphores[0].leases = {{lease, nullptr, EndCause::kReleased}};
    REQUIRE(open.Commit(release).kind == Kind::kWon);
    CHECK(prefix.Value(prefix.keys().Lock("s")) == "garbled");
  }
}

TEST_CASE("consul: records that cannot be shared are refused by name", "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  const std::string name = "s";
  const auto why = [&] {
    REQUIRE(open.store->Load({&name, 1}).ok());
    return std::string(open.store->WhyUnusable(name).message());
  };
  prefix.Put(prefix.keys().Lock(name), "", kLockFlags);
  CHECK(why().find("another primitive") != std::string::npos);
  prefix.Put(prefix.keys().Lock(name), R"({"limit":3,"holders":[]})", 0);
  CHECK(why().find("holders as a list") != std::string::npos);
}

TEST_CASE("consul: all sessions are replaced at once, also when those to spare have ended",
          "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  Make(open, "s", 4);
  Hold(open, "s", 4);
  const LockRecord before = Record(prefix, "s");
  Client client(prefix.ParsedUrl());
  const Reply listed =
      client.Get(HttpTarget("/v1/session/node/", Places::NodeOf(prefix.ParsedUrl())));
  const nlohmann::json sessions = nlohmann::json::parse(listed.body);
  REQUIRE(sessions.size() > before.holders.size());
  for (const nlohmann::json& session : sessions) prefix.DestroySession(session["ID"]);
  CHECK(LoadOne(open, "s").leases.size() == 4);
  CheckAllReplaced(prefix, before, Record(prefix, "s"));
}

TEST_CASE("consul: the node of the sessions is made anew when somebody has removed it",
          "[consul]") {
  TestPrefix prefix;
  OpenStore open = Open(prefix);
  Make(open, "s", 3);
  Hold(open, "s", 2);
  const LockRecord before = Record(prefix, "s");
  Client client(prefix.ParsedUrl());
  const std::string node = Places::NodeOf(prefix.ParsedUrl());
  REQUIRE(client.Put("/v1/catalog/deregister", "{\"Node\":\"" + node + "\"}").http_status == 200);
  CHECK(LoadOne(open, "s").leases.size() == 2);
  CheckAllReplaced(prefix, before, Record(prefix, "s"));
}

// Foreign clients may write any limit, and another program garble the record.
TEST_CASE("consul folder: what is withheld of a semaphore takes no room, however large it is") {
  Folder folder;
  folder.document.row.limit = 2'000'000'000;
  const auto lease = std::make_shared<Lease>();
  lease->id = lease->session = {1, 1};
  lease->slots = {1, 5};
  lease->permits = 2;
  folder.document.leases.emplace(lease->id, lease);
  folder.trouble = absl::DataLossError("garbled");
  const ledger::LoadedSemaphore loaded = ToLoaded(folder);
  REQUIRE(loaded.leases.size() == 2);
  const Lease& withheld = *loaded.leases.back();
  CHECK(withheld.permits == 1'999'999'998);
  const auto runs = withheld.slots.runs();
  REQUIRE(runs.size() == 2);
  CHECK(runs[0] == Slots::Run{2, 4});
  CHECK(runs[1] == Slots::Run{6, 2'000'000'000});
}

}  // namespace
}  // namespace semaphored::consul
