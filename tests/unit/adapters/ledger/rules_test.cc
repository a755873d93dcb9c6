// What the rules write into a transaction, and what only shared and foreign engines meet. What
// becomes of each command is the contract's (tests/contract).
#include <algorithm>

#include <catch2/catch_test_macros.hpp>

#include "adapters/ledger/rules/rules.h"
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

}  // namespace

TEST_CASE("where leases answer, that a request was granted is remembered when its lease ends") {
  Bench bench;
  CreateOne(bench, "s", 1);
  bench.Win();
  Transaction transaction;
  Editor editor(&bench.state, &transaction, /*leases_answer=*/true);
  const auto acquire = [&](uint64_t sequence, uint64_t claim) {
    AcquireCommand command = AcquireOf("s", claim, 1, true);
    command.requester = {"c", sequence};
    bench.context.client = 7;
    return Acquire(editor, command, bench.context).kind;
  };
  CHECK(acquire(1, 1) == OutcomeKind::kGranted);
  CHECK(acquire(2, 2) == OutcomeKind::kQueued);
  CHECK(transaction.answers.empty());
  ReleaseCommand release = ReleaseOf("s", 1);
  release.requester = {"c", 3};
  CHECK(Release(editor, release, bench.context).kind == OutcomeKind::kReleased);
  // Of the one who waited it is not remembered yet.
  REQUIRE(transaction.answers.size() == 2);
  CHECK(transaction.answers[0].request == RequestKey{7, 1});
  CHECK(transaction.answers[0].kind == Answer::Kind::kGranted);
  CHECK(transaction.answers[0].semaphore == "s");
  CHECK(transaction.answers[0].cause == EndCause::kReleased);
  CHECK(transaction.answers[1].request == RequestKey{7, 3});
  CHECK(transaction.answers[1].kind == Answer::Kind::kReleased);
  End(editor, {"s", MakeId(2), EndCause::kExpired, 0, false}, bench.context);
  REQUIRE(transaction.answers.size() == 3);
  CHECK(transaction.answers[2].request == RequestKey{7, 2});
  CHECK(transaction.answers[2].cause == EndCause::kExpired);
}

TEST_CASE("what is kept of a claim tells it from others") {
  Answer answer;
  answer.claim = Id{5, (uint64_t{9} << 40) | 77};
  CHECK(answer.IsAbout(answer.claim));
  CHECK_FALSE(answer.IsAbout(Id{5, 77}));
  answer.claim = Answer::MarkOf(answer.claim);
  CHECK(answer.IsAbout(Id{5, (uint64_t{9} << 40) | 77}));
  CHECK_FALSE(answer.IsAbout(Id{5, (uint64_t{9} << 40) | 78}));
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
  CHECK(End(editor, {"s", MakeId(1), EndCause::kExpired, 5, false}, context).kind ==
        OutcomeKind::kStale);
  CHECK(End(editor, {"s", MakeId(1), EndCause::kWaitExpired, 0, true}, context).kind ==
        OutcomeKind::kStale);
  CHECK(AskBack(editor, {"s", MakeId(2), {}}, context).kind == OutcomeKind::kNotHeld);
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
  End(*bench.editor, {"s", MakeId(2), EndCause::kExpired, 0, false}, bench.context);
  CHECK(bench.transaction.epochs.size() == 1);
}

TEST_CASE("a detached claim needs no epoch condition: its own row has it") {
  Bench bench;
  CreateOne(bench, "s", 1);
  Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  End(*bench.editor, {"s", MakeId(1), EndCause::kExpired, 1, false}, bench.context);
  CHECK(bench.transaction.epochs.empty());
}

TEST_CASE("the answer to a wait is remembered for the one who waited") {
  Bench bench;
  CreateOne(bench, "s", 1);
  Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  bench.context.client = 7;
  AcquireCommand waiting = AcquireOf("s", 2, 1, true);
  waiting.requester = {"seven", 3};
  Acquire(*bench.editor, waiting, bench.context);
  bench.Win();
  bench.context.client = 8;
  ReleaseCommand release = ReleaseOf("s", 1);
  release.requester = {"eight", 1};
  Release(*bench.editor, release, bench.context);
  REQUIRE(bench.transaction.answers.size() == 2);
  for (const Answer& answer : bench.transaction.answers) {
    const bool granted = answer.kind == Answer::Kind::kGranted;
    CHECK(answer.request == (granted ? RequestKey{7, 3} : RequestKey{8, 1}));
    CHECK(answer.claim == MakeId(granted ? 2 : 1));
  }
}

TEST_CASE("requests without an id leave no answer") {
  Bench bench;
  CreateOne(bench, "s", 1);
  Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  Release(*bench.editor, ReleaseOf("s", 1), bench.context);
  CHECK(bench.transaction.answers.empty());
}

TEST_CASE("every lease that ends has a row in the history") {
  Bench bench;
  CreateOne(bench, "s", 4);
  for (uint64_t id = 1; id <= 4; ++id) Acquire(*bench.editor, AcquireOf("s", id), bench.context);
  bench.Win();
  Release(*bench.editor, ReleaseOf("s", 1), bench.context);
  End(*bench.editor, {"s", MakeId(2), EndCause::kExpired, 0, false}, bench.context);
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
  CHECK(Describe(*bench.state.Find("s"), 0).held == 2);
  Outcome granted = Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  REQUIRE(granted.kind == OutcomeKind::kGranted);
  CHECK(granted.lease->slots == Slots{2});
  CHECK(Acquire(*bench.editor, AcquireOf("s", 2), bench.context).kind == OutcomeKind::kFull);
  CHECK(Release(*bench.editor, ReleaseOf("s", 50), bench.context).kind == OutcomeKind::kNotHeld);
  CHECK(End(*bench.editor, {"s", MakeId(50), EndCause::kExpired, 0, false}, bench.context).kind ==
        OutcomeKind::kNotHeld);
  CHECK(AskBack(*bench.editor, {"s", MakeId(50), {Recall::Reason::kLongestHold, 0}}, bench.context)
            .kind == OutcomeKind::kNotHeld);
  CHECK(Administer(*bench.editor, AdminOf("s", AdminRevoke{}), bench.context).number == 1);
  const AdminResize shrink{AdminResize::Change::kSet, 0, 10, ShrinkPolicy::kRecall, 0};
  CHECK(Administer(*bench.editor, AdminOf("s", shrink), bench.context).number == 0);
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
  CHECK(End(*bench.editor, {"s", MakeId(1), EndCause::kExpired, 1, false}, bench.context).kind ==
        OutcomeKind::kStale);
  CHECK(End(*bench.editor, {"s", MakeId(1), EndCause::kExpired, 2, false}, bench.context).kind ==
        OutcomeKind::kDone);
  CHECK(bench.transaction.epochs.back().epoch == 2);
}

TEST_CASE("describe cuts leases by slot and waiters by place") {
  Bench bench;
  CreateOne(bench, "s", 3);
  for (uint64_t id = 3; id >= 1; --id) Acquire(*bench.editor, AcquireOf("s", id), bench.context);
  for (uint64_t id = 11; id <= 13; ++id)
    Acquire(*bench.editor, AcquireOf("s", id, 1, true), bench.context);
  const SemaphoreInfo info = Describe(*bench.state.Find("s"), 2);
  REQUIRE(info.leases.size() == 2);
  CHECK(info.leases[0]->id == MakeId(3));
  CHECK(info.leases[1]->id == MakeId(2));
  REQUIRE(info.waiters.size() == 2);
  CHECK(info.waiters[1].waiter->id == MakeId(12));
  CHECK(info.waiters[1].position == 2);
  CHECK(info.held == 3);
  CHECK(info.waiting == 3);
}

}  // namespace semaphored::ledger
