// The DynamoDB store on DynamoDB Local: two daemons on one table, what is read as one moment, and
// what does not fit.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"

namespace semaphored::dynamodb {
namespace {

using ledger::CommitResult;
using ledger::RequestRow;
using ledger::Transaction;
using Kind = CommitResult::Kind;

// ---- two daemons ----

TEST_CASE("dynamodb: of two who decide on the same revision one wins", "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  const SemaphoreRow row = Make(a, "s", 1);
  CHECK(LoadOne(b, "s").row == row);
  Transaction first = Grant(a, row, MakeLease(a, 1));
  Transaction second = Grant(b, row, MakeLease(b, 2));
  REQUIRE(a.Commit(first).kind == Kind::kWon);
  const CommitResult lost = b.Commit(second);
  CHECK(lost.kind == Kind::kLost);
  CHECK(lost.stale == std::vector<std::string>{"s"});
  CHECK_FALSE(lost.requests_lost);
  const ledger::LoadedSemaphore loaded = LoadOne(b, "s");
  REQUIRE(loaded.leases.size() == 1);
  CHECK(loaded.leases[0]->id == MakeId(1));
  CHECK(loaded.row.revision == first.semaphores[0].revision);
}

TEST_CASE("dynamodb: only what is stale is named", "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  const SemaphoreRow s = Make(a, "s");
  const SemaphoreRow t = Make(a, "t");
  LoadOne(b, "t");
  Transaction theirs = Touch(b, t);
  REQUIRE(b.Commit(theirs).kind == Kind::kWon);
  Transaction both = Touch(a, s);
  both.semaphores.push_back(Touch(a, t).semaphores[0]);
  CHECK(a.Commit(both).stale == std::vector<std::string>{"t"});
  // What was only read counts as much.
  Transaction reads = Touch(a, s);
  reads.reads.push_back({"t", t.revision});
  reads.reads.push_back({"none", 0});
  CHECK(a.Commit(reads).stale == std::vector<std::string>{"t"});
}

TEST_CASE("dynamodb: a slot may change hands in one batch, and back", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const SemaphoreRow row = Make(open, "s", 1);
  const LeasePtr first = MakeLease(open, 1);
  Transaction grant = Grant(open, row, first);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  const LeasePtr second = MakeLease(open, 2);
  const LeasePtr third = MakeLease(open, 3);
  Transaction pass = Touch(open, After(grant));
  pass.semaphores[0].leases = {{first, nullptr, EndCause::kReleased},
                               {nullptr, second, EndCause::kNone},
                               {second, nullptr, EndCause::kReleased},
                               {nullptr, third, EndCause::kNone}};
  REQUIRE(open.Commit(pass).kind == Kind::kWon);
  CHECK(first->token < second->token);
  CHECK(second->token < third->token);
  const ledger::LoadedSemaphore loaded = LoadOne(open, "s");
  REQUIRE(loaded.leases.size() == 1);
  CHECK(loaded.leases[0]->token == third->token);
}

TEST_CASE("dynamodb: what is made anew begins above what was destroyed", "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  // Both have read the floors when they started.
  const SemaphoreRow row = Make(b, "s");
  const LeasePtr old = MakeLease(b, 1);
  Transaction grant = Grant(b, row, old);
  REQUIRE(b.Commit(grant).kind == Kind::kWon);
  Transaction destroy = Touch(b, After(grant));
  destroy.semaphores[0].after.reset();
  destroy.semaphores[0].leases.push_back({old, nullptr, EndCause::kDestroyed});
  REQUIRE(b.Commit(destroy).kind == Kind::kWon);
  CHECK(b.store->Names("", "", 10)->empty());

  const SemaphoreRow again = Make(a, "s");
  CHECK(again.revision > destroy.semaphores[0].revision);
  const LeasePtr fresh = MakeLease(a, 2);
  Transaction regrant = Grant(a, again, fresh);
  REQUIRE(a.Commit(regrant).kind == Kind::kWon);
  CHECK(fresh->token > old->token);
  CHECK(a.store->Names("", "", 10).value() == std::vector<std::string>{"s"});
  // And once more by whoever has destroyed it.
  Transaction gone = Touch(a, After(regrant));
  gone.semaphores[0].after.reset();
  gone.semaphores[0].leases.push_back({fresh, nullptr, EndCause::kDestroyed});
  REQUIRE(a.Commit(gone).kind == Kind::kWon);
  CHECK(Make(b, "s").revision > gone.semaphores[0].revision);
}

// ---- reading ----

TEST_CASE("dynamodb: thousands of waiters are loaded in their order", "[dynamodb]") {
  constexpr uint64_t kWaiters = 3000;
  constexpr uint64_t kAtOnce = 90;
  StoreTable table;
  OpenStore open = Open(table);
  SemaphoreRow row = Make(open, "s");
  for (uint64_t done = 0; done < kWaiters;) {
    Transaction enqueue = Touch(open, row);
    for (uint64_t i = 0; i < kAtOnce && done < kWaiters; ++i, ++done)
      enqueue.semaphores[0].waiters.push_back(
          {nullptr, MakeWaiter(open, done + 1, static_cast<int32_t>(done % 3) - 1)});
    REQUIRE(open.Commit(enqueue).kind == Kind::kWon);
    row = After(enqueue);
  }
  OpenStore other = Open(table, {.node_id = "b"});
  const ledger::LoadedSemaphore loaded = LoadOne(other, "s");
  REQUIRE(loaded.waiters.size() == kWaiters);
  const auto stands_before = [](const WaiterPtr& one, const WaiterPtr& other) {
    return ledger::PlaceOf(*one) < ledger::PlaceOf(*other);
  };
  CHECK(std::is_sorted(loaded.waiters.begin(), loaded.waiters.end(), stands_before));
  CHECK(loaded.waiters.front()->priority == 1);
  CHECK(loaded.waiters.back()->priority == -1);
}

TEST_CASE("dynamodb: what is not of one moment is read again", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  Transaction grant = Grant(open, Make(open, "s"), MakeLease(open, 1));
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  // A page in which the head is newer than a lease.
  int queries = 0;
  proxy.OnAnswer([&](const std::string& operation, json* body) {
    if (operation != "Query" || ++queries > 2) return;
    std::erase_if((*body)["Items"].get_ref<json::array_t&>(),
                  [](const json& item) { return KeyOf(item).sort.starts_with(kLeases); });
  });
  CHECK(LoadOne(open, "s").leases.size() == 1);
  CHECK(queries == 3);
}

TEST_CASE("dynamodb: many that are shown are one request for their heads", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore a = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  OpenStore b = Open(table, {.node_id = "b"});
  const std::vector<std::string> names = {"r", "s", "t", "none", "odd"};
  for (const char* name : {"r", "s", "t"}) Make(b, name);
  const ledger::SemaphoreCounts counts = {1, 2, 3, {4, 5, 6, 7}};
  Transaction grant = Grant(b, LoadOne(b, "s").row, MakeLease(b, 1));
  grant.semaphores[0].counts = counts;
  REQUIRE(b.Commit(grant).kind == Kind::kWon);
  Transaction gone = Touch(b, LoadOne(b, "t").row);
  gone.semaphores[0].after.reset();
  REQUIRE(b.Commit(gone).kind == Kind::kWon);
  json odd = table.Item(HeadKey("s"));
  odd["PK"] = Text(PartitionOf("odd"));
  odd["revision"] = Text("none");
  table.Put(odd);
  proxy.Take();
  ledger::Image image = a.store->Look(names).value();
  CHECK(proxy.Take().requests == std::map<std::string, int>{{"BatchGetItem", 1}});
  std::ranges::sort(image.semaphores, {}, [](const auto& each) { return each.row.name; });
  REQUIRE(image.semaphores.size() == 2);
  CHECK(image.semaphores[0].row == LoadOne(b, "r").row);
  CHECK(image.semaphores[0].counts == ledger::SemaphoreCounts());
  CHECK(image.semaphores[1].row == LoadOne(b, "s").row);
  CHECK(image.semaphores[1].counts == counts);
}

TEST_CASE("dynamodb: what people have changed is damage, until it is pruned", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const LeasePtr lease = MakeLease(open, 1);
  Transaction grant = Grant(open, Make(open, "s"), lease);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  Make(open, "t");
  table.Delete(LeaseKey("s", *lease));
  const std::vector<std::string> names = {"s", "t"};
  const ledger::Image image = open.store->Load(names).value();
  REQUIRE(image.damaged.size() == 1);
  CHECK(image.damaged[0].first == "s");
  CHECK(image.damaged[0].second.code() == absl::StatusCode::kDataLoss);
  CHECK(image.semaphores.size() == 1);
  Transaction refused = Touch(open, After(grant));
  CHECK(open.Commit(refused).status.code() == absl::StatusCode::kDataLoss);

  CHECK(open.store->Repair("t").value() == std::nullopt);
  REQUIRE(open.store->Repair("s").value().has_value());
  const ledger::LoadedSemaphore mended = LoadOne(open, "s");
  CHECK(mended.leases.empty());
  Transaction next = Grant(open, mended.row, MakeLease(open, 2));
  CHECK(open.Commit(next).kind == Kind::kWon);
}

// ---- limits ----

TEST_CASE("dynamodb: what is more than a transaction takes is refused before it is sent",
          "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  const SemaphoreRow row = Make(open, "s", 200);
  Transaction grant = Touch(open, row);
  for (uint32_t i = 1; i <= 98; ++i)
    grant.semaphores[0].leases.push_back({nullptr, MakeLease(open, i, i), EndCause::kNone});
  proxy.Take();
  // With the lane, the head and where the node has claims these are 101.
  CommitResult result = open.Commit(grant);
  CHECK(result.kind == Kind::kFailed);
  CHECK(result.status.code() == absl::StatusCode::kOutOfRange);
  CHECK(proxy.Take().requests.empty());
  grant.semaphores[0].leases.pop_back();
  CHECK(open.Commit(grant).kind == Kind::kWon);

  const LeasePtr large = MakeLease(open, 200, 200);
  large->holder = std::string(400'000, 'h');
  Transaction too_large = Grant(open, After(grant), large);
  result = open.Commit(too_large);
  CHECK(result.status.code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("dynamodb: notices for which a transaction has no room follow it", "[dynamodb]") {
  constexpr uint32_t kNodes = 95;
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  Transaction grant = Grant(open, Make(open, "s", 20), MakeLease(open, 1));
  for (uint32_t node = 1000; node < 1000 + kNodes; ++node) grant.concerns.emplace_back(node, "s");
  proxy.Take();
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  const DynamoProxy::Counted counted = proxy.Take();
  CHECK(counted.requests.at("TransactWriteItems") == 1);
  CHECK(counted.items == 99);
  grant = Touch(open, After(grant));
  for (uint32_t node = 1000; node < 1000 + 2 * kNodes; ++node)
    grant.concerns.emplace_back(node, "s");
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  CHECK(proxy.Take().items == TransactionRequest::kItemsMax);
  for (uint32_t node = 1000; node < 1000 + 2 * kNodes; ++node) {
    const std::optional<StoredNotice> notice = ReadNotice(table.Item(NoticeKey(node, "s")));
    REQUIRE(notice.has_value());
    REQUIRE(notice->revision == grant.semaphores[0].revision);
  }
}

TEST_CASE("dynamodb: a lease for many permits is one item", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const LeasePtr lease = MakeLease(open, 1);
  lease->slots = Slots();
  for (uint32_t slot = 1; slot <= 20'000; slot += 2) lease->slots.Append({slot, slot});
  lease->permits = static_cast<uint32_t>(lease->slots.size());
  Transaction grant = Grant(open, Make(open, "s", 20'000), lease);
  REQUIRE(open.Commit(grant).kind == Kind::kWon);
  CHECK(LoadOne(open, "s").leases.front()->slots == lease->slots);
}

// ---- cost ----

TEST_CASE("dynamodb: the return of one slot of ten thousand is what that of three is",
          "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  std::vector<DynamoProxy::Counted> counted;
  for (const uint32_t permits : {3, 10'000}) {
    const LeasePtr lease = MakeLease(open, permits);
    lease->permits = permits;
    lease->slots = Slots();
    lease->slots.Append({1, permits});
    Transaction grant = Grant(open, Make(open, "s" + std::to_string(permits), permits), lease);
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
    const auto rest = std::make_shared<Lease>(*lease);
    rest->permits = permits - 1;
    rest->slots = lease->slots.Without(Slots{permits / 2 + 1});
    Transaction release = Touch(open, After(grant));
    release.semaphores[0].leases.push_back({lease, rest, EndCause::kNone});
    proxy.Take();
    REQUIRE(open.Commit(release).kind == Kind::kWon);
    counted.push_back(proxy.Take());
  }
  for (const DynamoProxy::Counted& each : counted)
    CHECK(each.requests == std::map<std::string, int>{{"TransactWriteItems", 1}});
  CHECK(counted[0].items == counted[1].items);
}

TEST_CASE("dynamodb: an acquire and its release are one write request each", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore open = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  SemaphoreRow row = Make(open, "s");
  uint64_t sequence = 0;
  const auto cycle = [&](std::vector<DynamoProxy::Counted>* counted) {
    const LeasePtr lease = MakeLease(open, ++sequence);
    Transaction grant = Grant(open, row, lease);
    grant.new_clients.push_back({7, "c"});
    grant.requests.push_back(Insert(7, sequence, RequestRow::State::kGranted));
    REQUIRE(open.Commit(grant).kind == Kind::kWon);
    counted->push_back(proxy.Take());
    Transaction release = Touch(open, After(grant));
    release.semaphores[0].leases.push_back({lease, nullptr, EndCause::kReleased});
    release.history.push_back({0, "s", lease, 1'800'000'000'000, EndCause::kReleased});
    release.requests.push_back(Update(7, sequence, RequestRow::State::kEnded));
    release.requests.push_back(Insert(7, ++sequence, RequestRow::State::kDone));
    REQUIRE(open.Commit(release).kind == Kind::kWon);
    counted->push_back(proxy.Take());
    row = After(release);
  };
  proxy.Take();
  std::vector<DynamoProxy::Counted> first;
  cycle(&first);
  std::vector<DynamoProxy::Counted> counted;
  cycle(&counted);
  for (const DynamoProxy::Counted& half : counted)
    CHECK(half.requests == std::map<std::string, int>{{"TransactWriteItems", 1}});
  // Lane, head, lease, request; and of a release the history, and its own request.
  CHECK(counted[0].items == 4);
  CHECK(counted[1].items == 6);
  // The first time: the client's highest request, and that the node has claims there.
  CHECK(first[0].requests.at("Query") == 1);
  CHECK(first[0].items == 5);
}

}  // namespace
}  // namespace semaphored::dynamodb
