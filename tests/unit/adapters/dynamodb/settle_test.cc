// Commits to DynamoDB whose answer is lost, or that are refused: what became of them is found out,
// and those that had not arrived never will.
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"
#include "tests/unit/relay.h"

namespace semaphored::dynamodb {
namespace {

using ledger::CommitResult;
using ledger::Transaction;
using std::chrono::milliseconds;
using Kind = CommitResult::Kind;

// Too short for a second attempt.
constexpr milliseconds kTimeout{1000};

// A store behind a relay, with a semaphore "s" at `row`.
struct Behind {
  StoreTable table;
  Relay relay{table.port()};
  OpenStore open;
  SemaphoreRow row;

  explicit Behind(milliseconds timeout = kTimeout)
      : open(Open(table, {.node_id = "a",
                          .endpoint = absl::StrCat("http://127.0.0.1:", relay.port()),
                          .timeout = timeout})),
        row(Make(open, "s")) {}

  Head Stored() { return ReadHead("s", table.Item(HeadKey("s"))); }
  json StoredLease(const Lease& lease) { return table.Item(LeaseKey("s", lease)); }
};

TEST_CASE("dynamodb: a commit whose answer was lost had landed", "[dynamodb]") {
  Behind behind;
  const LeasePtr lease = MakeLease(behind.open, 1);
  Transaction grant = Grant(behind.open, behind.row, lease);
  behind.relay.LoseAnswers();
  REQUIRE(behind.open.Commit(grant).kind == Kind::kUnknown);
  CHECK(lease->token == 0);
  behind.relay.CutClients();
  REQUIRE(behind.open.Settle(grant).kind == Kind::kWon);
  CHECK(lease->token != 0);
  CHECK(NumberIn(behind.StoredLease(*lease), "fencing_token") == lease->token);
  CHECK(behind.Stored().row.revision == behind.row.revision + 1);
  Transaction next = Grant(behind.open, After(grant), MakeLease(behind.open, 2, 2));
  CHECK(behind.open.Commit(next).kind == Kind::kWon);
}

TEST_CASE("dynamodb: with time left a lost answer is asked for again at once", "[dynamodb]") {
  Behind behind(milliseconds(4000));
  const LeasePtr lease = MakeLease(behind.open, 1);
  Transaction grant = Grant(behind.open, behind.row, lease);
  behind.relay.LoseAnswers();
  REQUIRE(behind.open.Commit(grant).kind == Kind::kWon);
  CHECK(behind.Stored().row.revision == behind.row.revision + 1);
}

TEST_CASE("dynamodb: a commit that had not arrived lands by settling, once", "[dynamodb]") {
  Behind behind;
  const LeasePtr lease = MakeLease(behind.open, 1);
  Transaction grant = Grant(behind.open, behind.row, lease);
  behind.relay.DelayRequests();
  REQUIRE(behind.open.Commit(grant).kind == Kind::kUnknown);
  CHECK(behind.StoredLease(*lease).is_null());
  REQUIRE(behind.open.Settle(grant).kind == Kind::kWon);
  CHECK(behind.Stored().row.revision == behind.row.revision + 1);
  REQUIRE(behind.relay.DeliverDelayed());
  CHECK(behind.Stored().row.revision == behind.row.revision + 1);
  Transaction next = Grant(behind.open, After(grant), MakeLease(behind.open, 2, 2));
  CHECK(behind.open.Commit(next).kind == Kind::kWon);
}

TEST_CASE("dynamodb: a commit that came too late is settled, and cannot land later", "[dynamodb]") {
  Behind behind;
  OpenStore other = Open(behind.table, {.node_id = "b"});
  const LeasePtr lease = MakeLease(behind.open, 1);
  Transaction grant = Grant(behind.open, behind.row, lease);
  behind.relay.DelayRequests();
  REQUIRE(behind.open.Commit(grant).kind == Kind::kUnknown);
  Transaction first = Touch(other, LoadOne(other, "s").row);
  REQUIRE(other.Commit(first).kind == Kind::kWon);
  const CommitResult settled = behind.open.Settle(grant);
  CHECK(settled.kind == Kind::kLost);
  CHECK(settled.stale == std::vector<std::string>{"s"});
  // Even if the semaphore came to stand as it stood.
  Head head = behind.Stored();
  head.row.revision = behind.row.revision;
  behind.table.Put(WriteHead(head));
  REQUIRE(behind.relay.DeliverDelayed());
  CHECK(behind.StoredLease(*lease).is_null());
  CHECK(behind.Stored().row.revision == behind.row.revision);
  Transaction again = Grant(behind.open, LoadOne(behind.open, "s").row, MakeLease(behind.open, 1));
  CHECK(behind.open.Commit(again).kind == Kind::kWon);
}

TEST_CASE("dynamodb: what landed is known when its token is forgotten", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint(), .timeout = kTimeout});
  const SemaphoreRow row = Make(open, "s");
  const LeasePtr lease = MakeLease(open, 1);
  Transaction grant = Grant(open, row, lease);
  // The answers are lost, and after that DynamoDB takes the request for another one.
  int writes = 0;
  proxy.OnRequest([&](DynamoProxy::Passing* passing) {
    if (passing->operation != "TransactWriteItems") return;
    passing->lose = true;
    passing->body["ClientRequestToken"] = absl::StrCat("number-", ++writes);
  });
  REQUIRE(open.Commit(grant).kind == Kind::kUnknown);
  const bool landed = GENERATE(true, false);
  if (!landed) {
    // Its number was used up by a settling whose own answer was lost.
    json lane = table.Item(LaneKey(open.self, 0));
    lane["commits"] = Number(NumberIn(lane, "commits") + 1);
    lane.erase("last");
    table.Put(lane);
  }
  proxy.OnRequest([&](DynamoProxy::Passing* passing) {
    if (passing->operation == "TransactWriteItems")
      passing->body["ClientRequestToken"] = absl::StrCat("number-", ++writes);
  });
  CHECK(open.Settle(grant).kind == (landed ? Kind::kWon : Kind::kLost));
  CHECK((lease->token != 0) == landed);
}

TEST_CASE("dynamodb: nothing of a node that was declared dead lands", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const SemaphoreRow row = Make(open, "s");
  NodeTable other(table.url(), TestCredentials());
  REQUIRE(other.Join("b").ok());
  const std::vector<NodeStore::Node> nodes = other.Observe().value();
  for (const NodeStore::Node& node : nodes) {
    if (node.ref == open.self) REQUIRE(other.DeclareDead(node).value_or(false));
  }
  Transaction grant = Grant(open, row, MakeLease(open, 1));
  const CommitResult result = open.Commit(grant);
  CHECK(result.kind == Kind::kFailed);
  CHECK(result.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(open.nodes->Heartbeat().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(table.Item(LeaseKey("s", *MakeLease(open, 1))).is_null());
}

TEST_CASE("dynamodb: nothing of a node whose id was taken lands", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const SemaphoreRow row = Make(open, "s");
  OpenStore next = Open(table);
  CHECK(next.self.number == open.self.number);
  CHECK(next.self.incarnation == open.self.incarnation + 1);
  Transaction grant = Grant(open, row, MakeLease(open, 1));
  CHECK(open.Commit(grant).status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(open.nodes->Heartbeat().code() == absl::StatusCode::kFailedPrecondition);
  Transaction theirs = Grant(next, LoadOne(next, "s").row, MakeLease(next, 1));
  CHECK(next.Commit(theirs).kind == Kind::kWon);
}

TEST_CASE("dynamodb: a heartbeat that others have seen saves a node", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  NodeTable other(table.url(), TestCredentials());
  REQUIRE(other.Join("b").ok());
  const NodeStore::Node seen = other.Observe().value().front();
  REQUIRE(seen.ref == open.self);
  REQUIRE(open.nodes->Heartbeat().ok());
  CHECK_FALSE(other.DeclareDead(seen).value());
  CHECK(open.nodes->Heartbeat().ok());
}

TEST_CASE("dynamodb: a heartbeat whose answer was lost is known as this daemon's own",
          "[dynamodb]") {
  StoreTable table;
  Relay relay{table.port()};
  NodeTable nodes(table.UrlThrough(absl::StrCat("http://127.0.0.1:", relay.port()), kTimeout),
                  TestCredentials());
  REQUIRE(nodes.Join("a").ok());
  const uint64_t counter = nodes.Observe().value().front().counter;
  relay.LoseAnswers();
  CHECK(nodes.Heartbeat().ok());
  CHECK(nodes.Observe().value().front().counter == counter + 2);
  CHECK(nodes.Heartbeat().ok());
}

TEST_CASE("dynamodb: a heartbeat that arrives late does not land", "[dynamodb]") {
  StoreTable table;
  Relay relay{table.port()};
  NodeTable nodes(table.UrlThrough(absl::StrCat("http://127.0.0.1:", relay.port()), kTimeout),
                  TestCredentials());
  REQUIRE(nodes.Join("a").ok());
  REQUIRE(nodes.Heartbeat().ok());
  relay.DelayRequests();
  CHECK(nodes.Heartbeat().ok());
  const uint64_t counter = nodes.Observe().value().front().counter;
  REQUIRE(relay.DeliverDelayed());
  CHECK(nodes.Observe().value().front().counter == counter);
  CHECK(nodes.Heartbeat().ok());
}

// ---- refusals ----

TEST_CASE("dynamodb: throttling and conflicts are waited for, and bounded", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open =
      Open(table, {.node_id = "a", .endpoint = proxy.endpoint(), .timeout = milliseconds(2000)});
  const SemaphoreRow row = Make(open, "s");
  int refused = 0;
  const int refusals = GENERATE(3, 1'000'000);
  proxy.OnRequest([&](DynamoProxy::Passing* passing) {
    if (passing->operation != "TransactWriteItems" || ++refused > refusals) return;
    passing->refuse = true;
    passing->error = "ThrottlingException";
  });
  Transaction grant = Grant(open, row, MakeLease(open, 1));
  const CommitResult result = open.Commit(grant);
  if (refusals == 3) {
    CHECK(result.kind == Kind::kWon);
  } else {
    CHECK(result.kind == Kind::kFailed);
    CHECK(result.status.code() == absl::StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace semaphored::dynamodb
