// layout=slots through the ledger, on a real broker: permits shared between daemons and a foreign
// client that knows nothing but the queues.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/slots_support.h"

namespace semaphored::rabbitmq::slots_test {
namespace {

using std::chrono::milliseconds;

TEST_CASE("rabbitmq slots: never more than the limit, over two daemons and a foreign holder",
          "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  Other other;
  a.Create(name.text, 4);
  CHECK(a.Grant(name.text)->slots == Slots{1});
  CHECK(b.Grant(name.text)->slots == Slots{2});
  REQUIRE(other.Hold(name.text, 3).ok());
  const LeasePtr last = a.Grant(name.text);
  CHECK(last->slots == Slots{4});
  CHECK(a.Acquire(name.text).kind == OutcomeKind::kFull);
  CHECK(b.Acquire(name.text).kind == OutcomeKind::kFull);
  CHECK(a.Describe(name.text).held == 4);
  CHECK(b.Describe(name.text).held == 4);
  // The other learns the limit from the broker.
  const Outcome mismatch = b.Acquire(name.text, false, 9);
  CHECK(mismatch.kind == OutcomeKind::kLimitMismatch);
  CHECK(mismatch.limit() == 4);
  a.Release(name.text, last->id);
  CHECK(b.Grant(name.text)->slots == Slots{4});
}

TEST_CASE("rabbitmq slots: made on the fly with the first request", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Grant(name.text, 3)->slots == Slots{1});
  CHECK(other.Size(name.text) == 3);
}

TEST_CASE("rabbitmq slots: who waits is granted what a foreign holder gives back", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 1);
  REQUIRE(other.Hold(name.text, 1).ok());
  const Id waiter = daemon.Queue(name.text);
  for (int i = 0; i < 20; ++i) daemon.Poll(milliseconds(20));
  CHECK_FALSE(daemon.IsGranted(waiter));
  REQUIRE(other.Delete(name.text + "-B-1").ok());
  CHECK(daemon.Granted(waiter)->slots == Slots{1});
  CHECK(absl::IsAlreadyExists(other.Hold(name.text, 1)));
}

TEST_CASE("rabbitmq slots: waiters of one daemon are served in their order, with one queue",
          "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 1);
  LeasePtr held = daemon.Grant(name.text);
  std::vector<Id> waiters;
  for (int i = 0; i < 4; ++i) waiters.push_back(daemon.Queue(name.text));
  for (const Id& waiter : waiters) {
    daemon.Release(name.text, held->id);
    // It is handed on without having been free.
    CHECK(other.Exists(name.text + "-B-1"));
    held = daemon.Granted(waiter);
  }
  daemon.Release(name.text, held->id);
  CHECK_FALSE(other.Exists(name.text + "-B-1"));
}

TEST_CASE("rabbitmq slots: a slot goes to others before it has gone round among ours for ever",
          "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 1);
  LeasePtr held = daemon.Grant(name.text);
  bool got = false;
  for (int round = 0; round < 400 && !got; ++round) {
    const Id waiter = daemon.Queue(name.text);
    daemon.Release(name.text, held->id);
    got = other.Hold(name.text, 1).ok();
    if (!got) held = daemon.Granted(waiter);
  }
  CHECK(got);
}

TEST_CASE("rabbitmq slots: a claim that stops waiting leaves no queue behind", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 1);
  const LeasePtr held = daemon.Grant(name.text);
  const Id waiter = daemon.Queue(name.text);
  daemon.Release(name.text, held->id);  // Offered to the waiter, which goes away.
  EndCommand end;
  end.semaphore = name.text;
  end.claim = waiter;
  daemon.Do(end);
  CHECK(daemon.Until([&] { return !other.Exists(name.text + "-B-1"); }));
}

TEST_CASE("rabbitmq slots: a dead daemon's permits are the others'", "[rabbitmq]") {
  const Name name;
  Daemon a;
  auto b = std::make_unique<Daemon>();
  a.Create(name.text, 1);
  b->Grant(name.text);
  const Id waiter = a.Queue(name.text);
  b.reset();
  CHECK(a.Granted(waiter)->slots == Slots{1});
}

TEST_CASE("rabbitmq slots: with the connection all permits are lost, and told so", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  daemon.Create(name.text, 3);
  const LeasePtr one = daemon.Grant(name.text);
  const LeasePtr two = daemon.Grant(name.text);
  daemon.connection()->Close();
  CHECK(daemon.Ended(one->id) == EndCause::kEngineLost);
  CHECK(daemon.Ended(two->id) == EndCause::kEngineLost);
  CHECK(daemon.Until([&] { return daemon.Describe(name.text).held == 0; }));
  CHECK(daemon.Grant(name.text)->slots == Slots{1});
}

TEST_CASE("rabbitmq slots: a queue deleted by hand is found at the next sweep", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 2);
  const LeasePtr one = daemon.Grant(name.text);
  const LeasePtr two = daemon.Grant(name.text);
  // Only its own connection may, and the broker's administrator.
  const Channel channel = daemon.connection()->OpenChannel().value();
  REQUIRE(daemon.connection()->Delete(channel, name.text + "-B-1").ok());
  REQUIRE(other.Hold(name.text, 1).ok());
  REQUIRE(other.Delete(name.text + "-B-1").ok());
  CHECK(daemon.Ended(one->id) == EndCause::kEngineLost);
  CHECK_FALSE(daemon.HasEnded(two->id));
  CHECK(daemon.Grant(name.text)->slots == Slots{1});
}

// As brokers before 4.2.3 do when a connection ends that was just declaring the same queue.
TEST_CASE(
    "rabbitmq slots: a slot that the broker gave to another connection is lost, not passed on",
    "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 1);
  const LeasePtr lease = daemon.Grant(name.text);
  const auto give_to_other = [&] {
    SlotBroker(daemon.connection(), daemon.connection()).Free(name.text, 1).IgnoreError();
    REQUIRE(other.Hold(name.text, 1).ok());
  };
  // The daemon looks every 50 ms at the least: on a slow machine it has found it before.
  const auto release = [&] {
    ReleaseCommand command;
    command.semaphore = name.text;
    command.claim = lease->id;
    const OutcomeKind kind = daemon.Do(command).kind;
    CHECK((kind == OutcomeKind::kReleased || kind == OutcomeKind::kNotHeld));
  };
  SECTION("while it is held") {
    give_to_other();
    CHECK(daemon.Ended(lease->id) == EndCause::kEngineLost);
    CHECK(daemon.Describe(name.text).held == 1);
  }
  SECTION("before it is released, with a waiter") {
    const Id waiter = daemon.Queue(name.text);
    give_to_other();
    release();
    for (int i = 0; i < 10; ++i) daemon.Poll(milliseconds(20));
    CHECK_FALSE(daemon.IsGranted(waiter));
    REQUIRE(other.Delete(name.text + "-B-1").ok());
    CHECK(daemon.Granted(waiter)->slots == Slots{1});
  }
  SECTION("before it is released, without a waiter") {
    give_to_other();
    release();
    CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kFull);
    CHECK(other.Exists(name.text + "-B-1"));
  }
}

TEST_CASE("rabbitmq slots: verify asks whether the holder's queue is ours", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 2);
  const LeasePtr lease = daemon.Grant(name.text);
  const LeasePtr kept = daemon.Grant(name.text);
  const auto verified = [&](const LeasePtr& of) {
    VerifyCommand verify;
    verify.semaphore = name.text;
    verify.claim = of->id;
    return daemon.Do(verify);
  };
  CHECK(verified(lease).kind == OutcomeKind::kHeld);
  // On its own connection only can it be deleted; and then another may have the slot.
  SlotBroker(daemon.connection(), daemon.connection()).Free(name.text, 1).IgnoreError();
  REQUIRE(other.Hold(name.text, 1).ok());
  CHECK(verified(lease).kind == OutcomeKind::kNotHeld);
  CHECK(verified(lease).cause == EndCause::kEngineLost);
  CHECK(verified(kept).kind == OutcomeKind::kHeld);
}

TEST_CASE("rabbitmq slots: growing and shrinking, by us and by others", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 1);
  const LeasePtr one = daemon.Grant(name.text);
  const Id waiter = daemon.Queue(name.text);
  REQUIRE(other.Resize(name.text, 1, 2).ok());
  const LeasePtr two = daemon.Granted(waiter);
  CHECK(two->slots == Slots{2});
  REQUIRE(daemon.Resize(name.text, 3).kind == OutcomeKind::kDone);
  CHECK(other.Size(name.text) == 3);
  const LeasePtr three = daemon.Grant(name.text);
  // Whoever has a slot above keeps it.
  REQUIRE(daemon.Resize(name.text, 1).kind == OutcomeKind::kDone);
  CHECK(other.Size(name.text) == 1);
  CHECK(other.Exists(name.text + "-B-3"));
  for (int i = 0; i < 10; ++i) daemon.Poll(milliseconds(20));
  CHECK_FALSE(daemon.HasEnded(three->id));
  const Id next = daemon.Queue(name.text);
  daemon.Release(name.text, three->id);
  daemon.Release(name.text, two->id);
  CHECK_FALSE(other.Exists(name.text + "-B-3"));
  CHECK_FALSE(other.Exists(name.text + "-B-2"));
  CHECK_FALSE(daemon.IsGranted(next));
  daemon.Release(name.text, one->id);
  CHECK(daemon.Granted(next)->slots == Slots{1});
}

TEST_CASE("rabbitmq slots: a change of the limit by somebody else is not undone", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 2);
  daemon.Grant(name.text);
  REQUIRE(other.Resize(name.text, 2, 5).ok());
  AdminResize add;
  add.change = AdminResize::Change::kAdd;
  add.amount = 2;
  add.limit_max = 1000;
  REQUIRE(daemon.Administer(name.text, add).kind == OutcomeKind::kDone);
  CHECK(other.Size(name.text) == 7);
}

TEST_CASE("rabbitmq slots: while another administers it nothing is changed", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 2);
  REQUIRE(other.Declare(name.text, {.durable = false, .exclusive = true, .messages_max = 0}).ok());
  AdminResize resize;
  resize.amount = 4;
  resize.limit_max = 1000;
  const Command command = AdminCommand{{}, name.text, 0, resize};
  CHECK(absl::IsUnavailable(daemon.TryDo(command).status()));
  CHECK(other.Size(name.text) == 2);
  REQUIRE(other.Delete(name.text).ok());
  CHECK(daemon.Do(command).kind == OutcomeKind::kDone);
  CHECK(other.Size(name.text) == 4);
}

TEST_CASE("rabbitmq slots: destroying waits for foreign holders and our own", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 3);
  const LeasePtr held = daemon.Grant(name.text);
  REQUIRE(other.Hold(name.text, 3).ok());
  const Id waiter = [&] {
    daemon.Grant(name.text);
    return daemon.Queue(name.text);
  }();
  CHECK(daemon.Administer(name.text, AdminDestroy{DestroyPolicy::kRefuse}).kind ==
        OutcomeKind::kInUse);
  REQUIRE(daemon.Administer(name.text, AdminDestroy{DestroyPolicy::kWait}).kind ==
          OutcomeKind::kDone);
  CHECK(daemon.Ended(waiter) == EndCause::kDestroyed);
  CHECK_FALSE(other.Exists(name.text + "-A-1"));
  CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kDestroyed);
  SemaphoreInfo info = daemon.Describe(name.text);
  CHECK(info.row.destroying);
  CHECK(info.held == 3);
  daemon.Release(name.text, held->id);
  AdminRevoke revoke;
  revoke.holder = "unit test";
  revoke.grace_ms = 0;
  REQUIRE(daemon.Administer(name.text, revoke).kind == OutcomeKind::kDone);
  for (int i = 0; i < 20; ++i) daemon.Poll(milliseconds(20));
  CHECK(daemon.Describe(name.text).held == 1);
  REQUIRE(other.Delete(name.text + "-B-3").ok());
  CHECK(daemon.Until(
      [&] { return daemon.Acquire(name.text).kind == OutcomeKind::kNoSuchSemaphore; }));
}

TEST_CASE("rabbitmq slots: what others destroy lives on for those who hold it", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  Other other;
  a.Create(name.text, 1);
  const LeasePtr held = a.Grant(name.text);
  const Id of_a = a.Queue(name.text);
  const Id of_b = b.Queue(name.text);
  REQUIRE(other.Destroy(name.text).ok());
  CHECK(a.Ended(of_a) == EndCause::kDestroyed);
  CHECK(b.Ended(of_b) == EndCause::kDestroyed);
  CHECK_FALSE(a.HasEnded(held->id));
  CHECK(a.Acquire(name.text).kind == OutcomeKind::kDestroyed);
  // Made anew by others, it is left alone when ours has ended.
  REQUIRE(other.Create(name.text, 2).ok());
  a.Release(name.text, held->id);
  CHECK(a.Until([&] { return a.Acquire(name.text).kind == OutcomeKind::kGranted; }));
  CHECK(other.Size(name.text) == 2);
}

TEST_CASE("rabbitmq slots: pruning deletes what nobody can use", "[rabbitmq]") {
  const Name name;
  Daemon daemon;
  Other other;
  daemon.Create(name.text, 2);
  const LeasePtr held = daemon.Grant(name.text);
  // A queue of an act that broke off, and a slot beyond a gap.
  const Channel channel = daemon.connection()->OpenChannel().value();
  REQUIRE(daemon.connection()
              ->Declare(channel, name.text + "-B-2",
                        {.durable = false, .exclusive = true, .messages_max = 0})
              .ok());
  REQUIRE(other.DeclareSlot(name.text, 7).ok());
  CHECK(daemon.Acquire(name.text).kind == OutcomeKind::kFull);
  const Outcome pruned = daemon.Administer(name.text, AdminPrune{});
  CHECK(pruned.kind == OutcomeKind::kDone);
  CHECK(pruned.affected() == 2);
  CHECK_FALSE(other.Exists(name.text + "-A-7"));
  CHECK(other.Exists(name.text + "-B-1"));
  CHECK(daemon.Grant(name.text)->slots == Slots{2});
  CHECK_FALSE(daemon.HasEnded(held->id));
}

}  // namespace
}  // namespace semaphored::rabbitmq::slots_test
