// Tickets beside daemons that do not know of them: whatever those do, no ticket is lost or held by
// nobody. What version 1 said is kept in postgres_version1, and never changes.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/matchers/catch_matchers_string.hpp"
#include "tests/unit/adapters/postgres/fixture.h"
#include "tests/unit/adapters/postgres/ticket_rows.h"
#include "tests/unit/postgres_version1_daemon.h"

namespace semaphored::postgres {
namespace {

using ledger::LoadedSemaphore;
using ledger::Transaction;
using Kind = ledger::CommitResult::Kind;
using Catch::Matchers::ContainsSubstring;

// On "s", which a daemon of version 1 made: its lease on slot 1, a ticket that is carried out under
// one on slot 2, a ticket that waits, and an offer.
struct Mixed {
  OldDatabase database;
  Version1Daemon& old = *database.old;
  OpenStore open = Open(database.schema, {.node_id = "new"});
  LeasePtr lease = MakeLease(open, 7, 2);
  TicketPtr ticket = Assigned(*MakeTicket(1), lease->id);

  Mixed() {
    Transaction batch = Begin(open);
    auto& delta = Touch(batch, LoadOne(open, "s").row);
    Add(&delta, ticket, "payload");
    Add(&delta, Delayed(*MakeTicket(2), open.self, 1000), "payload");
    delta.leases.push_back({nullptr, lease, EndCause::kNone});
    delta.waiters.push_back({nullptr, MakeOffer(open, 8), EndCause::kNone});
    delta.after->next_order = 9;
    REQUIRE(open.Commit(batch).kind == Kind::kWon);
  }
  // As a daemon of version 1 writes a semaphore's row; kind 2: it is destroyed.
  std::string Write(int kind, const std::string& numbers) {
    Version1Arguments arguments = {{"s_name", "{s}"},
                                   {"s_revision", absl::StrCat("{", old.Load("s").revision, "}")},
                                   {"s_kind", absl::StrCat("{", kind, "}")},
                                   {"s_next_order", "{10}"}};
    if (kind == 1) {
      arguments["w_name"] = "{s}";
      arguments["w_number"] = numbers;
    }
    return old.Commit(arguments);
  }
};

TEST_CASE("postgres tickets upgrade: an older daemon goes on, and sees nothing of tickets",
          "[postgres]") {
  Mixed mixed;
  CHECK(mixed.database.other.Number("SELECT oldest_daemon FROM semaphored.store") == 1);
  const View view = mixed.old.Load("s");
  CHECK(view.slots ==
        std::map<int64_t, std::string>{{1, mixed.database.held.Hex()}, {2, mixed.lease->id.Hex()}});
  for (const auto& row : mixed.old.Run("load", {"{s}"})) CHECK(*row[0].c_str() != 'w');
  REQUIRE(mixed.old.Grant("s", view.revision, MakeId(50), 3, "", 0).empty());
  REQUIRE(mixed.old.Release("s", mixed.old.Load("s").revision, MakeId(50).Hex(), 3).empty());
  const LoadedSemaphore loaded = LoadOne(mixed.open, "s");
  CHECK(*FindTicket(loaded, 1) == *mixed.ticket);
  CHECK(FindTicket(loaded, 2)->state == TicketState::kDelayed);
  CHECK(loaded.waiters.size() == 1);
  CHECK(loaded.leases.size() == 2);
}

TEST_CASE("postgres tickets upgrade: a ticket whose lease an older daemon ends is given back",
          "[postgres]") {
  Mixed mixed;
  REQUIRE(mixed.old.Release("s", mixed.old.Load("s").revision, mixed.lease->id.Hex(), 2).empty());
  const LoadedSemaphore loaded = LoadOne(mixed.open, "s");
  const TicketPtr ticket = FindTicket(loaded, 1);
  CHECK(ticket->state == TicketState::kQueued);
  CHECK(ticket->attempt == 1);
  REQUIRE(ticket->reasons.size() == 1);
  // It is carried out after all.
  const LeasePtr lease = MakeLease(mixed.open, 9, 2);
  Transaction batch = Begin(mixed.open);
  auto& delta = Touch(batch, loaded.row);
  delta.tickets.push_back({ticket, Assigned(*ticket, lease->id), nullptr});
  delta.leases.push_back({nullptr, lease, EndCause::kNone});
  REQUIRE(mixed.open.Commit(batch).kind == Kind::kWon);
  CHECK(FindTicket(LoadOne(mixed.open, "s"), 1)->attempt == 2);
}

TEST_CASE("postgres tickets upgrade: an older daemon destroys no semaphore with tickets",
          "[postgres]") {
  Mixed mixed;
  const LoadedSemaphore before = LoadOne(mixed.open, "s");
  SECTION("by force") { CHECK_THROWS_WITH(mixed.Write(2, ""), ContainsSubstring("has tickets")); }
  SECTION("when its holders have gone") {
    CHECK_THROWS_WITH(mixed.Write(1, "{3,0,0,30000,0,0,0,1,1000}"),
                      ContainsSubstring("has tickets"));
  }
  const LoadedSemaphore after = LoadOne(mixed.open, "s");
  CHECK(after.row == before.row);
  CHECK(after.tickets.size() == 2);
  // Its lane goes on.
  REQUIRE(mixed.Write(1, "{2,0,0,30000,0,0,0,0,1000}").empty());
  CHECK(LoadOne(mixed.open, "s").row.limit == 2);
}

TEST_CASE("postgres tickets upgrade: with its semaphore an offer goes", "[postgres]") {
  Mixed mixed;
  Transaction batch = Begin(mixed.open);
  const LoadedSemaphore loaded = LoadOne(mixed.open, "s");
  auto& delta = Touch(batch, loaded.row);
  for (const TicketPtr& ticket : loaded.tickets)
    delta.tickets.push_back({ticket, nullptr, nullptr});
  delta.leases.push_back({loaded.leases.at(0), nullptr, EndCause::kRevoked});
  delta.leases.push_back({loaded.leases.at(1), nullptr, EndCause::kRevoked});
  REQUIRE(mixed.open.Commit(batch).kind == Kind::kWon);
  REQUIRE(mixed.Write(2, "").empty());
  CHECK(mixed.database.other.Number("SELECT count(*) FROM semaphored.offers") == 0);
  // Made anew, it is another one.
  REQUIRE(mixed.old.Create("s", 1).empty());
  const LoadedSemaphore anew = LoadOne(mixed.open, "s");
  CHECK(anew.tickets.empty());
  CHECK(anew.waiters.empty());
}

TEST_CASE("postgres tickets upgrade: of a session that an older daemon closed no offer is left",
          "[postgres]") {
  Mixed mixed;
  auto session = std::make_shared<Session>();
  session->id = MakeId(5);
  session->host = mixed.open.self;
  Transaction batch = Begin(mixed.open);
  Touch(batch, LoadOne(mixed.open, "s").row)
      .waiters.push_back({nullptr, MakeOffer(mixed.open, 20, session->id), EndCause::kNone});
  batch.sessions.push_back({nullptr, session});
  REQUIRE(mixed.open.Commit(batch).kind == Kind::kWon);
  CHECK(LoadOne(mixed.open, "s").waiters.size() == 2);
  REQUIRE(mixed.old.Commit({{"x_id", "{" + session->id.Hex() + "}"}}).empty());
  CHECK(LoadOne(mixed.open, "s").waiters.size() == 1);
  // The first look of a daemon's life takes it out.
  REQUIRE(mixed.open.store->Wait(std::chrono::steady_clock::now()).ok());
  CHECK(mixed.database.other.Number("SELECT count(*) FROM semaphored.offers") == 1);
}

}  // namespace
}  // namespace semaphored::postgres
