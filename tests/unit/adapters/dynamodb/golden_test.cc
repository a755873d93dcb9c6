// What is in a table, item by item, and the version that stands beside it.
#include "tests/unit/adapters/golden.h"

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/dynamodb/items.h"
#include "adapters/dynamodb/notice_box.h"
#include "adapters/dynamodb/one_shots.h"
#include "adapters/dynamodb/request_rows.h"
#include "adapters/open.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"

namespace semaphored::dynamodb {
namespace {

using golden::CheckStored;

constexpr char kName[] = "team/db";
const std::string kStoredClient = "client";
const std::string& StoredNameOf(uint32_t number) {
  static const std::string kNone;
  return number == 7 ? kStoredClient : kNone;
}
uint32_t StoredNumberOf(const std::string& name) { return name == kStoredClient ? 7 : 0; }

constexpr char kHeadJson[] =
    R"({"PK":{"S":"SEMAPHORE#team/db"},"SK":{"S":"HEAD"},"backfill":{"BOOL":true},"crea)"
    R"(ted_at_unix_ms":{"N":"1700000000000"},"digest":{"N":"18446744073709551615"},"hel)"
    R"(d":{"N":"21"},"history_number":{"N":"20"},"intentions":{"S":"do"},"longest_hold_)"
    R"(ms":{"N":"1000"},"made_on_use":{"BOOL":true},"next_order":{"N":"15"},"offers":{")"
    R"(N":"23"},"owner":{"S":"team-a"},"paused":{"BOOL":true},"permits":{"N":"3"},"perm)"
    R"(its_per_holder":{"N":"2"},"recall_grace_ms":{"N":"2000"},"revision":{"N":"6"},"t)"
    R"(ickets_assigned":{"N":"26"},"tickets_dead":{"N":"27"},"tickets_delayed":{"N":"25)"
    R"("},"tickets_queued":{"N":"24"},"waiters_max":{"N":"50"},"waiting":{"N":"22"}})";
constexpr char kLeaseJson[] =
    R"({"PK":{"S":"SEMAPHORE#team/db"},"SK":{"S":"LEASE#000000000000000e#00000000000000)"
    R"(010000000000000002"},"attempt":{"N":"14"},"claim":{"S":"000000000000000100000000)"
    R"(00000002"},"client":{"S":"client"},"epoch":{"N":"11"},"fencing_token":{"N":"77"})"
    R"(,"fingerprint":{"S":"000000000000000f0000000000000010"},"granted_at_unix_ms":{"N)"
    R"(":"1700000000000"},"holder":{"S":"host"},"incarnation":{"N":"10"},"moved_from":{)"
    R"("N":"17"},"node":{"N":"9"},"owner":{"S":"team-a"},"permits":{"N":"6"},"priority")"
    R"(:{"N":"-1000"},"queue_order":{"N":"14"},"recall":{"N":"1"},"recall_grace_ms":{"N)"
    R"(":"30000"},"sequence":{"N":"8"},"session":{"S":"00000000000000030000000000000004)"
    R"("},"slots":{"S":"1-3,7,9-10"},"ticket":{"S":"000000000000000c000000000000000d"},)"
    R"("ttl_ms":{"N":"86400000"}})";
constexpr char kOfferJson[] =
    R"({"PK":{"S":"SEMAPHORE#team/db"},"SK":{"S":"OFFER#000000000000000e"},"claim":{"S")"
    R"(:"00000000000000010000000000000002"},"client":{"S":"\u00010000000000000015000000)"
    R"(0000000016"},"epoch":{"N":"11"},"fingerprint":{"S":"000000000000000f000000000000)"
    R"(0010"},"holder":{"S":"host"},"incarnation":{"N":"10"},"node":{"N":"9"},"owner":{)"
    R"("S":"team-a"},"permits":{"N":"6"},"priority":{"N":"-1000"},"queue_order":{"N":"1)"
    R"(4"},"queued_at_unix_ms":{"N":"1700000000000"},"ttl_ms":{"N":"86400000"},"works":)"
    R"({"BOOL":true}})";
constexpr char kWaiterJson[] =
    R"({"PK":{"S":"SEMAPHORE#team/db"},"SK":{"S":"QUEUE#800003e7#000000000000000e"},"cl)"
    R"(aim":{"S":"00000000000000010000000000000002"},"client":{"S":"\u00010000000000000)"
    R"(0150000000000000016"},"epoch":{"N":"11"},"fingerprint":{"S":"000000000000000f000)"
    R"(0000000000010"},"holder":{"S":"host"},"incarnation":{"N":"10"},"node":{"N":"9"},)"
    R"("owner":{"S":"team-a"},"permits":{"N":"6"},"priority":{"N":"-1000"},"queue_order)"
    R"(":{"N":"14"},"queued_at_unix_ms":{"N":"1700000000000"},"ttl_ms":{"N":"86400000"})"
    R"(})";
constexpr char kTicketJson[] =
    R"({"PK":{"S":"SEMAPHORE#team/db"},"SK":{"S":"QUEUE#80000009#000000000000000e"},"at)"
    R"(tempt":{"N":"3"},"back_off_initial_ms":{"N":"1000"},"back_off_max_ms":{"N":"3000)"
    R"(00"},"back_off_percent":{"N":"200"},"content_type":{"S":"text/plain"},"delay_ms")"
    R"(:{"N":"8000"},"delays":{"N":"9"},"enqueued_at_unix_ms":{"N":"1700000000001"},"in)"
    R"(carnation":{"N":"11"},"max_attempts":{"N":"4"},"node":{"N":"10"},"owner":{"S":"t)"
    R"(eam-a"},"payload_bytes":{"N":"3"},"priority":{"N":"-10"},"queue_order":{"N":"14")"
    R"(},"reasons":{"L":[{"M":{"at_unix_ms":{"N":"1700000000000"},"attempt":{"N":"2"},")"
    R"(text":{"S":"no"}}}]},"state":{"N":"2"},"ticket":{"S":"00000000000000010000000000)"
    R"(000002"},"trace":{"S":"00-46-47-01"}})";
constexpr char kPayloadJson[] =
    R"({"PK":{"S":"PAYLOAD#00000000000000010000000000000002"},"SK":{"S":"team/db"},"pay)"
    R"(load":{"B":"YWJj"}})";
constexpr char kSessionJson[] =
    R"({"PK":{"S":"SESSION#00000000000000010000000000000002"},"SK":{"S":"ROW"},"client")"
    R"(:{"S":"client"},"closing":{"BOOL":true},"epoch":{"N":"5"},"holder":{"S":"host"},)"
    R"("incarnation":{"N":"4"},"node":{"N":"3"},"owner":{"S":"team-a"},"release_on_disc)"
    R"(onnect":{"BOOL":true},"ttl_ms":{"N":"30000"}})";
constexpr char kNoticeJson[] =
    R"({"PK":{"S":"MAIL#9"},"SK":{"S":"team/db"},"expires_at_s":{"N":"1700086400"},"new)"
    R"(s":{"S":"{}"},"revision":{"N":"6"},"stamp":{"S":"9.10.0.5"}})";

// The same item, from what was read of it.
void CheckReadAgain(const char* stored, const std::function<json(const json& item)>& write_again) {
  CheckStored(write_again(json::parse(stored)).dump(), stored);
}

TEST_CASE("dynamodb golden: a head") {
  Head head;
  head.row = golden::FullRow();
  head.digest = 18'446'744'073'709'551'615u;
  head.history_number = 20;
  head.counts = {21, 22, 23, {24, 25, 26, 27}};
  CheckStored(WriteHead(head).dump(), kHeadJson);
  CheckReadAgain(kHeadJson, [](const json& item) { return WriteHead(ReadHead(kName, item)); });
  // A flag that is false is left out.
  head.row.destroying = true;
  json destroying = json::parse(kHeadJson);
  destroying["destroying"] = {{"BOOL", true}};
  CheckStored(WriteHead(head).dump(), destroying.dump());
}

TEST_CASE("dynamodb golden: leases, waiters and offers") {
  const LeasePtr lease = golden::FullLease();
  CheckStored(WriteLease(LeaseKey(kName, *lease), *lease, lease->token, StoredNameOf).dump(),
              kLeaseJson);
  CheckReadAgain(kLeaseJson, [](const json& item) {
    const LeasePtr read = ReadLease(item, StoredNumberOf);
    return WriteLease(KeyOf(item), *read, read->token, StoredNameOf);
  });
  const WaiterPtr offer = golden::FullOffer();
  CheckStored(WriteWaiter(WaiterKey(kName, *offer), *offer, StoredNameOf).dump(), kOfferJson);
  Waiter waiter = *offer;
  waiter.works = false;
  CheckStored(WriteWaiter(WaiterKey(kName, waiter), waiter, StoredNameOf).dump(), kWaiterJson);
  for (const char* stored : {kOfferJson, kWaiterJson}) {
    CheckReadAgain(stored, [](const json& item) {
      return WriteWaiter(KeyOf(item), *ReadWaiter(item, StoredNumberOf), StoredNameOf);
    });
  }
}

TEST_CASE("dynamodb golden: tickets, payloads and sessions") {
  const Ticket ticket = golden::FullTicket();
  CheckStored(WriteTicket(TicketKey(kName, ticket), ticket).dump(), kTicketJson);
  CHECK(*ReadTicket(json::parse(kTicketJson)) == ticket);
  CheckStored(WritePayload(PayloadKey(kName, ticket.id), "abc").dump(), kPayloadJson);
  CHECK(*ReadPayload(json::parse(kPayloadJson)) == "abc");
  CheckStored(WriteSession(golden::FullSession(), StoredNameOf).dump(), kSessionJson);
  CheckReadAgain(kSessionJson, [](const json& item) {
    return WriteSession(*ReadSession(item, StoredNumberOf), StoredNameOf);
  });
}

TEST_CASE("dynamodb golden: a change notice") {
  const StoredNotice notice{kName, 6, "{}", "9.10.0.5"};
  CheckStored(WriteNotice(9, notice, 1'700'086'400).dump(), kNoticeJson);
  CheckReadAgain(kNoticeJson, [](const json& item) {
    return WriteNotice(9, ReadNotice(item).value(), 1'700'086'400);
  });
}

TEST_CASE("dynamodb golden: digests and keys") {
  INFO(golden::kHelp);
  CHECK(DigestOf(*golden::FullLease(), 77) == 12'399'807'863'009'340'926u);
  CHECK(DigestOf(*golden::FullOffer()) == 4'466'167'171'507'513'515u);
  CHECK(DigestOf(golden::FullTicket()) == 5'027'306'696'807'904'721u);
  const auto text = [](const Key& key) { return absl::StrCat(key.partition, " ", key.sort); };
  const Id id{1, 2};
  const std::string hex = id.Hex();
  CHECK(text(NameKey(kName)) == "SEMAPHORE team/db");
  CHECK(text(HistoryKey(kName, 255)) == "HISTORY#team/db 00000000000000ff");
  CHECK(text(PastKey(kName)) == "HISTORY team/db");
  CHECK(text(SessionAtKey(id, kName)) == absl::StrCat("SESSION#", hex, " AT#team/db"));
  CHECK(text(HostedSessionKey(9, id)) == absl::StrCat("HOST#9 SESSION#", hex));
  CHECK(text(HostAtKey(9, kName)) == "HOST#9 AT#team/db");
  CHECK(text(RequestRowKey("client", 8)) == "REQUEST#client 0000000000000008");
  CHECK(text(OneShotKey({1, 255})) == "ONESHOT#ff 000000000000000100000000000000ff");
  CHECK(text(LaneKey({9, 10}, 1)) == "LANE#9 0000000a#00000001");
  CHECK(text(NodeKey("a")) == "NODE a");
  CHECK(text(StateKey()) == "STORE STATE");
  CHECK(text(GenerationKey()) == "STORE GENERATION");
  CHECK(text(FloorKey(77)) == "FLOOR 4d");
  CHECK(TokenOf(2, 3, 4) == 0x0200'0000'0000'c004u);
}

constexpr char kDoneJson[] =
    R"({"PK":{"S":"REQUEST#client"},"SK":{"S":"0000000000000008"},)"
    R"("asked_at_s":{"N":"1700000000"},"changed":{"BOOL":true},)"
    R"("claim":{"S":"00000000000000010000000000000002"},"expires_at_s":{"N":"1700086400"},)"
    R"("fingerprint":{"S":"000000000000000f0000000000000010"},"number":{"N":"4"},)"
    R"("remaining":{"N":"5"},"semaphore":{"S":"s"},"state":{"N":"5"}})";
constexpr char kOneShotJson[] =
    R"({"PK":{"S":"ONESHOT#16"},"SK":{"S":"00000000000000150000000000000016"},)"
    R"("asked_at_s":{"N":"1700000000"},"cause":{"N":"3"},)"
    R"("claim":{"S":"00000000000000010000000000000002"},)"
    R"("fingerprint":{"S":"000000000000000f0000000000000010"},"semaphore":{"S":"s"},)"
    R"("state":{"N":"3"},"written_by":{"S":"9.10.0"}})";

ledger::RequestChange StoredDone() {
  ledger::RequestChange done;
  done.row = {{7, 8, {}}, {15, 16}, ledger::RequestRow::State::kDone,
              "s",        {1, 2},   EndCause::kNone,
              4,          5,        true};
  return done;
}

TEST_CASE("dynamodb golden: requests") {
  RequestBook book({.table = "t",
                    .now_unix_ms = [] { return int64_t{1'700'000'000'000}; },
                    .written_by = "9.10.0"});
  const auto item_of = [&](const ledger::RequestChange& change) {
    const RequestBook::Write write = book.WriteOf("client", change);
    json item = ItemWith(write.key);
    for (const auto& [name, value] : write.change.set) item[name] = value;
    for (const auto& [name, value] : write.change.set_if_absent) item[name] = value;
    return item.dump();
  };
  CheckStored(item_of(StoredDone()), kDoneJson);
  ledger::RequestChange ended;
  ended.op = ledger::RequestChange::Op::kUpdate;
  ended.row = StoredDone().row;
  ended.row.request = {0, 0, {21, 22}};
  ended.row.state = ledger::RequestRow::State::kEnded;
  ended.row.cause = EndCause::kRevoked;
  ended.row.number = ended.row.remaining = 0;
  ended.row.changed = false;
  CheckStored(item_of(ended), kOneShotJson);
}

TEST_CASE("dynamodb golden: a request and a node as they stand in a table", "[dynamodb]") {
  const StoreTable table;
  OpenStore open = Open(table);
  table.Put(json::parse(kDoneJson));
  const ledger::NamedRequest asked{{7, 8, {}}, "client"};
  CHECK(open.store->FindRequests({&asked, 1}, 1024).value().at(0).row == StoredDone().row);
  CheckStored(table.Item(NodeKey("a")).dump(),
              R"({"PK":{"S":"NODE"},"SK":{"S":"a"},"beats":{"N":"1"},"incarnation":{"N":"1"},)"
              R"("lanes":{"N":"1"},"number":{"N":"1"}})");
  table.Put(json::parse(
      R"({"PK":{"S":"NODE"},"SK":{"S":"b"},"beats":{"N":"3"},"daemon":{"S":"{}"},)"
      R"("incarnation":{"N":"4"},"lanes":{"N":"1"},"number":{"N":"2"},"stopped":{"BOOL":true}})"));
  const std::vector<NodeStore::Node> nodes = open.nodes->Observe().value();
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[1].ref == NodeRef{2, 4});
  CHECK(nodes[1].counter == 3);
  CHECK(nodes[1].daemon == "{}");
  CHECK((nodes[1].stopped && !nodes[1].dead));
}

// Beside the rows: what a commit writes so that it can be found, and what is left of a lease that has ended.
TEST_CASE("dynamodb golden: the lane, the names, the indexes and the history of a commit",
          "[dynamodb]") {
  const StoreTable table;
  OpenStore open = Open(table, {.now_unix_ms = [] { return int64_t{1'700'000'000'000}; }});
  const SemaphoreRow row = Make(open, "s");
  auto session = std::make_shared<Session>(golden::FullSession());
  session->host = open.self;
  auto lease = std::make_shared<Lease>(*MakeLease(open, 1));
  lease->session = session->id;
  lease->epoch = session->epoch;
  ledger::Transaction grant = Grant(open, row, lease);
  grant.new_clients.push_back({7, "client"});
  grant.sessions.push_back({nullptr, session});
  // Only detached claims are found by their host.
  grant.semaphores[0].leases.push_back({nullptr, MakeLease(open, 2, 2), EndCause::kNone});
  REQUIRE(open.Commit(grant).kind == ledger::CommitResult::Kind::kWon);
  const auto without = [](json item, std::initializer_list<const char*> names) {
    for (const char* name : names) CHECK(item.erase(name) == 1);
    return item.dump();
  };
  // (The commit's own mark is another one each time.)
  CheckStored(without(table.Item(LaneKey(open.self, 0)), {"last"}),
              R"({"PK":{"S":"LANE#1"},"SK":{"S":"00000001#00000000"},"commits":{"N":"2"},)"
              R"("generation":{"N":"1700000000"}})");
  CheckStored(table.Item(NameKey("s")).dump(),
              R"({"PK":{"S":"SEMAPHORE"},"SK":{"S":"s"},"permits":{"N":"4"}})");
  CheckStored(table.Item(SessionAtKey(session->id, "s")).dump(),
              R"({"PK":{"S":"SESSION#00000000000000010000000000000002"},"SK":{"S":"AT#s"}})");
  CheckStored(table.Item(HostedSessionKey(1, session->id)).dump(),
              R"({"PK":{"S":"HOST#1"},"SK":{"S":"SESSION#00000000000000010000000000000002"}})");
  CheckStored(without(table.Item(HostAtKey(1, "s")), {"stamp"}),
              R"({"PK":{"S":"HOST#1"},"SK":{"S":"AT#s"}})");

  ledger::Transaction release = Touch(open, After(grant));
  release.semaphores[0].leases.push_back({lease, nullptr, EndCause::kRevoked});
  release.history.push_back({0, "s", lease, 1'700'000'000'500, EndCause::kRevoked});
  REQUIRE(open.Commit(release).kind == ledger::CommitResult::Kind::kWon);
  const std::vector<json> history = table.Items("HISTORY#s");
  REQUIRE(history.size() == 1);
  json of_lease = WriteLease({"HISTORY#s", history[0].at("SK").at("S").get<std::string>()}, *lease,
                             lease->token, StoredNameOf);
  of_lease["ended_at_unix_ms"] = Number(int64_t{1'700'000'000'500});
  of_lease["cause"] = Number(uint64_t{3});
  of_lease["expires_at_s"] = Number(uint64_t{1'700'000'000 + 7 * 24 * 3600});
  CheckStored(history[0].dump(), of_lease.dump());
}

std::string UrlOf(const StoreTable& table) {
  return absl::StrCat("dynamodb://local/", table.url().table, "?endpoint=", table.url().endpoint);
}

TEST_CASE("dynamodb golden: the first daemon writes the version, and a newer one is refused",
          "[dynamodb]") {
  const StoreTable table;
  REQUIRE(OpenEngine(UrlOf(table)).ok());
  CheckStored(table.Item(StateKey()).dump(),
              R"({"PK":{"S":"STORE"},"SK":{"S":"STATE"},"version":{"N":"1"}})");
  REQUIRE(OpenEngine(UrlOf(table)).ok());
  json newer = table.Item(StateKey());
  newer[kVersion] = Number(kStoreVersion + 1);
  table.Put(newer);
  const absl::Status refused = OpenEngine(UrlOf(table)).status();
  CHECK(refused.code() == absl::StatusCode::kUnimplemented);
  CHECK(std::string(refused.message()).find("has version 2, made by a newer semaphored") !=
        std::string::npos);
  CHECK(table.Item(StateKey()) == newer);
}

}  // namespace
}  // namespace semaphored::dynamodb
