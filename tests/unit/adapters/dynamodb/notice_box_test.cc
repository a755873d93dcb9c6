// How often a daemon asks for notices of others, and what it makes of it.
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/dynamodb/fixture.h"

namespace semaphored::dynamodb {
namespace {

using ledger::Transaction;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = ledger::CommitResult::Kind;

constexpr milliseconds kMin{20};
constexpr milliseconds kMax{1000};

SteadyTime At(milliseconds time) { return SteadyTime{} + std::chrono::hours(1) + time; }

TEST_CASE("dynamodb notices: the longer nothing happens the less often it is asked for") {
  PollPace pace(kMin, kMax);
  pace.Stir(At(milliseconds(0)));
  CHECK(pace.Next(At(milliseconds(0)), true) == At(kMin));
  CHECK(pace.Next(At(milliseconds(160)), true) == At(milliseconds(160)) + kMin);
  CHECK(pace.Next(At(milliseconds(800)), true) == At(milliseconds(900)));
  CHECK(pace.Next(At(seconds(8)), true) == At(seconds(9)));
  CHECK(pace.Next(At(seconds(800)), true) == At(seconds(801)));
  // Who only holds is in no hurry.
  CHECK(pace.Next(At(milliseconds(0)), false) == At(kMax));
  pace.Stir(At(seconds(800)));
  CHECK(pace.Next(At(seconds(800)), true) == At(seconds(800)) + kMin);
}

TEST_CASE("dynamodb notices: what a minute of waiting costs") {
  PollPace pace(kMin, kMax);
  pace.Stir(At(milliseconds(0)));
  int asked = 0;
  for (SteadyTime now = At(milliseconds(0)); now < At(seconds(60)); now = pace.Next(now, true))
    ++asked;
  CHECK(asked == 94);
}

json WordItem(const std::string& name, const std::string& stamp) {
  return WriteNotice(1, {name, 5, "", stamp}, 0);
}

TEST_CASE("dynamodb notices: each notice is heard once") {
  NoticeSorter sorter;
  std::vector<json> items = {WordItem("a", "1"), WordItem("b", "1")};
  NoticeSorter::Sorted sorted = sorter.Sort(items, At(seconds(0)));
  REQUIRE(sorted.notices.size() == 2);
  CHECK(sorted.notices[0].semaphore == "a");
  CHECK(sorted.notices[0].revision == 5);
  CHECK(sorter.Sort(items, At(seconds(1))).notices.empty());
  items[1] = WordItem("b", "2");
  sorted = sorter.Sort(items, At(seconds(2)));
  REQUIRE(sorted.notices.size() == 1);
  CHECK(sorted.notices[0].semaphore == "b");
  // Something that is no notice is passed over.
  items.push_back(ItemWith(NoticeKey(1, "c")));
  items.back()["revision"] = "five";
  CHECK(sorter.Sort(items, At(seconds(3))).notices.empty());
}

TEST_CASE("dynamodb notices: notices that were received are dropped when there are many") {
  NoticeSorter sorter;
  std::vector<json> items;
  for (int i = 0; i < 16; ++i) items.push_back(WordItem(absl::StrCat("s", i), "1"));
  sorter.Sort(items, At(seconds(0)));
  CHECK(sorter.Sort(items, At(seconds(100))).heard_long_ago.empty());
  items.push_back(WordItem("more", "1"));
  NoticeSorter::Sorted sorted = sorter.Sort(items, At(seconds(101)));
  CHECK(sorted.heard_long_ago.size() == 16);
  // Not what was written of late.
  for (const StoredNotice& notice : sorted.heard_long_ago) CHECK(notice.semaphore != "more");
}

// ---- on DynamoDB ----

TEST_CASE("dynamodb notices: a daemon that waits receives what others do, each time",
          "[dynamodb]") {
  StoreTable table;
  OpenStore a = Open(table);
  OpenStore b = Open(table, {.node_id = "b"});
  Transaction enqueue = Touch(a, Make(a, "s"));
  enqueue.semaphores[0].waiters.push_back({nullptr, MakeWaiter(a, 1)});
  REQUIRE(a.Commit(enqueue).kind == Kind::kWon);
  SemaphoreRow row = LoadOne(b, "s").row;
  for (int i = 0; i < 2; ++i) {
    Transaction change = Touch(b, row);
    change.concerns.emplace_back(a.self.number, "s");
    REQUIRE(b.Commit(change).kind == Kind::kWon);
    row = After(change);
    const SteadyTime bound = SteadyClock::now() + seconds(10);
    const std::vector<ledger::ChangeNotice> notices = a.store->Wait(bound).value();
    REQUIRE(notices.size() == 1);
    CHECK(notices[0].semaphore == "s");
    CHECK(notices[0].revision == row.revision);
  }
}

TEST_CASE("dynamodb notices: a daemon that receives what was done need not read it", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  OpenStore a = Open(table, {.node_id = "a", .endpoint = proxy.endpoint()});
  OpenStore b = Open(table, {.node_id = "b"});
  const LeasePtr held = MakeLease(b, 1);
  LoadOne(b, Make(a, "s", 1).name);
  Transaction take = Grant(b, LoadOne(b, "s").row, held);
  REQUIRE(b.Commit(take).kind == Kind::kWon);
  const WaiterPtr waiter = MakeWaiter(a, 2);
  Transaction enqueue = Touch(a, LoadOne(a, "s").row);
  enqueue.semaphores[0].waiters.push_back({nullptr, waiter});
  REQUIRE(a.Commit(enqueue).kind == Kind::kWon);
  proxy.Take();

  LoadOne(b, "s");
  const LeasePtr granted = MakeLease(a, 2);
  Transaction pass = Touch(b, After(enqueue));
  pass.semaphores[0].leases = {{held, nullptr, EndCause::kReleased}, {nullptr, granted}};
  pass.semaphores[0].waiters = {{waiter, nullptr, EndCause::kNone}};
  pass.history.push_back({0, "s", held, 5, EndCause::kReleased});
  pass.concerns.emplace_back(a.self.number, "s");
  REQUIRE(b.Commit(pass).kind == Kind::kWon);

  const SteadyTime bound = SteadyClock::now() + seconds(10);
  const std::vector<ledger::ChangeNotice> notices = a.store->Wait(bound).value();
  REQUIRE(notices.size() == 1);
  const std::optional<ledger::ChangeDetails> details = a.store->ReadDetails(notices[0]);
  REQUIRE(details.has_value());
  CHECK(details->revision == After(pass).revision);
  REQUIRE(details->ended.size() == 1);
  CHECK(details->ended[0].cause == EndCause::kReleased);
  REQUIRE(details->granted.size() == 1);
  CHECK(details->granted[0].token == granted->token);
  // It goes on from there; the digest and the history are those that stand.
  Transaction release = Touch(a, After(pass));
  release.semaphores[0].leases.push_back({granted, nullptr, EndCause::kReleased});
  release.history.push_back({0, "s", granted, 5, EndCause::kReleased});
  REQUIRE(a.Commit(release).kind == Kind::kWon);
  CHECK(proxy.Take().requests == std::map<std::string, int>{{"TransactWriteItems", 1}});
  CHECK(LoadOne(b, "s").leases.empty());
  CHECK(b.store->ReadHistory("s", 0, 10)->size() == 2);
  // Told twice it is of no use.
  CHECK(a.store->ReadDetails(notices[0]) == std::nullopt);
  CHECK(a.store->ReadDetails({"s", After(release).revision + 1, "{}"}) == std::nullopt);
}

TEST_CASE("dynamodb notices: a wait ends by waking", "[dynamodb]") {
  StoreTable table;
  OpenStore open = Open(table);
  const SteadyTime start = SteadyClock::now();
  open.store->Wake();
  CHECK(open.store->Wait(start + seconds(10)).value().empty());
  CHECK(SteadyClock::now() < start + seconds(5));
}

TEST_CASE("dynamodb notices: without claims no daemon asks", "[dynamodb]") {
  StoreTable table;
  DynamoProxy proxy(&table);
  NoticeBox notice_box(table.UrlThrough(proxy.endpoint(), milliseconds(2000)), TestCredentials(),
                       1);
  NoticeBox::Ear first(&notice_box);
  NoticeBox::Ear second(&notice_box);
  // It asks at once when there are some, for all lanes together.
  const auto await_notices = [&](NoticeBox::Ear* ear, const std::string& stamp) {
    table.Put(WriteNotice(1, {"s", 5, "", stamp}, 0));
    return ear->Take(SteadyClock::now() + seconds(10)).size();
  };
  first.Tell(1, 0);
  CHECK(await_notices(&first, "1") == 1);
  CHECK(second.Take(SteadyTime::min()).size() == 1);
  first.Tell(0, 0);
  (void)proxy.Take();
  table.Put(WriteNotice(1, {"s", 5, "", "2"}, 0));
  // A request that was under way may come to its end.
  first.Take(SteadyClock::now() + milliseconds(300));
  const DynamoProxy::Counted counted = proxy.Take();
  CHECK((counted.requests.empty() || counted.requests.at("Query") == 1));
  second.Tell(0, 1);
  first.Take(SteadyClock::now() + seconds(10));
}

}  // namespace
}  // namespace semaphored::dynamodb
