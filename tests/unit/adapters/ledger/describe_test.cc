// Leases and waiters in pages, while rows come and go between them.
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/state/transaction.h"
#include "tests/unit/adapters/ledger/support.h"

namespace semaphored::ledger {
namespace {

// A walk through the rows of "s", page by page.
struct RowWalk {
  bool NextPage(Bench& bench) {
    const SemaphoreInfo info =
        DescribePage(bench.state, *bench.state.Find("s"), act, bench.context);
    CHECK(info.leases.size() <= act.rows_max);
    CHECK(info.waiters.size() <= act.rows_max);
    for (const LeasePtr& lease : info.leases) leases.push_back(lease->id);
    for (const WaiterInfo& each : info.waiters) {
      CHECK(each.position == bench.state.Find("s")->PositionOf(*each.waiter));
      waiters.push_back(each.waiter->id);
    }
    act.leases = info.leases_next.has_value();
    act.waiters = info.waiters_next.has_value();
    act.leases_after = info.leases_next;
    act.waiters_after = info.waiters_next;
    return act.leases || act.waiters;
  }

  AdminDescribe act;
  std::vector<Id> leases;
  std::vector<Id> waiters;
};

std::set<Id> LeasesOf(const Bench& bench) {
  std::set<Id> ids;
  for (const auto& [id, lease] : bench.state.Find("s")->leases) ids.insert(id);
  return ids;
}

std::set<Id> WaitersOf(const Bench& bench) {
  std::set<Id> ids;
  for (const auto& [place, waiter] : bench.state.Find("s")->queue) ids.insert(waiter->id);
  return ids;
}

// What stood all the time is listed once, and nothing is listed twice.
void CheckListed(const std::vector<Id>& listed, const std::set<Id>& stood) {
  const std::set<Id> once(listed.begin(), listed.end());
  CHECK(once.size() == listed.size());
  for (const Id& id : stood) CHECK(once.contains(id));
}

void KeepCommon(std::set<Id>* stood, const std::set<Id>& now) {
  std::erase_if(*stood, [&](const Id& id) { return !now.contains(id); });
}

// One random command, or what another client of the engine does.
void Churn(Bench& bench, std::mt19937& random, uint64_t* ids) {
  const auto dice = [&](uint32_t sides) { return static_cast<uint32_t>(random() % sides); };
  Semaphore* semaphore = bench.state.Find("s");
  const uint64_t some = 1 + random() % (*ids + 1);
  const LeasePtr lease = semaphore->FindLease(MakeId(some));
  switch (dice(6)) {
    case 0:
    case 1: {
      AcquireCommand command = AcquireOf("s", ++*ids, 1 + dice(4), true);
      command.priority = static_cast<int32_t>(dice(3));
      Acquire(*bench.editor, command, bench.context);
      return;
    }
    case 2:  // Its lowest slots, or all.
      if (!lease || lease->foreign) return;
      Release(*bench.editor,
              ReleaseOf("s", some, dice(3) == 0 ? Slots{} : Slots{lease->slots.front()}),
              bench.context);
      return;
    case 3:
      End(*bench.editor, {.semaphore = "s", .claim = MakeId(some)}, bench.context);
      return;
    case 4: {  // Another client of the engine comes, or what it has is read with other slots.
      const LeasePtr foreign = MakeLease(9'000 + dice(3), semaphore->slots.LowestFree(2), "f");
      foreign->foreign = true;
      SemaphoreDelta delta;
      delta.leases.push_back({semaphore->FindLease(foreign->id), foreign, EndCause::kNone});
      const WaiterPtr waiter = MakeWaiter(9'100 + *ids, 0, bench.editor->TakeOrder(semaphore));
      waiter->foreign = true;
      if (!semaphore->FindWaiter(waiter->id))
        delta.waiters.push_back({nullptr, waiter, EndCause::kNone});
      ApplyAtOnce(delta, semaphore, &bench.state);
      return;
    }
    default: {  // Another daemon's partial release, as this one reads it.
      if (!lease || lease->slots.size() < 2 || lease->foreign) return;
      auto read = MakeLease(some, lease->slots.Without({lease->slots.front()}), lease->holder);
      SemaphoreDelta delta;
      delta.leases.push_back({lease, std::move(read), EndCause::kNone});
      ApplyAtOnce(delta, semaphore, &bench.state);
    }
  }
}

}  // namespace

TEST_CASE("describe: a list that ends with a page says that there is nothing more") {
  Bench bench;
  Administer(*bench.editor, AdminOf("s", AdminCreate{3, {}}), bench.context);
  for (uint64_t id = 1; id <= 6; ++id)
    Acquire(*bench.editor, AcquireOf("s", id, 1, true), bench.context);
  const Semaphore& semaphore = *bench.state.Find("s");
  const auto page = [&](AdminDescribe act) {
    return DescribePage(bench.state, semaphore, act, bench.context);
  };
  const SemaphoreInfo all = page({.rows_max = 3});
  CHECK(all.leases.size() == 3);
  CHECK(all.waiters.size() == 3);
  CHECK_FALSE(all.leases_next);
  CHECK_FALSE(all.waiters_next);
  const SemaphoreInfo some = page({.rows_max = 2});
  CHECK(some.leases_next == LeasePlace{2, MakeId(2)});
  CHECK(some.waiters_next == PlaceOf(*semaphore.FindWaiter(MakeId(5))));
  const SemaphoreInfo rest = page({.rows_max = 2,
                                   .leases_after = some.leases_next,
                                   .waiters_after = some.waiters_next,
                                   .leases = false});
  CHECK(rest.leases.empty());
  REQUIRE(rest.waiters.size() == 1);
  CHECK(rest.waiters[0].waiter->id == MakeId(6));
  CHECK(rest.waiters[0].position == 3);
  CHECK_FALSE(rest.waiters_next);
  const SemaphoreInfo none = page({});
  CHECK(none.leases.empty());
  CHECK_FALSE(none.leases_next);
  CHECK_FALSE(none.waiters_next);
}

TEST_CASE("describe: no row that stands is missed or shown twice, whatever comes and goes") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Bench bench;
    Administer(*bench.editor, AdminOf("s", AdminCreate{40, {}}), bench.context);
    uint64_t ids = 0;
    for (int i = 0; i < 60; ++i) Churn(bench, random, &ids);
    RowWalk walk;
    walk.act.rows_max = 1 + random() % 6;
    std::set<Id> leases = LeasesOf(bench);
    std::set<Id> waiters = WaitersOf(bench);
    while (walk.NextPage(bench)) {
      for (uint32_t i = random() % 8; i > 0; --i) Churn(bench, random, &ids);
      KeepCommon(&leases, LeasesOf(bench));
      KeepCommon(&waiters, WaitersOf(bench));
      if (random() % 2 == 0) bench.Win();
    }
    CheckListed(walk.leases, leases);
    // (A waiter that is granted between the two pages may be in both lists.)
    CheckListed(walk.waiters, waiters);
    REQUIRE(bench.state.CheckInvariants().empty());
  }
}

TEST_CASE("describe: a release that is taken back leaves the lease where it was listed") {
  Bench bench;
  Administer(*bench.editor, AdminOf("s", AdminCreate{9, {}}), bench.context);
  Acquire(*bench.editor, AcquireOf("s", 1, 3), bench.context);
  Acquire(*bench.editor, AcquireOf("s", 2, 3), bench.context);
  bench.Win();
  const auto listed = [&] {
    std::vector<Id> ids;
    const AdminDescribe act{.rows_max = 9};
    for (const LeasePtr& lease :
         DescribePage(bench.state, *bench.state.Find("s"), act, bench.context).leases)
      ids.push_back(lease->id);
    return ids;
  };
  Release(*bench.editor, ReleaseOf("s", 1, {1, 2}), bench.context);
  Acquire(*bench.editor, AcquireOf("s", 3, 1), bench.context);  // Slot 1.
  CHECK(bench.state.Find("s")->listed_apart.size() == 1);
  CHECK(listed() == std::vector{MakeId(1), MakeId(3), MakeId(2)});
  bench.Lose();
  CHECK(bench.state.Find("s")->listed_apart.empty());
  CHECK(listed() == std::vector{MakeId(1), MakeId(2)});
  Release(*bench.editor, ReleaseOf("s", 1, {1}), bench.context);
  Release(*bench.editor, ReleaseOf("s", 1), bench.context);
  CHECK(bench.state.Find("s")->listed_apart.empty());
  CHECK(listed() == std::vector{MakeId(2)});
}

}  // namespace semaphored::ledger
