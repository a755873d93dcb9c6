// What a commit did, told to another daemon: as much as it can say, and carried out only by whoever
// knows what was before.
#include <memory>

#include "adapters/ledger/news.h"
#include "adapters/ledger/postgres/message.h"
#include "catch2/catch_test_macros.hpp"

namespace semaphored::ledger {
namespace {

Id MakeId(uint64_t number) { return {0, number}; }

template <typename Row>
std::shared_ptr<Row> Claimed(uint64_t number, uint64_t session) {
  auto row = std::make_shared<Row>();
  row->id = MakeId(number);
  row->session = MakeId(session);
  row->host = {7, 2};
  row->order = number;
  row->holder = "held by " + std::to_string(number);
  row->request = {static_cast<uint32_t>(number), 1};
  return row;
}

LeasePtr MakeLease(uint64_t number, Slots slots) {
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
    state.Apply(semaphore, LeaseChange{nullptr, MakeLease(1, {1})});
    state.Apply(semaphore, LeaseChange{nullptr, MakeLease(2, {2})});
    state.Apply(semaphore, WaiterChange{nullptr, Claimed<Waiter>(3, 100)});
  }
};

// Lease 1 is released, waiter 3 granted, waiter 4 comes.
Transaction HandOff(World* world) {
  Transaction transaction;
  Editor editor(&world->state, &transaction);
  Semaphore* semaphore = world->semaphore;
  editor.End(semaphore, semaphore->FindLease(MakeId(1)), EndCause::kReleased, 10);
  editor.Leave(semaphore, semaphore->FindWaiter(MakeId(3)), EndCause::kNone);
  editor.Grant(semaphore, MakeLease(3, {1}));
  const WaiterPtr waiter = Claimed<Waiter>(4, 101);
  waiter->order = editor.TakeOrder(semaphore);
  editor.Enqueue(semaphore, waiter);
  editor.Finish();
  auto session = std::make_shared<Session>();
  session->id = MakeId(100);
  session->epoch = 9;
  auto other = std::make_shared<Session>();
  other->id = MakeId(102);
  transaction.sessions_of_concern = {session, other};
  return transaction;
}

TEST_CASE("ledger news: a hand-off is told and carried out") {
  World here;
  World there;
  const Transaction transaction = HandOff(&here);
  const auto news = NewsOf(transaction, transaction.semaphores[0], 32);
  REQUIRE(news);
  CHECK(news->revision == 6);
  CHECK(news->next_order == 5);
  CHECK(news->leases.size() == 2);
  CHECK(news->waiters.size() == 2);
  REQUIRE(news->sessions.size() == 1);
  CHECK(news->sessions[0]->id == MakeId(100));

  const auto delta = Apply(*news, &there.state);
  REQUIRE(delta);
  CHECK(delta->before->revision == 5);
  CHECK(delta->after->revision == 6);
  const Semaphore& semaphore = *there.semaphore;
  CHECK(semaphore.row.next_order == 5);
  CHECK_FALSE(semaphore.FindLease(MakeId(1)));
  REQUIRE(semaphore.FindLease(MakeId(3)));
  CHECK(semaphore.slots.At(1)->id == MakeId(3));
  CHECK_FALSE(semaphore.FindWaiter(MakeId(3)));
  CHECK(semaphore.FindWaiter(MakeId(4)));
  CHECK(there.state.CheckInvariants().empty());
  // Once only.
  CHECK_FALSE(Apply(*news, &there.state));
}

TEST_CASE("ledger news: a lease that changes twice is told as it is in the end") {
  World here;
  Transaction transaction;
  Editor editor(&here.state, &transaction);
  for (const auto reason : {Recall::Reason::kShrunk, Recall::Reason::kAdministrator}) {
    const LeasePtr before = here.semaphore->FindLease(MakeId(2));
    auto after = std::make_shared<Lease>(*before);
    after->recall.reason = reason;
    editor.Replace(here.semaphore, before, after);
  }
  editor.Finish();
  const auto news = NewsOf(transaction, transaction.semaphores[0], 32);
  REQUIRE(news);
  REQUIRE(news->leases.size() == 1);
  World there;
  REQUIRE(Apply(*news, &there.state));
  CHECK(there.semaphore->FindLease(MakeId(2))->recall.reason == Recall::Reason::kAdministrator);
  CHECK(there.state.CheckInvariants().empty());
}

TEST_CASE("ledger news: who does not know what was before does nothing") {
  World here;
  const Transaction transaction = HandOff(&here);
  const News news = NewsOf(transaction, transaction.semaphores[0], 32).value();
  const auto refuses = [&](auto change) {
    World there;
    change(&there);
    const size_t leases = there.state.lease_count();
    const SemaphoreRow row = there.semaphore->row;
    CHECK_FALSE(Apply(news, &there.state));
    CHECK(there.state.lease_count() == leases);
    CHECK(there.semaphore->row == row);
  };
  refuses([](World* there) { there->semaphore->row.revision = 4; });
  refuses([](World* there) { there->semaphore->row.revision = 6; });
  refuses([](World* there) {
    there->state.Apply(there->semaphore,
                       LeaseChange{there->semaphore->FindLease(MakeId(1)), nullptr});
  });
  refuses([](World* there) {
    there->state.Apply(there->semaphore,
                       WaiterChange{there->semaphore->FindWaiter(MakeId(3)), nullptr});
  });
  // The slot is somebody else's.
  refuses([](World* there) {
    const LeasePtr wide = there->semaphore->FindLease(MakeId(1));
    there->state.Apply(there->semaphore, LeaseChange{wide, nullptr});
    there->state.Apply(there->semaphore, LeaseChange{nullptr, MakeLease(1, {3})});
    there->state.Apply(there->semaphore, LeaseChange{nullptr, MakeLease(9, {1})});
  });
  LedgerState empty;
  CHECK_FALSE(Apply(news, &empty));
}

TEST_CASE("ledger news: what is more than a change of claims is not told") {
  const auto untold = [](auto change, size_t claims_max = 32) {
    World here;
    Transaction transaction;
    Editor editor(&here.state, &transaction);
    change(editor, here.semaphore, &transaction);
    editor.Finish();
    return !NewsOf(transaction, transaction.semaphores.at(0), claims_max);
  };
  CHECK_FALSE(untold([](Editor& editor, Semaphore* s, Transaction*) { editor.TakeOrder(s); }));
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction*) {
    editor.ChangeRow(s, [](SemaphoreRow& row) { row.limit = 1; });
  }));
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction*) {
    editor.End(s, s->FindLease(MakeId(1)), EndCause::kDestroyed, 1);
    editor.End(s, s->FindLease(MakeId(2)), EndCause::kDestroyed, 1);
    editor.Leave(s, s->FindWaiter(MakeId(3)), EndCause::kDestroyed);
    editor.Destroy(s);
  }));
  // Granted and ended at once.
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction*) {
    editor.Grant(s, MakeLease(5, {3}));
    editor.End(s, s->FindLease(MakeId(5)), EndCause::kReleased, 1);
  }));
  // A session that moves.
  CHECK(untold([](Editor& editor, Semaphore* s, Transaction* transaction) {
    editor.TakeOrder(s);
    transaction->sessions.push_back({std::make_shared<Session>(), std::make_shared<Session>()});
  }));
  const auto two = [](Editor& editor, Semaphore* s, Transaction*) {
    editor.End(s, s->FindLease(MakeId(1)), EndCause::kReleased, 1);
    editor.End(s, s->FindLease(MakeId(2)), EndCause::kReleased, 1);
  };
  CHECK_FALSE(untold(two, 2));
  CHECK(untold(two, 1));
}

// ---- as a message of Postgres ----

const std::string& ClientId(uint32_t number) {
  static std::string id;
  id = number == 0 ? "" : "client " + std::to_string(number);
  return id;
}

TEST_CASE("postgres message: news arrive as they were sent") {
  World here;
  const Transaction transaction = HandOff(&here);
  const std::string news =
      postgres::WriteNews(transaction, transaction.semaphores[0], {{MakeId(3), 2}}, ClientId);
  REQUIRE_FALSE(news.empty());
  const Hint hint = postgres::ReadMessage("s 6 41,42 " + news);
  CHECK(hint.semaphore == "s");
  CHECK(hint.revision == 6);
  uint32_t next = 500;
  const auto read = postgres::ReadNews(hint, [&](const std::string&) { return next++; });
  REQUIRE(read);
  World there;
  REQUIRE(Apply(*read, &there.state));
  const LeasePtr lease = there.semaphore->FindLease(MakeId(3));
  REQUIRE(lease);
  CHECK(lease->token == 42);
  CHECK(lease->holder == "held by 3");
  CHECK(lease->host == NodeRef{7, 2});
  CHECK(lease->request.client >= 500);
  const WaiterPtr waiter = there.semaphore->FindWaiter(MakeId(4));
  REQUIRE(waiter);
  CHECK(waiter->order == 4);
  CHECK(waiter->session == MakeId(101));
  REQUIRE(read->sessions.size() == 1);
  CHECK(read->sessions[0]->epoch == 9);
  CHECK(read->clients.size() == 2);
  CHECK(read->clients[0].client_id == "client 3");
}

TEST_CASE("postgres message: what cannot be read is only a hint") {
  const auto none = [](const std::string& message) {
    return !postgres::ReadNews(postgres::ReadMessage(message), [](const auto&) { return 1u; });
  };
  CHECK(postgres::ReadMessage("s").semaphore == "s");
  CHECK(postgres::ReadMessage("s").revision == 0);
  CHECK(postgres::ReadMessage("s x").revision == 0);
  CHECK(postgres::ReadMessage("s 12").revision == 12);
  for (
      const char* message :
      {"", "s", "s 6", "s 6 ", "s 6 1 {", "s 6  {}", "s 6 x {}", "s 6 1 []", "s 6 1 null",
       R"(s 6 1 {"next_order":1,"ended":[[]],"leases":[],"left":[],"waiters":[],"sessions":[]})",
       R"(s 6 1 {"next_order":1,"ended":[["no id",1]],"leases":[],"left":[],"waiters":[],"sessions":[]})",
       R"(s 6 1 {"next_order":"1","ended":[],"leases":[],"left":[],"waiters":[],"sessions":[]})"}) {
    INFO(message);
    CHECK(none(message));
  }
  CHECK_FALSE(
      none(R"(s 6  {"next_order":1,"ended":[],"leases":[],"left":[],"waiters":[],"sessions":[]})"));
}

TEST_CASE("postgres message: a token that is missing makes the news unreadable, not wrong") {
  World here;
  const Transaction transaction = HandOff(&here);
  const std::string news =
      postgres::WriteNews(transaction, transaction.semaphores[0], {{MakeId(3), 2}}, ClientId);
  CHECK_FALSE(
      postgres::ReadNews(postgres::ReadMessage("s 6 41 " + news), [](const auto&) { return 1u; }));
}

TEST_CASE("postgres message: what is too long is not told") {
  World here;
  Transaction transaction = HandOff(&here);
  const auto& delta = transaction.semaphores[0];
  absl::flat_hash_map<Id, size_t> grants;
  for (uint64_t i = 0; i <= postgres::kTokensTold; ++i) grants[MakeId(1000 + i)] = i + 1;
  CHECK(postgres::WriteNews(transaction, delta, grants, ClientId).empty());
  const std::string long_id(8000, 'x');
  CHECK(postgres::WriteNews(transaction, delta, {}, [&](uint32_t) -> const std::string& {
          return long_id;
        }).empty());
}

}  // namespace
}  // namespace semaphored::ledger
