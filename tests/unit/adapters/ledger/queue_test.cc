// Whom the rules let in, and why the others wait: one answer.
#include "adapters/ledger/rules/queue.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "adapters/ledger/rules/steps.h"
#include "tests/unit/adapters/ledger/support.h"

namespace semaphored::ledger {
namespace {

// One semaphore "s", and short forms of commands about it.
struct Gate {
  explicit Gate(uint32_t limit, Settings settings = {}) {
    Administer(*bench.editor, AdminOf("s", AdminCreate{limit, settings}), bench.context);
  }
  Semaphore* semaphore() { return bench.state.Find("s"); }
  Outcome Ask(uint64_t id, uint32_t permits = 1, const std::string& holder = "h",
              int32_t priority = 0) {
    AcquireCommand command = AcquireOf("s", id, permits, true);
    command.holder = holder;
    command.priority = priority;
    return Acquire(*bench.editor, command, bench.context);
  }
  void Enqueue(uint64_t id, int32_t priority = 0) {
    EnqueueCommand command;
    command.semaphore = "s";
    command.ticket = MakeId(id);
    command.priority = priority;
    ledger::Enqueue(*bench.editor, command, bench.context);
  }
  void Offer(uint64_t id, const std::string& holder) {
    TakeCommand command;
    command.semaphore = "s";
    command.claim = command.session = MakeId(id);
    command.holder = holder;
    command.keep = OfferKept::kAlways;
    Take(*bench.editor, command, bench.context);
  }
  // No waiter is let in, unlike after the commands.
  void EndQuietly(uint64_t id) {
    if (const LeasePtr lease = semaphore()->FindLease(MakeId(id)))
      EndLease(*bench.editor, semaphore(), lease, EndCause::kExpired, bench.context);
  }
  void SetLimit(uint32_t limit) {
    bench.editor->ChangeRow(semaphore(), [&](SemaphoreRow& row) { row.limit = limit; });
  }
  // Another client of the engine that waits behind all that wait now.
  void AddForeign(uint64_t id, uint32_t permits = 1) {
    const WaiterPtr waiter = MakeWaiter(id, 0, bench.editor->TakeOrder(semaphore()), permits);
    waiter->foreign = true;
    bench.state.Apply(semaphore(), WaiterChange{nullptr, waiter, EndCause::kNone});
  }
  WaitReason Reason(uint64_t id) {
    return ReasonOf(*semaphore(), *semaphore()->FindWaiter(MakeId(id)), bench.context);
  }
  // As the pages of a list show them, by id.
  std::map<Id, WaitReason> Reasons(uint32_t rows_max) {
    std::map<Id, WaitReason> reasons;
    AdminDescribe act{.rows_max = rows_max, .leases = false};
    do {
      const SemaphoreInfo info = DescribePage(bench.state, *semaphore(), act, bench.context);
      for (const WaiterInfo& each : info.waiters) reasons[each.waiter->id] = each.reason;
      act.waiters_after = info.waiters_next;
    } while (act.waiters_after);
    return reasons;
  }
  // What the next commit does if it may let in one: the waiters and the offers that are served.
  std::vector<WaiterPtr> LetInOne() {
    const auto before = semaphore()->waiters;
    bench.context.grants_max = 1;
    bench.editor->BeginCommand();
    Advance(*bench.editor, semaphore(), bench.context);
    bench.context.grants_max = 0;
    std::vector<WaiterPtr> served;
    for (const auto& [id, waiter] : before) {
      if (!semaphore()->FindWaiter(id)) served.push_back(waiter);
    }
    return served;
  }

  Bench bench;
};

}  // namespace

TEST_CASE("admission: too few permits are free, or an earlier waiter is served first") {
  Gate gate(5);
  gate.Ask(1, 3);
  CHECK(gate.Ask(2, 3).wait_reason() == WaitReason::kFull);
  CHECK(gate.Ask(3, 1).wait_reason() == WaitReason::kBehind);
  CHECK(gate.Ask(4, 3).wait_reason() == WaitReason::kFull);
  CHECK(gate.Ask(5, 4, "h", 1).wait_reason() == WaitReason::kFull);
  CHECK(gate.Reasons(2) == std::map<Id, WaitReason>{{MakeId(2), WaitReason::kFull},
                                                    {MakeId(3), WaitReason::kBehind},
                                                    {MakeId(4), WaitReason::kFull},
                                                    {MakeId(5), WaitReason::kFull}});
}

TEST_CASE("admission: a semaphore that is closed says so before all else") {
  Gate gate(1);
  gate.Ask(1);
  gate.Ask(2);
  CHECK(gate.Reason(2) == WaitReason::kFull);
  gate.bench.context.withheld = true;
  CHECK(gate.Reason(2) == WaitReason::kWithheld);
  CHECK(gate.Ask(3).wait_reason() == WaitReason::kWithheld);
  gate.bench.editor->ChangeRow(gate.semaphore(), [](SemaphoreRow& row) { row.paused = true; });
  CHECK(gate.Reason(2) == WaitReason::kPaused);
  CHECK(gate.Ask(4).wait_reason() == WaitReason::kPaused);
  gate.bench.editor->ChangeRow(gate.semaphore(), [](SemaphoreRow& row) { row.destroying = true; });
  CHECK(gate.Reason(2) == WaitReason::kDestroying);
}

TEST_CASE("admission: what a holder asks for beyond its cap waits for its own permits") {
  Gate gate(10, {.permits_per_holder = 2});
  gate.Ask(1, 2, "a");
  CHECK(gate.Ask(2, 1, "a").wait_reason() == WaitReason::kHolderCap);
  CHECK(gate.Ask(3, 2, "a").wait_reason() == WaitReason::kHolderCap);
  CHECK(gate.Ask(4, 1, "b").kind == OutcomeKind::kGranted);
  // Behind a waiter of its own that is at the cap, though it alone would not be.
  CHECK(gate.Ask(5, 2, "b").wait_reason() == WaitReason::kHolderCap);
  CHECK(gate.Ask(6, 1, "b").wait_reason() == WaitReason::kHolderCap);
  // The cap is said also where too few are free.
  gate.SetLimit(3);
  CHECK(gate.Reason(2) == WaitReason::kHolderCap);
  CHECK(gate.Reason(6) == WaitReason::kHolderCap);
}

TEST_CASE("admission: a holder's second waiter stands behind its first, which waits for room") {
  Gate gate(3, {.backfill = true, .permits_per_holder = 3});
  gate.Ask(1, 2, "a");
  CHECK(gate.Ask(2, 2, "b").wait_reason() == WaitReason::kFull);
  CHECK(gate.Ask(3, 1, "b").wait_reason() == WaitReason::kBehind);
  CHECK(gate.Ask(4, 1, "c").kind == OutcomeKind::kGranted);
}

TEST_CASE("admission: with backfill a waiter is behind those that fit, and behind too many") {
  Gate gate(4, {.backfill = true});
  gate.bench.context.limits.backfill_depth = 2;
  gate.Ask(1, 2);
  for (uint64_t id = 2; id < 5; ++id) CHECK(gate.Ask(id, 3).wait_reason() == WaitReason::kFull);
  // Three stand before it, and two may be passed.
  CHECK(gate.Ask(5, 1).wait_reason() == WaitReason::kBehind);
  gate.bench.context.limits.backfill_depth = 3;
  CHECK(gate.Reason(5) == WaitReason::kNone);
  CHECK(gate.Ask(6, 1).wait_reason() == WaitReason::kBehind);
}

TEST_CASE("admission: what foreign clients wait for is left to them") {
  Gate gate(3, {.backfill = true, .permits_per_holder = 3});
  gate.Ask(1, 1, "a");
  gate.AddForeign(50);
  CHECK(gate.Ask(2, 2, "b").wait_reason() == WaitReason::kForeign);
  CHECK(gate.Reason(50) == WaitReason::kNone);
  CHECK(gate.Ask(3, 1, "c").kind == OutcomeKind::kGranted);
  CHECK(gate.Reason(2) == WaitReason::kFull);
  CHECK(gate.Ask(4, 1, "d").wait_reason() == WaitReason::kForeign);
  CHECK(gate.LetInOne().empty());
  CHECK(gate.Reasons(1).at(MakeId(4)) == WaitReason::kForeign);
}

TEST_CASE("admission: a waiter behind a ticket that a worker offers to take is behind") {
  Gate gate(1);
  gate.Ask(1);
  gate.Enqueue(10);
  gate.Ask(2);
  gate.EndQuietly(1);
  CHECK(gate.Reason(2) == WaitReason::kNone);
  gate.bench.context.withheld = true;
  gate.Offer(20, "w");
  gate.bench.context.withheld = false;
  CHECK(gate.Reason(2) == WaitReason::kBehind);
  CHECK(gate.Reason(20) == WaitReason::kNone);
  const std::vector<WaiterPtr> served = gate.LetInOne();
  REQUIRE(served.size() == 1);
  CHECK(served[0]->id == MakeId(20));
  CHECK(gate.Reason(2) == WaitReason::kFull);
}

namespace {

// An engine that hands out permits itself, and has none to give.
struct NoPermits final : PermitSource {
  std::optional<Permit> Take(const std::string&, const Id&, bool) override { return std::nullopt; }
  bool Withholds(const std::string&) override { return withholds; }
  bool withholds = false;
};

}  // namespace

TEST_CASE("admission: where the engine hands out permits, it has the last word") {
  Gate gate(2);
  NoPermits engine;
  gate.bench.context.permits = &engine;
  CHECK(gate.Ask(1).wait_reason() == WaitReason::kFull);
  CHECK(gate.Ask(2).wait_reason() == WaitReason::kBehind);
  gate.semaphore()->held_elsewhere = 2;
  CHECK(gate.Reasons(9) ==
        std::map<Id, WaitReason>{{MakeId(1), WaitReason::kFull}, {MakeId(2), WaitReason::kFull}});
  engine.withholds = true;
  CHECK(gate.Reason(1) == WaitReason::kWithheld);
  CHECK(gate.Ask(3).wait_reason() == WaitReason::kWithheld);
}

TEST_CASE("admission: a repeated request and an adopted claim say why they wait") {
  Gate gate(1);
  gate.Ask(1);
  gate.Ask(2);
  CHECK(Repeat(*gate.bench.editor, AcquireOf("s", 2, 1, true), MakeId(2), gate.bench.context)
            .wait_reason() == WaitReason::kFull);
  gate.bench.context.self = {2, 1};
  CHECK(Adopt(*gate.bench.editor, {"s", MakeId(2)}, gate.bench.context).wait_reason() ==
        WaitReason::kFull);
}

TEST_CASE("admission: whom a commit lets in is the waiter without a reason to wait") {
  size_t let_in = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto dice = [&](uint32_t sides) { return static_cast<uint32_t>(random() % sides); };
    Gate gate(1 + dice(8),
              {.backfill = dice(2) == 0, .permits_per_holder = dice(2) == 0 ? 0 : 2 + dice(3)});
    gate.bench.context.limits.backfill_depth = dice(4);
    const bool tickets = dice(2) == 0;
    const bool foreign = dice(2) == 0;
    uint64_t ids = 0;
    for (int round = 0; round < 12; ++round) {
      // What comes, and what goes without a look at the queue.
      for (uint32_t i = dice(8); i > 0; --i) {
        const std::string holder(1, static_cast<char>('a' + dice(4)));
        gate.Ask(++ids, 1 + dice(3), holder, static_cast<int32_t>(dice(3)));
        if (tickets && dice(4) == 0) gate.Enqueue(++ids, static_cast<int32_t>(dice(3)));
        if (tickets && dice(4) == 0) gate.Offer(++ids, holder);
        if (foreign && dice(4) == 0) gate.AddForeign(++ids);
      }
      for (uint64_t id = 1; id <= ids; ++id) {
        if (dice(4) == 0) gate.EndQuietly(id);
      }
      if (dice(3) == 0) gate.SetLimit(dice(10));
      gate.bench.context.withheld = dice(8) == 0;
      for (;;) {
        const std::map<Id, WaitReason> reasons = gate.Reasons(1 + dice(5));
        std::vector<Id> next;
        for (const auto& [id, reason] : reasons) {
          const Waiter& waiter = *gate.semaphore()->FindWaiter(id);
          // A page shows what a single question does.
          REQUIRE(reason == ReasonOf(*gate.semaphore(), waiter, gate.bench.context));
          const bool fits = Fits(*gate.semaphore(), waiter.permits);
          if (reason == WaitReason::kFull) REQUIRE_FALSE(fits);
          if (reason == WaitReason::kBehind || reason == WaitReason::kForeign ||
              reason == WaitReason::kNone)
            REQUIRE(fits);
          if (reason == WaitReason::kNone && !waiter.foreign) next.push_back(id);
        }
        REQUIRE(next.size() <= 1);
        const std::vector<WaiterPtr> served = gate.LetInOne();
        REQUIRE(served.size() <= 1);
        const bool offer = !served.empty() && served[0]->works;
        REQUIRE(next == (served.empty() || offer ? std::vector<Id>{} : std::vector{served[0]->id}));
        REQUIRE(gate.bench.state.CheckInvariants().empty());
        if (served.empty()) break;
        ++let_in;
      }
    }
  }
  CHECK(let_in > 400);
}

TEST_CASE("admission: whether a ticket may be taken is found without a walk past the waiters") {
  constexpr uint64_t kWaiters = 20'000;
  const bool backfill = GENERATE(false, true);
  CAPTURE(backfill);
  Gate gate(3, {.backfill = backfill});
  gate.Ask(1, 2);
  for (uint64_t id = 2; id < kWaiters; ++id) gate.Ask(id, 2);
  gate.Enqueue(kWaiters);
  const Semaphore& semaphore = *gate.semaphore();
  const Limits limits;
  // What Take asks; it counts the waiters that it looks at.
  const QueuePlace ticket = semaphore.eligible.begin()->first;
  CHECK(Ahead::Of(ticket, semaphore, limits).passed() <=
        (backfill ? limits.backfill_depth + 1 : 1));
  TakeCommand take;
  take.semaphore = "s";
  take.claim = take.session = MakeId(kWaiters + 1);
  CHECK(Take(*gate.bench.editor, take, gate.bench.context).kind == OutcomeKind::kFull);
  // Before all of them: the first that it would look at stands behind the ticket.
  gate.Enqueue(kWaiters + 2, /*priority=*/1);
  const QueuePlace urgent = semaphore.eligible.begin()->first;
  CHECK(Ahead::Of(urgent, semaphore, limits).passed() == 0);
  CHECK(Take(*gate.bench.editor, take, gate.bench.context).kind == OutcomeKind::kGranted);
}

TEST_CASE("admission: of those at their holder's cap none is in the way, nor looked at") {
  constexpr uint64_t kWaiters = 1'000;
  const bool backfill = GENERATE(false, true);
  CAPTURE(backfill);
  Gate gate(2, {.backfill = backfill, .permits_per_holder = 1});
  for (uint64_t id = 1; id <= kWaiters; ++id) gate.Ask(id, 1, "greedy");
  const Semaphore& semaphore = *gate.semaphore();
  REQUIRE(semaphore.queue.size() == kWaiters - 1);
  const Limits limits;
  const QueuePlace next{0, semaphore.row.next_order};
  Ahead ahead = Ahead::Of(next, semaphore, limits);
  CHECK(ahead.passed() == 0);
  CHECK(ahead.WhyNot(next, 1) == WaitReason::kNone);
  CHECK(gate.Ask(kWaiters + 1, 1, "modest").kind == OutcomeKind::kGranted);
}

}  // namespace semaphored::ledger
