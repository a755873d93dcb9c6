// The rules of a claim that moves between sessions: what a repeated acquire makes of it, and what
// its former owner may still do.
#include <catch2/catch_test_macros.hpp>

#include "adapters/ledger/rules/rules.h"
#include "tests/unit/adapters/ledger/support.h"

namespace semaphored::ledger {
namespace {

// Sessions 101 and 102 are hosted by node 1 and node 2; claim 1 is the client's request.
struct Moved {
  Bench bench;
  Context there = bench.context;

  Moved() {
    there.self = {2, 1};
    bench.context.client = there.client = 7;
    OpenSession(*bench.editor, {MakeId(101), "c", 1'000, "h", false}, bench.context);
    OpenSession(*bench.editor, {MakeId(102), "c", 5'000, "h", false}, there);
    Administer(*bench.editor, AdminOf("s", AdminCreate{1, {}}), bench.context);
    bench.Win();
  }
  static AcquireCommand Asked(uint64_t session, int64_t ttl_ms) {
    AcquireCommand command = AcquireOf("s", 1, 1, true);
    command.requester = {"c", 1};
    command.session = MakeId(session);
    command.ttl_ms = ttl_ms;
    return command;
  }
  Outcome Ask() { return Acquire(*bench.editor, Asked(101, 1'000), bench.context); }
  Outcome AskThere(bool over = false, uint32_t epoch = 0) {
    AcquireCommand command = Asked(102, 5'000);
    command.claim = MakeId(99);
    command.moved_is_over = over;
    command.moved_epoch = epoch;
    return Repeat(*bench.editor, command, MakeId(1), there);
  }
  Outcome AskAgain() {
    AcquireCommand command = Asked(101, 1'000);
    command.claim = MakeId(98);
    return Repeat(*bench.editor, command, MakeId(1), bench.context);
  }
  LeasePtr lease() { return bench.state.Find("s")->FindLease(MakeId(1)); }
  EndCommand EndOf(uint64_t session) const {
    EndCommand end;
    end.semaphore = "s";
    end.claim = MakeId(1);
    end.session = MakeId(session);
    end.epoch = 1;
    return end;
  }
};

TEST_CASE("rules: a lease that is asked for elsewhere moves, and is granted when that is over") {
  Moved moved;
  REQUIRE(moved.Ask().kind == OutcomeKind::kGranted);
  moved.bench.Win();
  Outcome outcome = moved.AskThere();
  CHECK(outcome.kind == OutcomeKind::kMoving);
  REQUIRE(outcome.lease == moved.lease());
  CHECK(moved.lease()->session == MakeId(102));
  CHECK(moved.lease()->host == NodeRef{2, 1});
  CHECK(moved.lease()->epoch == 2);
  CHECK(moved.lease()->moved_from == 1);
  moved.bench.Win();
  CHECK(moved.AskThere().kind == OutcomeKind::kMoving);
  CHECK(moved.AskThere(/*over=*/true, /*epoch=*/2).kind == OutcomeKind::kGranted);
  CHECK(moved.lease()->moved_from == 0);
  CHECK(moved.lease()->epoch == 2);
  CHECK(moved.bench.state.CheckInvariants().empty());
}

TEST_CASE("rules: that a move is over says nothing of a later one") {
  Moved moved;
  moved.Ask();
  moved.bench.Win();
  moved.AskThere();
  moved.bench.Win();
  // It goes back and comes again. A late command knows only that the first move is over.
  CHECK(moved.AskAgain().kind == OutcomeKind::kMoving);
  CHECK(moved.AskThere(/*over=*/true, /*epoch=*/2).kind == OutcomeKind::kMoving);
  CHECK(moved.lease()->epoch == 4);
  CHECK(moved.AskThere(/*over=*/true, /*epoch=*/2).kind == OutcomeKind::kMoving);
  CHECK(moved.AskThere(/*over=*/true, /*epoch=*/4).kind == OutcomeKind::kGranted);
}

TEST_CASE("rules: while it moves, a lease has the longest TTL that it was vouched for with") {
  Moved moved;
  moved.Ask();
  moved.bench.Win();
  moved.AskThere();
  CHECK(moved.lease()->ttl_ms == 5'000);
  moved.AskAgain();
  CHECK(moved.lease()->ttl_ms == 5'000);
  AcquireCommand over = Moved::Asked(101, 1'000);
  over.moved_is_over = true;
  CHECK(Repeat(*moved.bench.editor, over, MakeId(1), moved.bench.context).kind ==
        OutcomeKind::kGranted);
  CHECK(moved.lease()->ttl_ms == 1'000);
}

TEST_CASE("rules: the former session ends and releases nothing of it") {
  Moved moved;
  moved.Ask();
  moved.bench.Win();
  moved.AskThere();
  moved.bench.Win();
  // Each session begins with epoch 1.
  CHECK(End(*moved.bench.editor, moved.EndOf(101), moved.bench.context).kind ==
        OutcomeKind::kStale);
  ReleaseCommand release = ReleaseOf("s", 1);
  release.session = MakeId(101);
  Outcome outcome = Release(*moved.bench.editor, release, moved.bench.context);
  CHECK(outcome.kind == OutcomeKind::kNotHeld);
  CHECK(outcome.cause == EndCause::kMoved);
  CHECK(CloseSession(*moved.bench.editor, {MakeId(101), 1, EndCause::kExpired}, moved.bench.context)
            .kind == OutcomeKind::kDone);
  REQUIRE(moved.lease() != nullptr);
  CHECK(End(*moved.bench.editor, moved.EndOf(102), moved.there).kind == OutcomeKind::kDone);
  CHECK(moved.lease() == nullptr);
}

TEST_CASE("rules: a waiter moves at once, to its place") {
  Moved moved;
  Acquire(*moved.bench.editor, AcquireOf("s", 5), moved.bench.context);
  REQUIRE(moved.Ask().kind == OutcomeKind::kQueued);
  moved.bench.Win();
  const Outcome outcome = moved.AskThere();
  CHECK(outcome.kind == OutcomeKind::kQueued);
  CHECK(outcome.claim == MakeId(1));
  CHECK(outcome.epoch() == 2);
  const WaiterPtr waiter = moved.bench.state.Find("s")->FindWaiter(MakeId(1));
  CHECK(waiter->session == MakeId(102));
  CHECK(waiter->ttl_ms == 5'000);
  CHECK(End(*moved.bench.editor, moved.EndOf(101), moved.bench.context).kind ==
        OutcomeKind::kStale);
  moved.bench.Win();
  Release(*moved.bench.editor, ReleaseOf("s", 5), moved.bench.context);
  REQUIRE(moved.lease() != nullptr);
  CHECK(moved.lease()->session == MakeId(102));
  CHECK(moved.lease()->moved_from == 0);  // No holder counted on it.
}

TEST_CASE("rules: a later recall with a longer grace changes nothing") {
  Moved moved;
  moved.Ask();
  moved.bench.Win();
  const auto revoke = [&](int64_t grace_ms) {
    const Outcome outcome = Administer(
        *moved.bench.editor, AdminOf("s", AdminRevoke{{}, "", grace_ms}), moved.bench.context);
    CHECK(outcome.affected() == 1);
  };
  revoke(5'000);
  const LeasePtr recalled = moved.lease();
  CHECK(recalled->recall.grace_ms == 5'000);
  revoke(60'000);
  revoke(5'000);
  CHECK(moved.lease() == recalled);
  revoke(1'000);
  CHECK(moved.lease()->recall.grace_ms == 1'000);
}

}  // namespace
}  // namespace semaphored::ledger
