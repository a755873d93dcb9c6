// What is under a prefix in Consul, key by key, and the version beside it.
#include "tests/unit/adapters/golden.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "adapters/consul/format.h"
#include "adapters/consul/keys.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

using golden::CheckStored;

const std::string kStoredClient = "client";
const std::string& StoredNameOf(uint32_t number) {
  static const std::string kNone;
  return number == 7 ? kStoredClient : kNone;
}
uint32_t StoredNumberOf(const std::string& name) { return name == kStoredClient ? 7 : 0; }

constexpr char kStoredDocument[] =
    R"({"version":1,"limit":3,"next_order":15,"created_at_unix_ms":1700000000000,)"
    R"("settings":{"backfill":true,"longest_hold_ms":1000,"recall_grace_ms":2000,)"
    R"("permits_per_holder":2,"waiters_max":50},"paused":true,"made_on_use":true,)"
    R"("intentions":"do","owner":"team-a","changes":4,"places":["s1","s2"],"tickets":5,)"
    R"("delays":[[10,11]],"bound":{"columns":["lease","host","sessions"],"rows":[)"
    R"(["00000000000000010000000000000002",[9,10],["s1"]],["",[9,11],["s2"]]]},)"
    R"("leases":{"columns":["id","session","client","sequence","one_shot","fingerprint",)"
    R"("host","epoch","permits","priority","ttl_ms","order","holder","owner","slots","token",)"
    R"("ordinal","granted_at_unix_ms","recall","recall_grace_ms","moved_from","ticket",)"
    R"("attempt"],"rows":[["00000000000000010000000000000002",)"
    R"("00000000000000030000000000000004","client",8,"","000000000000000f0000000000000010",)"
    R"([9,10],11,6,-1000,86400000,14,"host","team-a",[1,2,3,7,9,10],77,0,1700000000000,)"
    R"("shrunk",30000,17,"000000000000000c000000000000000d",14]]},)"
    R"("waiters":{"columns":["id","session","client","sequence","one_shot","fingerprint",)"
    R"("host","epoch","permits","priority","ttl_ms","order","holder","owner",)"
    R"("queued_at_unix_ms","works"],"rows":[["00000000000000010000000000000002",)"
    R"("00000000000000010000000000000002","",0,"00000000000000150000000000000016",)"
    R"("000000000000000f0000000000000010",[9,10],11,6,-1000,86400000,14,"host","team-a",)"
    R"(1700000000000,true]]},"pages":{"columns":["page","gone"],"rows":[[96,[0,5]]]}})";

Document FullDocument() {
  Document document;
  document.row = golden::FullRow();
  document.row.revision = 104;  // The key was made at 100.
  document.changes = 4;
  document.places = {"s1", "s2"};
  document.ticket_count = 5;
  document.delays = {{10, 11}};
  const LeasePtr lease = golden::FullLease();
  document.bound[lease->id] = {{9, 10}, {"s1"}};
  document.spares = {{{9, 11}, {"s2"}}};
  document.leases[lease->id] = lease;
  const WaiterPtr offer = golden::FullOffer();
  document.waiters[offer->id] = offer;
  document.pages[96].gone = {0, 5};
  return document;
}

// Each field has a value of its own, so what is read and written again is what was read.
TEST_CASE("consul golden: a document") {
  const Document document = FullDocument();
  CheckStored(WriteDocument(document, StoredNameOf, {}), kStoredDocument);
  const Document read = ReadDocument("team/db", kStoredDocument, 100, 500, StoredNumberOf).value();
  CHECK(read.row == document.row);
  CHECK((read.bound == document.bound && read.spares == document.spares));
  CheckStored(WriteDocument(read, StoredNameOf, {}), kStoredDocument);
  // A flag that is false is left out.
  Document destroyed = FullDocument();
  destroyed.row.destroying = true;
  CheckStored(WriteDocument(destroyed, StoredNameOf, {}),
              absl::StrReplaceAll(kStoredDocument,
                                  {{R"("paused":true,)", R"("paused":true,"destroying":true,)"}}));
  const std::string newer =
      absl::StrReplaceAll(kStoredDocument, {{"\"version\":1", "\"version\":2"}});
  CHECK(absl::IsDataLoss(ReadDocument("team/db", newer, 100, 500, StoredNumberOf).status()));
}

TEST_CASE("consul golden: a lease that is granted by the commit that writes it") {
  Document document;
  const LeasePtr lease = golden::FullLease();
  lease->token = 0;
  document.leases[lease->id] = lease;
  const std::string text = WriteDocument(document, StoredNameOf, {{lease->id, 2}});
  INFO(golden::kHelp);
  CHECK(text.find(R"([1,2,3,7,9,10],0,2,1700000000000)") != std::string::npos);
  const Document read = ReadDocument("s", text, 100, 500, StoredNumberOf).value();
  CHECK(read.leases.at(lease->id)->token == (uint64_t{500} << 16 | 2));
}

constexpr char kStoredPage[] =
    R"({"version":1,"waiters":{"columns":["id","session","client","sequence","one_shot",)"
    R"("fingerprint","host","epoch","permits","priority","ttl_ms","order","holder","owner",)"
    R"("queued_at_unix_ms","works"],"rows":[["00000000000000010000000000000002",)"
    R"("00000000000000030000000000000004","client",8,"","000000000000000f0000000000000010",)"
    R"([9,10],11,6,-1000,86400000,14,"host","team-a",1700000000001,false]]}})";

TEST_CASE("consul golden: a page of waiters") {
  auto waiter = std::make_shared<Waiter>();
  golden::FillClaim(waiter.get());
  waiter->queued_at_unix_ms = 1'700'000'000'001;
  CheckStored(WritePage({&waiter, 1}, StoredNameOf), kStoredPage);
  const std::vector<WaiterPtr> read = ReadPage("s", kStoredPage, StoredNumberOf).value();
  CheckStored(WritePage(read, StoredNameOf), kStoredPage);
  CHECK(read.at(0)->request == waiter->request);
}

constexpr char kStoredBlock[] =
    R"({"version":1,"closed":true,"requests":{"columns":["sequence","state","fingerprint",)"
    R"("claim","semaphore","cause","number","remaining","changed"],"rows":[)"
    R"([7,"waiting","000000000000000f0000000000000010","00000000000000010000000000000002",)"
    R"("team/db","",0,0,false],)"
    R"([9,"done","000000000000000f0000000000000010","","s","revoked",4,5,true]]}})";

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
    R"({"version":1,"state":"delayed","priority":-10,"order":14,"attempt":3,"max_attempts":4,)"
    R"("back_off":{"initial_ms":1000,"multiplier_percent":200,"max_ms":300000},"delay_ms":8000,)"
    R"("delays":9,"host":[10,11],"lease":"","content_type":"text/plain","payload_bytes":3,)"
    R"("trace":"00-46-47-01","owner":"team-a",)"
    R"("reasons":[{"attempt":2,"text":"no","at_unix_ms":1700000000000}],)"
    R"("enqueued_at_unix_ms":1700000000001})";

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
  CHECK(keys.NoticeBox(9) == "p/.semaphored/m/9/.box");
  CHECK(keys.Notices(9, "team/db") == "p/.semaphored/m/9/team/db!");
  CHECK(keys.Version() == "p/.semaphored/version");
  CHECK(keys.Lock("team/db") == "p/team/db/.lock");
}

TEST_CASE("consul golden: a node, a session and a change notice", "[consul]") {
  const TestPrefix prefix;
  const Keys keys = prefix.keys();
  OpenStore open = Open(prefix);
  const NodeStore::Node node = open.engine->nodes().Observe().value().at(0);
  CheckStored(prefix.Value(keys.Node(node.node_id)),
              R"({"version":1,"id":")" + node.node_id +
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
  CheckStored(prefix.Value(keys.Session(session->id)),
              R"({"version":1,"client":"c","host":[1,1],"epoch":5,"ttl_ms":30000,)"
              R"("release_on_disconnect":true,"closing":true,"holder":"host","owner":"team-a"})");
  CheckStored(prefix.Value(keys.Notices(2, "s")),
              std::to_string(transaction.semaphores[0].revision));

  prefix.Put(
      keys.Node("other"),
      R"({"version":1,"id":"other","number":2,"incarnation":3,"dead":false,"stopped":true,"daemon":"{}"})");
  prefix.Put(keys.Heartbeat(2), "5");
  prefix.Put(keys.Session({0, 9}),
             R"({"version":1,"client":"c","host":[2,3],"epoch":4,"ttl_ms":1000,)"
             R"("release_on_disconnect":false,"closing":false,"holder":"h","owner":""})");
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

TEST_CASE(
    "consul golden: a daemon ends at its next heartbeat when the store has become a newer one",
    "[consul]") {
  const TestPrefix prefix;
  const OpenStore open = Open(prefix);
  CHECK(open.engine->nodes().Heartbeat().ok());
  // A person's copy of the version says nothing.
  prefix.Put(prefix.keys().Version() + ".old", "1");
  prefix.Put(prefix.keys().Version(), "2");
  const absl::Status newer = open.engine->nodes().Heartbeat();
  // That is what ends a daemon.
  CHECK(absl::IsFailedPrecondition(newer));
  CHECK(std::string(newer.message()).find("has version 2, made by a newer semaphored") !=
        std::string::npos);
}

}  // namespace
}  // namespace semaphored::consul
