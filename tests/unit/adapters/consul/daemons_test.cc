// Two daemons on one Consul store, each with its ledger: what one of them does not know of the
// other's commits.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/consul/format.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/consul/daemon.h"
#include "tests/unit/adapters/consul/fixture.h"

namespace semaphored::consul {
namespace {

using ledger::SemaphoreDelta;
using ledger::Transaction;
TEST_CASE("consul: a release grants to a waiter whose requests another daemon has accepted",
          "[consul]") {
  TestPrefix prefix;
  Daemon a(prefix, "a");
  Daemon b(prefix, "b");
  REQUIRE(a.Acquire("x", 1, 1, "other").kind == OutcomeKind::kGranted);
  REQUIRE(b.Acquire("y", 1, 2).kind == OutcomeKind::kGranted);
  REQUIRE(a.Acquire("x", 2, 3).kind == OutcomeKind::kQueued);
  CHECK(b.Release("y", 2, 2).kind == OutcomeKind::kReleased);
  CHECK(b.Run(VerifyCommand{"s", MakeId(3), 0, 0}).kind == OutcomeKind::kHeld);
  // Both rows are still there.
  CHECK(b.Acquire("x", 1, 4, "other").lease->id == MakeId(1));
  CHECK(b.Acquire("x", 2, 5).lease->id == MakeId(3));
}

TEST_CASE("consul: a request has its row from when it is accepted", "[consul]") {
  TestPrefix prefix;
  Daemon a(prefix, "a");
  Daemon b(prefix, "b");
  const std::string block = prefix.keys().RequestBlock("x", 0);
  const auto rows = [&] { return ReadRequestBlock(prefix.Value(block)).rows; };
  REQUIRE(a.Acquire("x", 1, 1).kind == OutcomeKind::kGranted);
  CHECK(rows().at(1).claim == MakeId(1));
  CHECK(rows().at(1).pinned());
  for (Daemon* daemon : {&a, &b}) {
    const Outcome again = daemon->Acquire("x", 1, 9);
    CHECK(again.kind == OutcomeKind::kGranted);
    CHECK(again.lease->id == MakeId(1));
    CHECK(daemon->Acquire("x", 1, 9, "other").kind == OutcomeKind::kReused);
  }
  REQUIRE(a.Release("x", 2, 1).kind == OutcomeKind::kReleased);
  CHECK_FALSE(rows().at(1).pinned());
  for (Daemon* daemon : {&b, &a}) {
    const Outcome again = daemon->Acquire("x", 1, 9);
    CHECK(again.kind == OutcomeKind::kNotHeld);
    CHECK(again.cause == EndCause::kReleased);
    CHECK(daemon->Release("x", 2, 1).kind == OutcomeKind::kReleased);
    CHECK(daemon->Release("x", 2, 9).kind == OutcomeKind::kReused);
  }
  REQUIRE(b.Acquire("x", 3, 3).kind == OutcomeKind::kGranted);
  REQUIRE(b.End(3, EndCause::kExpired).kind == OutcomeKind::kDone);
  const Outcome ended = a.Acquire("x", 3, 9);
  CHECK(ended.kind == OutcomeKind::kNotHeld);
  CHECK(ended.cause == EndCause::kExpired);
  CHECK(a.Run(VerifyCommand{"s", MakeId(9), 0, 0}).kind == OutcomeKind::kNotHeld);
}

TEST_CASE("consul: a wait that is given up leaves no row, and its request may come again",
          "[consul]") {
  TestPrefix prefix;
  Daemon a(prefix, "a");
  Daemon b(prefix, "b");
  REQUIRE(a.Acquire("x", 1, 1).kind == OutcomeKind::kGranted);
  REQUIRE(a.Acquire("y", 1, 2).kind == OutcomeKind::kQueued);
  REQUIRE_FALSE(prefix.Value(prefix.keys().RequestBlock("y", 0)).empty());
  REQUIRE(b.End(2, EndCause::kCancelled).kind == OutcomeKind::kDone);
  CHECK(prefix.Value(prefix.keys().RequestBlock("y", 0)).empty());
  for (Daemon* daemon : {&a, &b}) {
    REQUIRE(daemon->Acquire("y", 1, 3).kind == OutcomeKind::kQueued);
    REQUIRE(daemon->End(3, EndCause::kCancelled).kind == OutcomeKind::kDone);
  }
}

TEST_CASE("consul: a request that waits is granted once, though it is repeated elsewhere",
          "[consul]") {
  TestPrefix prefix;
  Daemon a(prefix, "a");
  Daemon b(prefix, "b");
  REQUIRE(a.Acquire("x", 1, 1).kind == OutcomeKind::kGranted);
  REQUIRE(a.Acquire("y", 1, 2).kind == OutcomeKind::kQueued);
  REQUIRE(a.Release("x", 2, 1).kind == OutcomeKind::kReleased);
  CHECK(b.Acquire("y", 1, 9).lease->id == MakeId(2));
  REQUIRE(b.Release("y", 2, 2).kind == OutcomeKind::kReleased);
  CHECK(a.Acquire("y", 1, 9).kind == OutcomeKind::kNotHeld);
}

TEST_CASE("consul: a client of whom all was forgotten is not below its old floor", "[consul]") {
  TestPrefix prefix;
  Daemon a(prefix, "a");
  prefix.Put(prefix.keys().RequestFloor("x"), "100000", 0);
  REQUIRE(a.Acquire("x", 100'001, 1).kind == OutcomeKind::kGranted);
  CHECK(a.Acquire("x", 99'999, 2, "other").kind == OutcomeKind::kTooOld);
  prefix.Delete(prefix.keys().RequestFloor("x"));
  CHECK(a.Acquire("x", 99'998, 3, "other").kind == OutcomeKind::kGranted);
}

TEST_CASE("consul: more leases are recalled at once than a transaction takes", "[consul]") {
  constexpr uint32_t kMany = 150;
  TestPrefix prefix;
  Daemon a(prefix, "a");
  REQUIRE(a.Run(AdminCommand{{}, "s", 0, AdminCreate{kMany, {}}}).kind == OutcomeKind::kDone);
  for (uint32_t i = 0; i < kMany; ++i)
    REQUIRE(a.AcquireOne(absl::StrCat("c", i), 1, 1000 + i).kind == OutcomeKind::kGranted);
  AdminResize resize;
  resize.change = AdminResize::Change::kRemove;
  resize.amount = kMany - 10;
  resize.limit_max = kMany;
  resize.policy = ShrinkPolicy::kRecall;
  resize.grace_ms = 0;
  const Outcome resized = a.Run(AdminCommand{{"admin", 1}, "s", 0, resize});
  CHECK(resized.kind == OutcomeKind::kDone);
  CHECK(resized.affected() == kMany - 10);
  CHECK(resized.changed);
  const Outcome described = a.Run(AdminCommand{{}, "s", 0, AdminDescribe{0}});
  CHECK(described.report->info->row.limit == 10);
  CHECK(described.report->info->held == 10);
  const Outcome ended = a.AcquireOne("c140", 1, 9);
  CHECK(ended.kind == OutcomeKind::kNotHeld);
  CHECK(ended.cause == EndCause::kRecalled);
  CHECK(a.Run(AdminCommand{{"admin", 1}, "s", 0, resize}).kind == OutcomeKind::kDone);
}

TEST_CASE("consul: a request below the floor is too old at a daemon that has never met its client",
          "[consul]") {
  TestPrefix prefix;
  const Keys keys = prefix.keys();
  Daemon a(prefix, "a");
  REQUIRE(a.Acquire("x", 1, 1).kind == OutcomeKind::kGranted);
  REQUIRE(a.Release("x", 2, 1).kind == OutcomeKind::kReleased);
  // As when the client has gone on so far that this was forgotten.
  prefix.Put(keys.RequestFloor("x"), "1000", 0);
  prefix.Delete(keys.RequestBlock("x", 0));
  Daemon b(prefix, "b");
  CHECK(b.Acquire("x", 1, 2).kind == OutcomeKind::kTooOld);
  CHECK(b.Run(VerifyCommand{"s", MakeId(2), 0, 0}).kind == OutcomeKind::kNotHeld);
  CHECK(b.Acquire("x", 1001, 3).kind == OutcomeKind::kGranted);
  CHECK(b.Acquire("y", 1, 4, "other").kind == OutcomeKind::kGranted);
}

TEST_CASE("consul: a document that is damaged concerns its own semaphore alone", "[consul]") {
  TestPrefix prefix;
  Daemon a(prefix, "a");
  Daemon b(prefix, "b");
  REQUIRE(a.Acquire("x", 1, 1).kind == OutcomeKind::kGranted);
  REQUIRE(a.Acquire("y", 1, 2).kind == OutcomeKind::kQueued);
  REQUIRE(a.Acquire("x", 2, 3, "other").kind == OutcomeKind::kGranted);
  const uint64_t token = a.Run(VerifyCommand{"s", MakeId(1), 0, 0}).lease->token;
  const std::string document = prefix.Value(prefix.keys().Document("s"));
  prefix.Put(prefix.keys().Document("s"), "damaged");
  for (Daemon* daemon : {&a, &b}) {
    // Also the one that knew it before: nobody can say that it still stands.
    CHECK(daemon->Idle().ok());
    const Outcome refused = daemon->Run(VerifyCommand{"s", MakeId(1), 0, 0});
    CHECK(refused.kind == OutcomeKind::kDamaged);
    CHECK(refused.message.find("semaphore s") != std::string::npos);
    CHECK(daemon->Acquire("z", 1, 4).kind == OutcomeKind::kDamaged);
    CHECK(daemon->Release("x", 3, 1).kind == OutcomeKind::kDamaged);
    CHECK(daemon->Run(AdminCommand{{}, "s", 0, AdminPrune{}}).kind == OutcomeKind::kDamaged);
    CHECK(daemon->Run(VerifyCommand{"other", MakeId(3), 0, 0}).kind == OutcomeKind::kHeld);
    CHECK(daemon->Idle().ok());
  }
  CHECK(b.Run(OrphansCommand{}).kind == OutcomeKind::kDone);
  CHECK(b.Release("x", 4, 3, "other").kind == OutcomeKind::kReleased);
  prefix.Put(prefix.keys().Document("s"), document);
  for (Daemon* daemon : {&b, &a}) {
    const Outcome held = daemon->Run(VerifyCommand{"s", MakeId(1), 0, 0});
    REQUIRE(held.kind == OutcomeKind::kHeld);
    CHECK(held.lease->token == token);
  }
  CHECK(a.Release("x", 5, 1).kind == OutcomeKind::kReleased);
  CHECK(b.Run(VerifyCommand{"s", MakeId(2), 0, 0}).kind == OutcomeKind::kHeld);
}

// ---- a long queue ----

constexpr uint64_t kLong = 70;

std::vector<Id> IdsFrom(uint64_t first, uint64_t last) {
  std::vector<Id> ids;
  for (uint64_t i = first; i <= last; ++i) ids.push_back(MakeId(i));
  return ids;
}

// The first holds, and all others wait.
void QueueUp(Daemon& daemon, const std::string& client = "x") {
  REQUIRE(daemon.Acquire(client, 1, 1).kind == OutcomeKind::kGranted);
  for (uint64_t i = 2; i <= kLong; ++i)
    REQUIRE(daemon.Acquire(client, i, i).kind == OutcomeKind::kQueued);
}

TEST_CASE("consul: a long queue is not written anew with each commit, and keeps its order",
          "[consul]") {
  TestPrefix prefix;
  const Keys keys = prefix.keys();
  Daemon a(prefix, "a");
  QueueUp(a);
  CHECK(prefix.Tree(keys.Pages("s")).size() >= 3);
  CHECK(prefix.Value(keys.Document("s")).size() < 2000);
  Daemon b(prefix, "b");
  CHECK(b.Waiters() == IdsFrom(2, kLong));
  CHECK(a.Waiters() == IdsFrom(2, kLong));
  // Some go who stand on pages, by either daemon; and each turn grants to the next.
  REQUIRE(b.End(30, EndCause::kCancelled).kind == OutcomeKind::kDone);
  REQUIRE(a.End(60, EndCause::kCancelled).kind == OutcomeKind::kDone);
  for (uint64_t i = 1; i < kLong; ++i) {
    if (i == 30 || i == 60) continue;
    INFO(i);
    Daemon& daemon = i % 3 == 0 ? a : b;
    REQUIRE(daemon.Release("y", i, i).kind == OutcomeKind::kReleased);
    const uint64_t next = i == 29 || i == 59 ? i + 2 : i + 1;
    REQUIRE(daemon.Run(VerifyCommand{"s", MakeId(next), 0, 0}).kind == OutcomeKind::kHeld);
  }
  CHECK(a.Waiters().empty());
  CHECK(prefix.Tree(keys.Pages("s")).empty());
}

TEST_CASE("consul: a daemon that comes later finds who waits on pages, and whose they are",
          "[consul]") {
  TestPrefix prefix;
  const Keys keys = prefix.keys();
  NodeRef gone;
  {
    OpenStore open = Open(prefix);
    SemaphoreRow row = Make(open, "s", 1);
    gone = open.self;
    for (uint64_t i = 1; i <= kLong; ++i) {
      Transaction wait = Begin(open);
      SemaphoreDelta& delta = wait.semaphores.emplace_back();
      delta.name = "s";
      delta.before = row;
      ++row.next_order;
      delta.after = row;
      auto waiter = std::make_shared<Waiter>();
      static_cast<Claim&>(*waiter) = *MakeLease(open, i);
      delta.waiters.push_back({nullptr, waiter});
      REQUIRE(open.Commit(wait).kind == ledger::CommitResult::Kind::kWon);
      row.revision = wait.semaphores[0].revision;
    }
    CHECK(LoadOne(open, "s").waiters.size() == kLong);
    // All that still stand in the document itself go: those on pages alone are his.
    Transaction end = Begin(open);
    SemaphoreDelta& delta = end.semaphores.emplace_back();
    delta.name = "s";
    delta.before = delta.after = row;
    for (const WaiterPtr& waiter : LoadOne(open, "s").waiters) {
      if (prefix.Value(keys.Document("s")).find(waiter->id.Hex()) == std::string::npos) continue;
      delta.waiters.push_back({waiter, nullptr});
    }
    CHECK(delta.waiters.size() < kLong / 2);
    REQUIRE(open.Commit(end).kind == ledger::CommitResult::Kind::kWon);
    CHECK(open.store->HostedBy({&gone, 1}).value().semaphores == std::vector<std::string>{"s"});
    const NodeRef other{gone.number + 1, 9};
    CHECK(open.store->HostedBy({&other, 1}).value().semaphores.empty());
  }
  Daemon b(prefix, "b");
  CHECK(b.Waiters().size() > kLong / 2);
}

TEST_CASE("consul: a destroyed semaphore takes its pages along, and a new one begins anew",
          "[consul]") {
  TestPrefix prefix;
  const Keys keys = prefix.keys();
  Daemon a(prefix, "a");
  Daemon b(prefix, "b");
  REQUIRE(a.Acquire("x", 1, 1).kind == OutcomeKind::kGranted);
  for (uint64_t i = 2; i <= 40; ++i) REQUIRE(a.Acquire("x", i, i).kind == OutcomeKind::kQueued);
  CHECK(b.Waiters().size() == 39);
  REQUIRE_FALSE(prefix.Tree(keys.Pages("s")).empty());
  AdminDestroy destroy;
  destroy.policy = DestroyPolicy::kForce;
  REQUIRE(a.Run(AdminCommand{{}, "s", 0, destroy}).kind == OutcomeKind::kDone);
  CHECK(prefix.Tree(keys.Pages("s")).empty());
  QueueUp(b, "z");
  CHECK(a.Waiters() == IdsFrom(2, kLong));
}

TEST_CASE("consul: an older document that was put back is read with the pages that are there",
          "[consul]") {
  TestPrefix prefix;
  const Keys keys = prefix.keys();
  Daemon a(prefix, "a");
  REQUIRE(a.Acquire("x", 1, 1).kind == OutcomeKind::kGranted);
  for (uint64_t i = 2; i <= 17; ++i) REQUIRE(a.Acquire("x", i, i).kind == OutcomeKind::kQueued);
  const std::string older = prefix.Value(keys.Document("s"));
  REQUIRE(prefix.Tree(keys.Pages("s")).empty());
  // The next one fills a page; then the document is as before it, and another one fills it.
  REQUIRE(a.Acquire("x", 18, 18).kind == OutcomeKind::kQueued);
  const std::string page = prefix.Tree(keys.Pages("s")).front().key;
  prefix.Put(keys.Document("s"), older, 0);
  Daemon b(prefix, "b");
  REQUIRE(b.Acquire("y", 1, 400).kind == OutcomeKind::kQueued);
  REQUIRE(prefix.Tree(keys.Pages("s")).front().key == page);
  std::vector<Id> waiters = IdsFrom(2, 17);
  waiters.push_back(MakeId(400));
  CHECK(b.Waiters() == waiters);
  CHECK(a.Idle().ok());
  CHECK(a.Waiters() == waiters);
}

TEST_CASE("consul: a page that was removed by hand is told, and may be put back", "[consul]") {
  TestPrefix prefix;
  Daemon a(prefix, "a");
  QueueUp(a);
  const Entry page = prefix.Tree(prefix.keys().Pages("s")).front();
  for (const bool removed : {true, false}) {
    if (removed) {
      prefix.Delete(page.key);
    } else {
      prefix.Put(page.key, "garbled", 0);
    }
    Daemon b(prefix, "b");
    const Outcome refused = b.Acquire("z", 1, 400);
    CHECK(refused.kind == OutcomeKind::kDamaged);
    CHECK(refused.message.find("page of the waiters of s") != std::string::npos);
    // Whoever knew it goes on.
    CHECK(a.Waiters() == IdsFrom(2, kLong));
  }
  prefix.Put(page.key, page.value, 0);
  Daemon b(prefix, "b");
  CHECK(b.Waiters() == IdsFrom(2, kLong));
}

}  // namespace
}  // namespace semaphored::consul
