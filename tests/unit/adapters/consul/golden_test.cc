// What is under a prefix in Consul, key by key, but for documents and their pages; and the version beside it.
#include "tests/unit/adapters/golden.h"

#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/request_block.h"
#include "adapters/consul/ticket_row.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

using golden::CheckStored;

constexpr char kStoredBlock[] =
    R"({"version":1,"first":7,"rows":[[1,"AAAAAAAAAA8AAAAAAAAAEA","AAAAAAAAAAEAAAAAAAAAAg"],0,)"
    R"([5,"AAAAAAAAAA8AAAAAAAAAEA","",1,3,4,5,1]],"names":["team/db","s"],"closed":1})";

TEST_CASE("consul golden: a block of requests") {
  using State = ledger::RequestRow::State;
  RequestBlock block;
  block.rows[7] = {{0, 7, {}}, {15, 16}, State::kWaiting, "team/db", {1, 2}, {}, 0, 0, false};
  block.rows[9] = {{0, 9, {}}, {15, 16}, State::kDone, "s", {}, EndCause::kRevoked, 4, 5, true};
  block.closed = true;
  CheckStored(WriteRequestBlock(block), kStoredBlock);
  CHECK(ReadRequestBlock(kStoredBlock) == block);
  CHECK(ReadRequestBlock(absl::StrReplaceAll(kStoredBlock, {{"\"version\":1", "\"version\":2"}}))
            .garbled);
}

constexpr char kStoredTicket[] =
    R"({"version":1,"state":2,"priority":-10,"order":14,"attempt":3,"max_attempts":4,)"
    R"("back_off":[1000,200,300000],"delay_ms":8000,"delays":9,"host":[10,11],"lease":"",)"
    R"("content_type":"text/plain","payload_bytes":3,"trace":"00-46-47-01","owner":"team-a",)"
    R"("reasons":[[2,"no",1700000000000]],"enqueued":1700000000001})";

TEST_CASE("consul golden: a ticket") {
  const Ticket ticket = golden::FullTicket();
  CheckStored(WriteTicket(ticket), kStoredTicket);
  CHECK(*ReadTicket(ticket.id, kStoredTicket).value() == ticket);
  const std::string newer =
      absl::StrReplaceAll(kStoredTicket, {{"\"version\":1", "\"version\":2"}});
  CHECK(std::string(ReadTicket(ticket.id, newer).status().message()).find("another version") !=
        std::string::npos);
}

TEST_CASE("consul golden: keys") {
  INFO(golden::kHelp);
  const Keys keys("p");
  const Id id{1, 2};
  const std::string hex = id.Hex();
  CHECK(keys.Document("team/db") == "p/.semaphored/d/team/db!");
  CHECK(keys.Page("team/db", 255) == "p/.semaphored/w/team/db!00000000000000ff");
  CHECK(keys.Ticket("team/db", id) == "p/.semaphored/t/team/db!" + hex);
  CHECK(keys.Payload("team/db", id) == "p/.semaphored/p/team/db!" + hex);
  CHECK(keys.Session(id) == "p/.semaphored/s/" + hex);
  CHECK(keys.Index(id, "team/db") == "p/.semaphored/i/" + hex + "/team/db!");
  CHECK(keys.RequestBlock("a b", 255) == "p/.semaphored/q/a%20b/00000000000000ff");
  CHECK(keys.RequestFloor("a b") == "p/.semaphored/q/a%20b/floor");
  CHECK(keys.OneShots() == "p/.semaphored/q/%01");
  CHECK(keys.Lane(9, 1) == "p/.semaphored/l/9/1");
  CHECK(keys.Node("a") == "p/.semaphored/n/a");
  CHECK(keys.Heartbeat(9) == "p/.semaphored/h/9");
  CHECK(keys.HighestNode() == "p/.semaphored/number");
  CHECK(keys.MailBox(9) == "p/.semaphored/m/9/.box");
  CHECK(keys.Mail(9, "team/db") == "p/.semaphored/m/9/team/db!");
  CHECK(keys.Version() == "p/.semaphored/version");
  CHECK(keys.Lock("team/db") == "p/team/db/.lock");
}

TEST_CASE("consul golden: a node, a session and a change notice", "[consul]") {
  const TestPrefix prefix;
  const Keys keys = prefix.keys();
  OpenStore open = Open(prefix);
  const NodeStore::Node node = open.engine->nodes().Observe().value().at(0);
  CheckStored(prefix.Value(keys.Node(node.node_id)),
              R"({"id":")" + node.node_id +
                  R"(","number":1,"incarnation":1,"dead":false,"stopped":false,"daemon":""})");
  CheckStored(prefix.Value(keys.Heartbeat(1)), "1");
  CheckStored(prefix.Value(keys.HighestNode()), "1");
  const SemaphoreRow row = Make(open, "s");
  CheckStored(prefix.Value(keys.Lane(1, 0)), "1");

  ledger::Transaction transaction = Grant(open, row, MakeLease(open, 1));
  auto session = std::make_shared<Session>(golden::FullSession());
  session->host = open.self;
  transaction.new_clients.push_back({7, "c"});
  transaction.sessions.push_back({nullptr, session});
  transaction.concerns.emplace_back(2, "s");
  REQUIRE(open.Commit(transaction).kind == ledger::CommitResult::Kind::kWon);
  CheckStored(prefix.Value(keys.Session(session->id)), R"(["c",1,1,5,30000,1,"host",1,"team-a"])");
  CheckStored(prefix.Value(keys.Mail(2, "s")), std::to_string(transaction.semaphores[0].revision));

  prefix.Put(
      keys.Node("other"),
      R"({"id":"other","number":2,"incarnation":3,"dead":false,"stopped":true,"daemon":"{}"})");
  prefix.Put(keys.Heartbeat(2), "5");
  prefix.Put(keys.Session({0, 9}), R"(["c",2,3,4,1000,0,"h",0,""])");
  const NodeStore::Node other = open.engine->nodes().Observe().value().at(1);
  CHECK(other.ref == NodeRef{2, 3});
  CHECK((other.counter == 5 && other.stopped && !other.dead && other.daemon == "{}"));
  const auto read = open.store->LoadSession({0, 9}).value().session;
  REQUIRE(read);
  CHECK(read->host == NodeRef{2, 3});
  CHECK((read->epoch == 4 && read->ttl_ms == 1000 && read->holder == "h"));
}

TEST_CASE("consul golden: the first daemon writes the version, and a newer one is refused",
          "[consul]") {
  const TestPrefix prefix;
  REQUIRE(OpenEngine(prefix.UrlText()).ok());
  CheckStored(prefix.Value(prefix.keys().Version()), "1");
  REQUIRE(OpenEngine(prefix.UrlText()).ok());
  prefix.Put(prefix.keys().Version(), "2");
  const absl::Status refused = OpenEngine(prefix.UrlText()).status();
  CHECK(refused.code() == absl::StatusCode::kUnimplemented);
  CHECK(std::string(refused.message()).find("has version 2, made by a newer semaphored") !=
        std::string::npos);
  CHECK(prefix.Tree(prefix.keys().prefix()).size() == 1);
  prefix.Put(prefix.keys().Version(), "two");
  CHECK(absl::IsDataLoss(OpenEngine(prefix.UrlText()).status()));
}

}  // namespace
}  // namespace semaphored::consul
