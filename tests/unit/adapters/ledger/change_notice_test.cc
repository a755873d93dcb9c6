// What a commit did, told to another daemon: as much as it can say, and carried out only by whoever
// knows what was before.
#include "adapters/ledger/change_notice.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "adapters/common/seal.h"
#include "adapters/dynamodb/notice_text.h"
#include "adapters/postgres/message.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/golden.h"

namespace semaphored::ledger {
namespace {

Id IdOf(uint64_t number) { return {0, number}; }

template <typename Row>
std::shared_ptr<Row> Claimed(uint64_t number, uint64_t session) {
  auto row = std::make_shared<Row>();
  row->id = IdOf(number);
  row->session = IdOf(session);
  row->host = {7, 2};
  row->order = number;
  row->holder = "held by " + std::to_string(number);
  row->request = {static_cast<uint32_t>(number), 1};
  return row;
}

LeasePtr LeaseOfNode(uint64_t number, Slots slots) {
  LeasePtr lease = Claimed<Lease>(number, 100);
  lease->permits = static_cast<uint32_t>(slots.size());
  lease->slots = std::move(slots);
  return lease;
}

// A semaphore of two permits: lease 1 on slot 1, lease 2 on slot 2, and waiter 3.
struct World {
  LedgerState state;
  Semaphore* semaphore = nullptr;

  World() {
    SemaphoreRow row;
    row.name = "s";
    row.limit = 2;
    row.revision = 5;
    row.next_order = 4;
    semaphore = state.Insert(row);
    state.Apply(semaphore, LeaseChange{nullptr, LeaseOfNode(1, {1})});
    state.Apply(semaphore, LeaseChange{nullptr, LeaseOfNode(2, {2})});
    state.Apply(semaphore, WaiterChange{nullptr, Claimed<Waiter>(3, 100)});
  }
};

QueuePlace PlaceOfWaiter(const World& world, uint64_t number) {
  return PlaceOf(*world.semaphore->FindWaiter(IdOf(number)));
}

// Lease 1 is released, and waiter 3 granted.
Transaction HandOff(World* world) {
  Transaction transaction;
  Editor editor(&world->state, &transaction);
  Semaphore* semaphore = world->semaphore;
  editor.End(semaphore, semaphore->FindLease(IdOf(1)), EndCause::kReleased, 10);
  editor.Leave(semaphore, semaphore->FindWaiter(IdOf(3)), EndCause::kNone);
  const LeasePtr lease = LeaseOfNode(3, {1});
  lease->granted_at_unix_ms = 77;
  editor.Grant(semaphore, lease);
  editor.Finish();
  return transaction;
}

TEST_CASE("ledger notices: a hand-off is reported and carried out") {
  World here;
  World there;
  const Transaction transaction = HandOff(&here);
  auto told = DetailsOf(transaction, transaction.semaphores[0], 32);
  REQUIRE(told);
  ChangeDetails& details = told->details;
  CHECK(details.revision == 6);
  CHECK(details.ended.size() == 1);
  REQUIRE(details.granted.size() == 1);
  REQUIRE(told->grants.size() == 1);
  CHECK(told->grants[0]->id == IdOf(3));
  details.granted[0].token = 42;

  const auto delta = Apply(details, &there.state);
  REQUIRE(delta);
  CHECK(delta->before->revision == 5);
  CHECK(delta->after->revision == 6);
  const Semaphore& semaphore = *there.semaphore;
  CHECK_FALSE(semaphore.FindLease(IdOf(1)));
  const LeasePtr lease = semaphore.FindLease(IdOf(3));
  REQUIRE(lease);
  CHECK(lease->token == 42);
  CHECK(lease->holder == "held by 3");
  CHECK(lease->host == NodeRef{7, 2});
  CHECK(lease->granted_at_unix_ms == 77);
  CHECK(semaphore.slots.At(1) == IdOf(3));
  CHECK_FALSE(semaphore.FindWaiter(IdOf(3)));
  CHECK(there.state.CheckInvariants().empty());
  // Once only.
  CHECK_FALSE(Apply(details, &there.state));
}

TEST_CASE("ledger notices: a wait that ends is reported") {
  World here;
  Transaction transaction;
  Editor editor(&here.state, &transaction);
  editor.Leave(here.semaphore, here.semaphore->FindWaiter(IdOf(3)), EndCause::kWaitExpired);
  editor.Finish();
  World there;
  const auto delta =
      Apply(DetailsOf(transaction, transaction.semaphores[0], 32).value().details, &there.state);
  REQUIRE(delta);
  REQUIRE(delta->waiters.size() == 1);
  CHECK(delta->waiters[0].cause == EndCause::kWaitExpired);
  CHECK(there.semaphore->queue.empty());
  CHECK(there.state.CheckInvariants().empty());
}

TEST_CASE("ledger notices: who does not know what was before does nothing") {
  World here;
  const Transaction transaction = HandOff(&here);
  const ChangeDetails details =
      DetailsOf(transaction, transaction.semaphores[0], 32).value().details;
  const auto refuses = [](const ChangeDetails& wrong, auto change) {
    World there;
    change(&there);
    const size_t leases = there.state.lease_count();
    const SemaphoreRow row = there.semaphore->row;
    CHECK_FALSE(Apply(wrong, &there.state));
    CHECK(there.state.lease_count() == leases);
    CHECK(there.semaphore->row == row);
    CHECK(there.state.CheckInvariants().empty());
  };
  refuses(details, [](World* there) { there->semaphore->row.revision = 4; });
  refuses(details, [](World* there) { there->semaphore->row.revision = 6; });
  refuses(details, [](World* there) {
    there->state.Apply(there->semaphore,
                       LeaseChange{there->semaphore->FindLease(IdOf(1)), nullptr});
  });
  refuses(details, [](World* there) {
    there->state.Apply(there->semaphore,
                       WaiterChange{there->semaphore->FindWaiter(IdOf(3)), nullptr});
  });
  const auto nothing = [](World*) {};
  ChangeDetails wrong = details;
  wrong.granted[0].slots = {2};  // Somebody else's.
  refuses(wrong, nothing);
  wrong.granted[0].slots = {1, 3};  // More than it asked for.
  refuses(wrong, nothing);
  wrong.granted[0].slots = {0};
  refuses(wrong, nothing);
  wrong = details;
  wrong.granted.push_back(wrong.granted[0]);
  refuses(wrong, nothing);
  wrong = details;
  wrong.left.push_back({wrong.granted[0].place, EndCause::kCancelled});
  refuses(wrong, nothing);
  wrong = details;
  wrong.ended.push_back(wrong.ended[0]);
  refuses(wrong, nothing);
  LedgerState empty;
  CHECK_FALSE(Apply(details, &empty));
}

TEST_CASE("ledger notices: what others cannot know, or is more than claims, is not reported") {
  const auto untold = [](auto change, size_t claims_max = 32) {
    World here;
    Transaction transaction;
    Editor editor(&here.state, &transaction);
    change(editor, here.semaphore, &transaction);
    editor.Finish();
    return !DetailsOf(transaction, transaction.semaphores.at(0), claims_max);
  };
  CHECK_FALSE(untold([](Editor& editor, Semaphore* s, Transaction*) { editor.TakeOrder(s); }));
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction*) {
    editor.ChangeRow(s, [](SemaphoreRow& row) { row.limit = 1; });
  }));
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction*) {
    editor.End(s, s->FindLease(IdOf(1)), EndCause::kDestroyed, 1);
    editor.End(s, s->FindLease(IdOf(2)), EndCause::kDestroyed, 1);
    editor.Leave(s, s->FindWaiter(IdOf(3)), EndCause::kDestroyed);
    editor.Destroy(s);
  }));
  // A claim that is new.
  CHECK(untold(
      [](Editor& editor, Semaphore* s, Transaction*) { editor.Grant(s, LeaseOfNode(5, {3})); }));
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction*) {
    editor.Enqueue(s, Claimed<Waiter>(4, 101));
  }));
  // One that changes.
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction*) {
    const LeasePtr before = s->FindLease(IdOf(2));
    auto after = std::make_shared<Lease>(*before);
    after->recall.reason = Recall::Reason::kShrunk;
    editor.Replace(s, before, after);
  }));
  // Granted and ended at once.
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction*) {
    editor.Leave(s, s->FindWaiter(IdOf(3)), EndCause::kNone);
    editor.Grant(s, LeaseOfNode(3, {3}));
    editor.End(s, s->FindLease(IdOf(3)), EndCause::kReleased, 1);
  }));
  // A session that moves.
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction* transaction) {
    editor.TakeOrder(s);
    transaction->sessions.push_back({std::make_shared<Session>(), std::make_shared<Session>()});
  }));
  const auto two = [](Editor& editor, Semaphore* s, Transaction*) {
    editor.End(s, s->FindLease(IdOf(1)), EndCause::kReleased, 1);
    editor.End(s, s->FindLease(IdOf(2)), EndCause::kReleased, 1);
  };
  CHECK_FALSE(untold(two, 2));
  CHECK(untold(two, 1));
}

// ---- as a message of Postgres ----

constexpr char kSecret[] = "only daemons know";

std::string Sealed(const std::string& place, const std::string& tokens, const std::string& details,
                   const std::string& secret = kSecret) {
  return absl::StrCat(place, " ", SealOf(absl::StrCat(place, " ", tokens, " ", details), secret),
                      " ", tokens, " ", details);
}

TEST_CASE("postgres message: details arrive as they were sent") {
  World here;
  const QueuePlace place = PlaceOfWaiter(here, 3);
  const Transaction transaction = HandOff(&here);
  const std::string details =
      postgres::WriteDetails(transaction, transaction.semaphores[0], {{IdOf(3), 2}});
  REQUIRE_FALSE(details.empty());
  const ChangeNotice notice = postgres::ReadMessage(Sealed("s 6", "41,42", details));
  CHECK(notice.semaphore == "s");
  CHECK(notice.revision == 6);
  const auto read = postgres::ReadDetails(notice, kSecret);
  REQUIRE(read);
  REQUIRE(read->granted.size() == 1);
  CHECK(read->granted[0].token == 42);
  CHECK(read->granted[0].place.order == place.order);
  World there;
  REQUIRE(Apply(*read, &there.state));
  CHECK(there.semaphore->FindLease(IdOf(3))->token == 42);
}

TEST_CASE("postgres message: nothing by which a lease could be given back is said") {
  World here;
  const Transaction transaction = HandOff(&here);
  const std::string details =
      postgres::WriteDetails(transaction, transaction.semaphores[0], {{IdOf(3), 1}});
  for (const uint64_t number : {1, 3, 100})
    CHECK(details.find(IdOf(number).Hex()) == std::string::npos);
}

TEST_CASE("postgres message: whoever does not know the secret is not believed") {
  World here;
  const Transaction transaction = HandOff(&here);
  const std::string details =
      postgres::WriteDetails(transaction, transaction.semaphores[0], {{IdOf(3), 1}});
  const auto believed = [](const std::string& message, const std::string& secret = kSecret) {
    return postgres::ReadDetails(postgres::ReadMessage(message), secret).has_value();
  };
  const std::string good = Sealed("s 6", "41", details);
  CHECK(believed(good));
  CHECK_FALSE(believed(Sealed("s 6", "41", details, "another")));
  CHECK_FALSE(believed(good, ""));
  // Not for another revision or semaphore, not with another token, not with something added.
  CHECK_FALSE(believed("s 7" + good.substr(3)));
  CHECK_FALSE(believed("t 6" + good.substr(3)));
  std::string other = good;
  other.replace(other.find(" 41 "), 4, " 42 ");
  CHECK_FALSE(believed(other));
  CHECK_FALSE(believed(good + " "));
}

TEST_CASE("postgres message: what cannot be read only says that something has changed") {
  CHECK(postgres::ReadMessage("s").semaphore == "s");
  CHECK(postgres::ReadMessage("s").revision == 0);
  CHECK(postgres::ReadMessage("s x").revision == 0);
  CHECK(postgres::ReadMessage("s 12").revision == 12);
  for (const char* message : {"", "s", "s 6", "s 6 ", "s 6 1", "s 6 1 2"})
    CHECK_FALSE(postgres::ReadDetails(postgres::ReadMessage(message), kSecret));
  const auto unread = [](const std::string& tokens, const std::string& details) {
    INFO(details);
    CHECK_FALSE(
        postgres::ReadDetails(postgres::ReadMessage(Sealed("s 6", tokens, details)), kSecret));
  };
  unread("1", "{");
  unread("1", "{}");
  unread("1", "[]");
  unread("x", "{}");
  unread("1", R"({"next_order":1,"ended":[[]],"left":[],"granted":[]})");
  unread("1", R"({"next_order":"1","ended":[],"left":[],"granted":[]})");
  // A token that is not there.
  unread("1", R"({"next_order":1,"ended":[],"left":[],"granted":[[0,3,[1],2,77]]})");
  unread("1", R"({"next_order":1,"ended":[],"left":[],"granted":[[0,3,[1],0,77]]})");
  const ChangeNotice empty = postgres::ReadMessage(
      Sealed("s 6", "", R"({"next_order":1,"ended":[],"left":[],"granted":[]})"));
  CHECK(postgres::ReadDetails(empty, kSecret));
}

TEST_CASE("postgres message: a batch of very many grants is not told") {
  World here;
  const Transaction transaction = HandOff(&here);
  absl::flat_hash_map<Id, size_t> grants;
  for (uint64_t i = 0; i <= postgres::kTokensTold; ++i) grants[IdOf(1000 + i)] = i + 1;
  CHECK(postgres::WriteDetails(transaction, transaction.semaphores[0], grants).empty());
}

constexpr char kPostgresMessage[] =
    "s 6 bba11b2a09d3d0f3905252facbd69c8749fac2702e141e2140aa538273937a14 41,42 "
    R"({"ended":[[1,1]],"granted":[[0,3,[1],2,77]],"left":[],"next_order":4})";

TEST_CASE("postgres golden: a change notice") {
  World here;
  const Transaction transaction = HandOff(&here);
  const std::string details =
      postgres::WriteDetails(transaction, transaction.semaphores[0], {{IdOf(3), 2}});
  golden::CheckStored(Sealed("s 6", "41,42", details), kPostgresMessage);
  CHECK(postgres::ReadDetails(postgres::ReadMessage(kPostgresMessage), kSecret)->granted.size() ==
        1);
}

constexpr char kDynamoDetails[] =
    R"({"digest":5,"ended":[[1,1]],"gone":["00000000000000000000000000000001"],)"
    R"("granted":[[0,3,[1],42,77]],"history_number":6,"left":[],)"
    R"("let_in":["00000000000000000000000000000003"],"next_order":4})";

TEST_CASE("dynamodb golden: what a change notice says") {
  World here;
  const Transaction transaction = HandOff(&here);
  const auto token_of = [](const Lease&) { return uint64_t{42}; };
  golden::CheckStored(dynamodb::WriteDetails(transaction, transaction.semaphores[0], token_of,
                                             /*digest=*/5, /*history_number=*/6),
                      kDynamoDetails);
  CHECK(dynamodb::ReadDetailsText({"s", 6, kDynamoDetails})->history_number == 6);
}

}  // namespace
}  // namespace semaphored::ledger
