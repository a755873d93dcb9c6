// What the rules write into a transaction, and what only shared and foreign engines meet. What
// becomes of each command is the contract's (tests/contract).
#include "adapters/ledger/rules/rules.h"

#include <algorithm>

#include <catch2/catch_test_macros.hpp>

#include "adapters/ledger/large_commands.h"
#include "tests/unit/adapters/ledger/support.h"

namespace semaphored::ledger {
namespace {

Id OpenOne(Bench& bench, uint64_t id) {
  OpenSession(*bench.editor, {MakeId(id), "c", 1'000, "h", false}, bench.context);
  return MakeId(id);
}

void CreateOne(Bench& bench, const std::string& name, uint32_t limit, Settings settings = {}) {
  REQUIRE(
      Administer(*bench.editor, AdminOf(name, AdminCreate{limit, settings}), bench.context).kind ==
      OutcomeKind::kDone);
}

// A permit that another client of the same engine took.
void TakeForeign(Bench& bench, const std::string& name, uint64_t id, Slots slots) {
  const LeasePtr lease = MakeLease(id, std::move(slots), "foreign");
  lease->foreign = true;
  lease->session = Id{};
  bench.state.Apply(bench.state.Find(name), LeaseChange{nullptr, lease, EndCause::kNone});
}

// At how many waiters a release looks that lets in one, with so many at their holders' caps before that one.
uint64_t LooksOfRelease(uint64_t capped, bool backfill) {
  Bench bench;
  constexpr uint64_t kHolders = 5;
  CreateOne(bench, "s", kHolders + 1, {.backfill = backfill, .permits_per_holder = 1});
  const auto ask = [&](uint64_t id, const std::string& holder) {
    AcquireCommand command = AcquireOf("s", id, 1, true);
    command.holder = holder;
    return Acquire(*bench.editor, command, bench.context).kind;
  };
  for (uint64_t i = 0; i < kHolders; ++i)
    REQUIRE(ask(i + 1, "greedy" + std::to_string(i)) == OutcomeKind::kGranted);
  REQUIRE(ask(10, "modest") == OutcomeKind::kGranted);
  for (uint64_t i = 0; i < capped; ++i)
    REQUIRE(ask(100 + i, "greedy" + std::to_string(i % kHolders)) == OutcomeKind::kQueued);
  REQUIRE(ask(11, "patient") == OutcomeKind::kQueued);
  const Semaphore& semaphore = *bench.state.Find("s");
  const uint64_t before = bench.editor->looks();
  Release(*bench.editor, ReleaseOf("s", 10), bench.context);
  CHECK(semaphore.FindLease(MakeId(11)));
  CHECK(semaphore.queue.size() == capped);
  return bench.editor->looks() - before;
}

}  // namespace

namespace {

// The requests of the batch under way.
std::vector<RequestChange> RequestsOf(Bench& bench) {
  bench.editor->Finish();
  return bench.transaction.requests;
}

OutcomeKind Ask(Bench& bench, uint64_t sequence, uint64_t claim) {
  AcquireCommand command = AcquireOf("s", claim, 1, true);
  command.requester = {"c", sequence};
  bench.context.client = 7;
  bench.context.fingerprint = {9, sequence};
  return Acquire(*bench.editor, command, bench.context).kind;
}

}  // namespace

// Between the parts a detached caller repeats the request. Its claim has the epoch of the session's mark.
TEST_CASE("the end of a session in parts touches no claim that has moved from it") {
  Bench bench;
  CreateOne(bench, "s", 1);
  const Id session = OpenOne(bench, 100);
  AcquireCommand held = AcquireOf("s", 1);
  AcquireCommand waits = AcquireOf("s", 2, 1, true);
  held.session = waits.session = session;
  REQUIRE(Acquire(*bench.editor, held, bench.context).kind == OutcomeKind::kGranted);
  REQUIRE(Acquire(*bench.editor, waits, bench.context).kind == OutcomeKind::kQueued);
  bench.Win();
  const Parts parts = PartsOf(CloseSessionCommand{session, 1, EndCause::kExpired}, bench.state);
  REQUIRE(parts.first.has_value());
  REQUIRE(parts.before.size() == 2);
  CloseSession(*bench.editor, std::get<CloseSessionCommand>(*parts.first), bench.context);
  bench.Win();
  AcquireCommand repeated = waits;
  repeated.session = repeated.claim;
  REQUIRE(Repeat(*bench.editor, repeated, waits.claim, bench.context).kind == OutcomeKind::kQueued);
  bench.Win();
  // The wait, which has moved, stays; the lease ends, and the wait is let in.
  for (const Command& part : parts.before)
    End(*bench.editor, std::get<EndCommand>(part), bench.context);
  const Semaphore* s = bench.state.Find("s");
  CHECK(s->queue.empty());
  REQUIRE(s->leases.size() == 1);
  CHECK(s->leases.begin()->second->id == waits.claim);
  // So does the lease that it has become, if the list of parts is carried out again.
  for (const Command& part : parts.before)
    End(*bench.editor, std::get<EndCommand>(part), bench.context);
  CHECK(bench.state.Find("s")->leases.size() == 1);
}

TEST_CASE("a request's row follows its claim: waiting, granted, ended") {
  using Op = RequestChange::Op;
  using State = RequestRow::State;
  Bench bench;
  CreateOne(bench, "s", 1);
  bench.Win();
  CHECK(Ask(bench, 1, 1) == OutcomeKind::kGranted);
  CHECK(Ask(bench, 2, 2) == OutcomeKind::kQueued);
  std::vector<RequestChange> requests = RequestsOf(bench);
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].op == Op::kInsert);
  CHECK(requests[0].row.request == RequestKey{7, 1});
  CHECK(requests[0].row.fingerprint == Id{9, 1});
  CHECK(requests[0].row.state == State::kGranted);
  CHECK(requests[0].row.claim == MakeId(1));
  CHECK(requests[1].op == Op::kInsert);
  CHECK(requests[1].row.state == State::kWaiting);
  CHECK(requests[1].row.fingerprint == Id{9, 2});
  bench.Win();

  ReleaseCommand release = ReleaseOf("s", 1);
  release.requester = {"c", 3};
  bench.context.fingerprint = {9, 3};
  CHECK(Release(*bench.editor, release, bench.context).kind == OutcomeKind::kReleased);
  requests = RequestsOf(bench);
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].op == Op::kUpdate);
  CHECK(requests[0].row.state == State::kEnded);
  CHECK(requests[0].row.cause == EndCause::kReleased);
  CHECK(requests[1].op == Op::kInsert);
  CHECK(requests[1].row.state == State::kDone);
  CHECK(requests[2].op == Op::kUpdate);
  CHECK(requests[2].row.request == RequestKey{7, 2});
  CHECK(requests[2].row.state == State::kGranted);
  CHECK(requests[2].row.fingerprint == Id{9, 2});
}

TEST_CASE("a wait that its client gives up leaves no row; one that ends otherwise is remembered") {
  using Op = RequestChange::Op;
  Bench bench;
  CreateOne(bench, "s", 1);
  Ask(bench, 1, 1);
  Ask(bench, 2, 2);
  Ask(bench, 3, 3);
  bench.Win();
  End(*bench.editor, {.semaphore = "s", .claim = MakeId(2), .cause = EndCause::kCancelled},
      bench.context);
  End(*bench.editor, {.semaphore = "s", .claim = MakeId(3), .cause = EndCause::kWaitExpired},
      bench.context);
  // Queued and given up in one batch.
  Ask(bench, 4, 4);
  End(*bench.editor, {.semaphore = "s", .claim = MakeId(4), .cause = EndCause::kCancelled},
      bench.context);
  const std::vector<RequestChange> requests = RequestsOf(bench);
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].op == Op::kRemove);
  CHECK(requests[0].row.request == RequestKey{7, 2});
  CHECK(requests[1].op == Op::kUpdate);
  CHECK(requests[1].row.state == RequestRow::State::kWaitEnded);
  CHECK(requests[1].row.cause == EndCause::kWaitExpired);
}

TEST_CASE("a request that is refused leaves neither a row nor a new semaphore") {
  Bench bench;
  bench.context.withheld = true;
  AcquireCommand command = AcquireOf("new", 1);
  command.limit = 3;
  command.requester = {"c", 1};
  bench.context.client = 7;
  CHECK(Acquire(*bench.editor, command, bench.context).kind == OutcomeKind::kWithheld);
  bench.editor->Finish();
  CHECK(bench.transaction.empty());
  CHECK(bench.state.Find("new") == nullptr);
}

TEST_CASE("a command that is refused writes nothing and changes nothing") {
  Bench bench;
  CreateOne(bench, "s", 2);
  Acquire(*bench.editor, AcquireOf("s", 1, 2), bench.context);
  Acquire(*bench.editor, AcquireOf("s", 2, 1, true), bench.context);
  bench.Win();
  const std::string before = Picture(bench.state);
  Editor& editor = *bench.editor;
  const Context& context = bench.context;
  CHECK(Acquire(editor, AcquireOf("s", 3), context).kind == OutcomeKind::kFull);
  CHECK(Acquire(editor, AcquireOf("s", 3, 3, true), context).kind == OutcomeKind::kExceedsLimit);
  CHECK(Acquire(editor, AcquireOf("t", 3), context).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(Release(editor, ReleaseOf("s", 9), context).kind == OutcomeKind::kNotHeld);
  CHECK(Release(editor, ReleaseOf("s", 1, {7}), context).kind == OutcomeKind::kNoSuchSlot);
  CHECK(End(editor, {.semaphore = "s", .claim = MakeId(1), .cause = EndCause::kExpired, .epoch = 5},
            context)
            .kind == OutcomeKind::kStale);
  CHECK(End(editor,
            {.semaphore = "s",
             .claim = MakeId(1),
             .cause = EndCause::kWaitExpired,
             .only_waiting = true},
            context)
            .kind == OutcomeKind::kStale);
  CHECK(RecallLease(editor, {"s", MakeId(2), {}}, context).kind == OutcomeKind::kNotHeld);
  CHECK(Adopt(editor, {"s", MakeId(1)}, context).kind == OutcomeKind::kHeld);
  CHECK(AdoptSession(editor, {MakeId(8)}, context).kind == OutcomeKind::kSessionLost);
  CHECK(CloseSession(editor, {MakeId(8), 0, EndCause::kExpired}, context).kind ==
        OutcomeKind::kSessionLost);
  CHECK(Administer(editor, AdminOf("s", AdminCreate{3, {}}), context).kind ==
        OutcomeKind::kAlreadyExists);
  CHECK(Administer(editor, AdminOf("s", AdminDestroy{}), context).kind == OutcomeKind::kInUse);
  CHECK(Administer(editor, AdminOf("s", AdminDescribe{9}), context).kind == OutcomeKind::kDone);
  CHECK(bench.transaction.empty());
  CHECK(Picture(bench.state) == before);
}

TEST_CASE("advance once more grants nothing more") {
  Bench bench;
  CreateOne(bench, "s", 2);
  Acquire(*bench.editor, AcquireOf("s", 1, 2), bench.context);
  for (uint64_t id = 2; id < 6; ++id)
    Acquire(*bench.editor, AcquireOf("s", id, 1, true), bench.context);
  Release(*bench.editor, ReleaseOf("s", 1), bench.context);
  bench.Win();
  const std::string before = Picture(bench.state);
  Advance(*bench.editor, bench.state.Find("s"), bench.context);
  CHECK(bench.transaction.empty());
  CHECK(Picture(bench.state) == before);
}

TEST_CASE("a grant under a session lands only while the session has this epoch") {
  Bench bench;
  CreateOne(bench, "s", 1);
  const Id session = OpenOne(bench, 100);
  AcquireCommand under = AcquireOf("s", 1);
  under.session = session;
  Acquire(*bench.editor, under, bench.context);
  REQUIRE(bench.transaction.epochs.size() == 1);
  CHECK(bench.transaction.epochs[0].session == session);
  CHECK(bench.transaction.epochs[0].epoch == 1);
  AcquireCommand waiting = AcquireOf("s", 2, 1, true);
  waiting.session = session;
  Acquire(*bench.editor, waiting, bench.context);
  bench.Win();
  // The grant that a release brings about, by whomever, has the condition too.
  Release(*bench.editor, ReleaseOf("s", 1), bench.context);
  REQUIRE(bench.transaction.epochs.size() == 1);
  CHECK(bench.transaction.epochs[0].session == session);
  bench.Win();
  End(*bench.editor, {.semaphore = "s", .claim = MakeId(2), .cause = EndCause::kExpired},
      bench.context);
  CHECK(bench.transaction.epochs.size() == 1);
}

TEST_CASE("a detached claim needs no epoch condition: its own row has it") {
  Bench bench;
  CreateOne(bench, "s", 1);
  Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  End(*bench.editor,
      {.semaphore = "s", .claim = MakeId(1), .cause = EndCause::kExpired, .epoch = 1},
      bench.context);
  CHECK(bench.transaction.epochs.empty());
}

TEST_CASE("requests without an id leave no row") {
  Bench bench;
  CreateOne(bench, "s", 1);
  Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  Release(*bench.editor, ReleaseOf("s", 1), bench.context);
  bench.editor->Finish();
  CHECK(bench.transaction.requests.empty());
}

TEST_CASE("every lease that ends has a row in the history") {
  Bench bench;
  CreateOne(bench, "s", 4);
  for (uint64_t id = 1; id <= 4; ++id) Acquire(*bench.editor, AcquireOf("s", id), bench.context);
  bench.Win();
  Release(*bench.editor, ReleaseOf("s", 1), bench.context);
  End(*bench.editor, {.semaphore = "s", .claim = MakeId(2), .cause = EndCause::kExpired},
      bench.context);
  Administer(*bench.editor, AdminOf("s", AdminRevoke{MakeId(3), "", 0}), bench.context);
  Administer(*bench.editor, AdminOf("s", AdminDestroy{DestroyPolicy::kForce}), bench.context);
  std::vector<EndCause> causes;
  for (const HistoryRow& row : bench.transaction.history) {
    causes.push_back(row.cause);
    CHECK(row.semaphore == "s");
    CHECK(row.ended_at_unix_ms == bench.context.now_unix_ms);
  }
  CHECK(causes == std::vector{EndCause::kReleased, EndCause::kExpired, EndCause::kRevoked,
                              EndCause::kDestroyed});
}

TEST_CASE("a foreign permit counts, and is never ended by us") {
  Bench bench;
  CreateOne(bench, "s", 3);
  TakeForeign(bench, "s", 50, {1, 3});
  bench.Win();
  CHECK(Describe(*bench.state.Find("s")).held == 2);
  Outcome granted = Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  REQUIRE(granted.kind == OutcomeKind::kGranted);
  CHECK(granted.lease->slots == Slots{2});
  CHECK(Acquire(*bench.editor, AcquireOf("s", 2), bench.context).kind == OutcomeKind::kFull);
  CHECK(Release(*bench.editor, ReleaseOf("s", 50), bench.context).kind == OutcomeKind::kNotHeld);
  CHECK(End(*bench.editor, {.semaphore = "s", .claim = MakeId(50), .cause = EndCause::kExpired},
            bench.context)
            .kind == OutcomeKind::kNotHeld);
  CHECK(RecallLease(*bench.editor, {"s", MakeId(50), {Recall::Reason::kLongestHold, 0}},
                    bench.context)
            .kind == OutcomeKind::kNotHeld);
  CHECK(Administer(*bench.editor, AdminOf("s", AdminRevoke{}), bench.context).affected() == 1);
  const AdminResize shrink{AdminResize::Change::kSet, 0, 10, ShrinkPolicy::kRecall, 0};
  CHECK(Administer(*bench.editor, AdminOf("s", shrink), bench.context).affected() == 0);
  CHECK(Orphans(bench.state, {}, bench.context, true).report->orphans.empty());
  // It stays until the stranger goes, even when the semaphore is destroyed by force.
  Administer(*bench.editor, AdminOf("s", AdminDestroy{DestroyPolicy::kForce}), bench.context);
  REQUIRE(bench.state.Find("s") != nullptr);
  CHECK(bench.state.Find("s")->row.destroying);
  CHECK(bench.state.Find("s")->held == 2);
}

TEST_CASE("on a shared engine only those declared dead, and our own former lives, leave orphans") {
  Bench bench;
  CreateOne(bench, "s", 9);
  const NodeRef nodes[] = {{1, 1}, {1, 2}, {2, 1}, {3, 1}};
  for (uint64_t i = 0; i < 4; ++i) {
    bench.context.self = nodes[i];
    Acquire(*bench.editor, AcquireOf("s", i + 1), bench.context);
    OpenOne(bench, 100 + i);
  }
  bench.context.self = {1, 2};
  OrphansCommand command;
  command.dead = {{3, 1}};
  const Outcome shared = Orphans(bench.state, command, bench.context, /*exclusive=*/false);
  std::vector<Id> sessions;
  for (const Orphan& orphan : shared.report->orphans) sessions.push_back(orphan.session);
  std::ranges::sort(sessions);
  CHECK(sessions == std::vector{MakeId(1), MakeId(4), MakeId(100), MakeId(103)});
  CHECK(Orphans(bench.state, {}, bench.context, /*exclusive=*/true).report->orphans.size() == 6);
}

TEST_CASE("a moved session's claims need no write of their own") {
  Bench bench;
  CreateOne(bench, "s", 1);
  AcquireCommand under = AcquireOf("s", 1);
  under.session = OpenOne(bench, 100);
  Acquire(*bench.editor, under, bench.context);
  bench.Win();
  bench.context.self = {2, 1};
  const Outcome moved = AdoptSession(*bench.editor, {MakeId(100)}, bench.context);
  CHECK(moved.report->session->epoch == 2);
  CHECK(bench.transaction.semaphores.empty());
  REQUIRE(bench.transaction.sessions.size() == 1);
  CHECK(bench.transaction.sessions[0].before->epoch == 1);
  // An end under the old epoch is refused, one under the new lands only while it stands.
  CHECK(End(*bench.editor,
            {.semaphore = "s", .claim = MakeId(1), .cause = EndCause::kExpired, .epoch = 1},
            bench.context)
            .kind == OutcomeKind::kStale);
  CHECK(End(*bench.editor,
            {.semaphore = "s", .claim = MakeId(1), .cause = EndCause::kExpired, .epoch = 2},
            bench.context)
            .kind == OutcomeKind::kDone);
  CHECK(bench.transaction.epochs.back().epoch == 2);
}

TEST_CASE("describe cuts leases by slot and waiters by place") {
  Bench bench;
  CreateOne(bench, "s", 3);
  for (uint64_t id = 3; id >= 1; --id) Acquire(*bench.editor, AcquireOf("s", id), bench.context);
  for (uint64_t id = 11; id <= 13; ++id)
    Acquire(*bench.editor, AcquireOf("s", id, 1, true), bench.context);
  const SemaphoreInfo info =
      DescribePage(bench.state, *bench.state.Find("s"), {.rows_max = 2}, bench.context);
  REQUIRE(info.leases.size() == 2);
  CHECK(info.leases[0]->id == MakeId(3));
  CHECK(info.leases[1]->id == MakeId(2));
  REQUIRE(info.waiters.size() == 2);
  CHECK(info.waiters[1].waiter->id == MakeId(12));
  CHECK(info.waiters[1].position == 2);
  CHECK(info.held == 3);
  CHECK(info.waiting == 3);
}

TEST_CASE("a waiter at its holder's cap is not starved by the holder's later requests") {
  Bench bench;
  CreateOne(bench, "s", 10, {.permits_per_holder = 4});
  const auto ask = [&](uint64_t id, uint32_t permits, bool wait, const std::string& holder) {
    AcquireCommand command = AcquireOf("s", id, permits, wait);
    command.holder = holder;
    return Acquire(*bench.editor, command, bench.context).kind;
  };
  CHECK(ask(1, 2, false, "h") == OutcomeKind::kGranted);
  CHECK(ask(2, 2, false, "h") == OutcomeKind::kGranted);
  CHECK(ask(3, 4, true, "h") == OutcomeKind::kQueued);  // Waits for all that h may have.
  Release(*bench.editor, ReleaseOf("s", 1), bench.context);
  // h has two now: one more would fit under the cap, but stands behind the four.
  CHECK(ask(4, 1, false, "h") == OutcomeKind::kHolderCap);
  CHECK(ask(5, 1, true, "h") == OutcomeKind::kQueued);
  CHECK(ask(6, 1, false, "other") == OutcomeKind::kGranted);  // It is in no other holder's way.
  Release(*bench.editor, ReleaseOf("s", 2), bench.context);
  const Semaphore& semaphore = *bench.state.Find("s");
  CHECK(semaphore.FindLease(MakeId(3)));
  CHECK_FALSE(semaphore.FindLease(MakeId(5)));
  Release(*bench.editor, ReleaseOf("s", 3), bench.context);
  CHECK(semaphore.FindLease(MakeId(5)));
  CHECK(bench.state.CheckInvariants().empty());
}

TEST_CASE("with backfill too a waiter that the next commit lets in is not overtaken") {
  Bench bench;
  bench.context.grants_max = 1;
  CreateOne(bench, "s", 3, {.backfill = true});
  const auto acquire = [&](uint64_t id, uint32_t permits, bool wait) {
    bench.editor->BeginCommand();
    return Acquire(*bench.editor, AcquireOf("s", id, permits, wait), bench.context).kind;
  };
  REQUIRE(acquire(1, 3, false) == OutcomeKind::kGranted);
  for (uint64_t id : {2, 3}) REQUIRE(acquire(id, 1, true) == OutcomeKind::kQueued);
  REQUIRE(acquire(4, 3, true) == OutcomeKind::kQueued);
  bench.editor->BeginCommand();
  REQUIRE(Release(*bench.editor, ReleaseOf("s", 1), bench.context).kind == OutcomeKind::kReleased);
  bench.Win();
  REQUIRE(bench.state.Find("s")->held == 1);
  CHECK(acquire(5, 1, false) == OutcomeKind::kFull);
  bench.editor->BeginCommand();
  Advance(*bench.editor, bench.state.Find("s"), bench.context);
  CHECK(bench.state.Find("s")->FindLease(MakeId(3)) != nullptr);
  // The one that is too large is no reason to refuse.
  CHECK(acquire(6, 1, false) == OutcomeKind::kGranted);
}

TEST_CASE("what waits at its holder's cap costs others nothing") {
  // Counted, not timed: behind 50,000 such waiters one turn is ready.
  Bench bench;
  CreateOne(bench, "s", 1'000'000, {.permits_per_holder = 1});
  const auto ask = [&](uint64_t id, const std::string& holder) {
    AcquireCommand command = AcquireOf("s", id, 1, true);
    command.holder = holder;
    return Acquire(*bench.editor, command, bench.context).kind;
  };
  CHECK(ask(1, "greedy") == OutcomeKind::kGranted);
  for (uint64_t id = 2; id < 50'002; ++id) ask(id, "greedy");
  const Semaphore& semaphore = *bench.state.Find("s");
  CHECK(semaphore.queue.size() == 50'000);
  CHECK(semaphore.ready_queue().empty());
  CHECK(ask(100'000, "modest") == OutcomeKind::kGranted);
  Release(*bench.editor, ReleaseOf("s", 1), bench.context);
  CHECK(semaphore.FindLease(MakeId(2)));
  CHECK(semaphore.ready_queue().empty());
  CHECK(bench.state.CheckInvariants().empty());
}

TEST_CASE("of waiters at their holders' caps none is looked at, however many there are") {
  for (const bool backfill : {false, true}) {
    CAPTURE(backfill);
    CHECK(LooksOfRelease(10, backfill) == 1);
    CHECK(LooksOfRelease(10'000, backfill) == 1);
  }
}

TEST_CASE("one slot of a lease of a million goes back, and the others stay") {
  Bench bench;
  CreateOne(bench, "s", 1'000'000);
  CHECK(Acquire(*bench.editor, AcquireOf("s", 1, 1'000'000), bench.context).kind ==
        OutcomeKind::kGranted);
  CHECK(Release(*bench.editor, ReleaseOf("s", 1, {500'000}), bench.context).kind ==
        OutcomeKind::kReleased);
  const Semaphore& semaphore = *bench.state.Find("s");
  CHECK(semaphore.held == 999'999);
  CHECK(semaphore.slots.At(500'000).empty());
  CHECK(semaphore.slots.At(499'999) == MakeId(1));
  CHECK(semaphore.slots.LowestFree(1) == Slots{500'000});
  // What it costs to copy, to compare and to write a lease.
  CHECK(semaphore.FindLease(MakeId(1))->slots.runs().size() == 2);
  bench.Lose();
}

}  // namespace semaphored::ledger
