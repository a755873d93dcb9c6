// Why each waiter waits, and rows in pages.
#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

using Why = WaitReason;

// Of the waiters as they are listed, in order.
std::vector<Why> WhysOf(Daemon& daemon) {
  std::vector<Why> whys;
  for (const WaiterInfo& each : daemon.Describe("s").waiters) whys.push_back(each.reason);
  return whys;
}

Why WhyQueued(Daemon& daemon, Ask ask) {
  ask.wait = true;
  const Outcome outcome = daemon.Acquire("s", ask);
  REQUIRE(outcome.kind == OutcomeKind::kQueued);
  return outcome.wait_reason();
}

SemaphoreInfo PageOf(Daemon& daemon, const AdminDescribe& act) {
  const Outcome outcome = daemon.Administer("s", act);
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  return *outcome.report->info;
}

// All names, page by page.
std::vector<size_t> PagesOfNames(Daemon& daemon, const std::string& prefix, uint32_t rows_max) {
  std::vector<size_t> sizes;
  ListCommand list{prefix, "", rows_max};
  for (;;) {
    const Outcome outcome = daemon.Do(list);
    REQUIRE(outcome.kind == OutcomeKind::kDone);
    sizes.push_back(outcome.report->infos.size());
    if (!outcome.report->more) return sizes;
    list.after = outcome.report->infos.back().row.name;
  }
}

}  // namespace

CONTRACT_CASE("a waiter of a full semaphore waits for permits") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  CHECK(WhyQueued(daemon, {}) == Why::kFull);
  CHECK(WhyQueued(daemon, {.priority = 1}) == Why::kFull);
  CHECK(WhysOf(daemon) == std::vector{Why::kFull, Why::kFull});
}

CONTRACT_CASE("a waiter behind a larger one that does not fit says so") {
  if (!world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const LeasePtr lease = daemon.Grant("s", {.permits = 2});
  CHECK(WhyQueued(daemon, {.permits = 3}) == Why::kFull);
  CHECK(WhyQueued(daemon, {}) == Why::kBehind);
  CHECK(WhyQueued(daemon, {.permits = 2}) == Why::kFull);
  CHECK(WhysOf(daemon) == std::vector{Why::kFull, Why::kBehind, Why::kFull});
  daemon.GiveBack("s", lease->id);
  CHECK(WhysOf(daemon) == std::vector{Why::kFull, Why::kFull});
}

CONTRACT_CASE("a waiter that is passed over waits for its holder's own permits") {
  if (!world.guarantees().holder_cap) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3, {.permits_per_holder = 1});
  daemon.Grant("s", {.holder = "a"});
  CHECK(WhyQueued(daemon, {.holder = "a"}) == Why::kHolderCap);
  CHECK(WhyQueued(daemon, {.holder = "a"}) == Why::kHolderCap);
  daemon.Grant("s", {.holder = "b"});
  daemon.Grant("s", {.holder = "c"});
  CHECK(WhyQueued(daemon, {.holder = "d"}) == Why::kFull);
  CHECK(WhysOf(daemon) == std::vector{Why::kHolderCap, Why::kHolderCap, Why::kFull});
}

CONTRACT_CASE("what waits for a paused semaphore waits for that") {
  if (!world.guarantees().settings) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  daemon.Queue("s");
  daemon.Administer("s", AdminPause{true});
  CHECK(WhyQueued(daemon, {}) == Why::kPaused);
  CHECK(WhysOf(daemon) == std::vector{Why::kPaused, Why::kPaused});
  daemon.Administer("s", AdminPause{false});
  CHECK(WhysOf(daemon) == std::vector{Why::kFull, Why::kFull});
}

CONTRACT_CASE("a repeated request that waits says why") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Grant("s");
  const Ask ask = {.wait = true, .client = "c", .sequence = 1};
  CHECK(daemon.Acquire("s", ask).wait_reason() == Why::kFull);
  CHECK(daemon.Acquire("s", ask).wait_reason() == Why::kFull);
}

CONTRACT_CASE("shared: a waiter of one daemon is behind that of another") {
  if (!SharesClaims(world) || !world.guarantees().weighted) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 2);
  a.Grant("s");
  CHECK(WhyQueued(a, {.permits = 2}) == Why::kFull);
  CHECK(WhyQueued(b, {}) == Why::kBehind);
  CHECK(WhysOf(b) == std::vector{Why::kFull, Why::kBehind});
  CHECK(WhysOf(a) == std::vector{Why::kFull, Why::kBehind});
}

CONTRACT_CASE("describe goes through leases and waiters in pages, and says where each goes on") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5);
  std::vector<Id> holders;
  for (int i = 0; i < 5; ++i) holders.push_back(daemon.Grant("s")->id);
  for (int i = 0; i < 4; ++i) daemon.Queue("s", {.priority = i % 2});
  std::vector<Id> leases;
  std::vector<Id> waiters;
  AdminDescribe act{.rows_max = 2};
  for (int page = 1; act.leases || act.waiters; ++page) {
    REQUIRE(page <= 3);
    const SemaphoreInfo info = PageOf(daemon, act);
    CHECK(info.held == 5);
    CHECK(info.waiting == 4);
    for (const LeasePtr& lease : info.leases) leases.push_back(lease->id);
    for (const WaiterInfo& each : info.waiters) {
      waiters.push_back(each.waiter->id);
      CHECK(each.position == waiters.size());
      CHECK(each.reason == Why::kFull);
    }
    CHECK(info.leases_next.has_value() == (page < 3));
    CHECK(info.waiters_next.has_value() == (page < 2));
    act.leases_after = info.leases_next;
    act.waiters_after = info.waiters_next;
    act.leases = info.leases_next.has_value();
    act.waiters = info.waiters_next.has_value();
  }
  CHECK(std::set(leases.begin(), leases.end()) == std::set(holders.begin(), holders.end()));
  CHECK(leases.size() == 5);
  CHECK(waiters == WaitersIn(daemon.Describe("s")));
}

CONTRACT_CASE("between two pages rows come and go, and those that stay are in one of them") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  std::vector<LeasePtr> leases;
  for (int i = 0; i < 4; ++i) leases.push_back(daemon.Grant("s"));
  std::vector<Id> waiters;
  for (int i = 0; i < 5; ++i) waiters.push_back(daemon.Queue("s"));
  const SemaphoreInfo first = PageOf(daemon, {.rows_max = 2});
  REQUIRE(first.leases.size() == 2);
  CHECK(WaitersIn(first) == std::vector{waiters[0], waiters[1]});
  // One that was shown goes, and one that was not; another passes them all.
  daemon.EndWait("s", waiters[0], EndCause::kCancelled);
  daemon.EndWait("s", waiters[2], EndCause::kCancelled);
  const Id urgent = daemon.Queue("s", {.priority = 9});
  const Id last = daemon.Queue("s");
  const SemaphoreInfo second = PageOf(
      daemon,
      {.rows_max = 10, .leases_after = first.leases_next, .waiters_after = first.waiters_next});
  CHECK(WaitersIn(second) == std::vector{waiters[3], waiters[4], last});
  CHECK(second.waiters.at(0).position == 3);
  CHECK(WaitersIn(daemon.Describe("s")).front() == urgent);
  std::set<Id> shown;
  for (const SemaphoreInfo* page : {&first, &second}) {
    for (const LeasePtr& lease : page->leases) CHECK(shown.insert(lease->id).second);
  }
  CHECK(shown.size() == 4);
  CHECK_FALSE(second.leases_next);
  CHECK_FALSE(second.waiters_next);
}

CONTRACT_CASE("a lease that gives back its lowest slots between two pages is shown once") {
  if (!world.guarantees().weighted || !world.guarantees().lowest_slot) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 6);
  const Id first = daemon.Grant("s", {.permits = 2})->id;
  const Id second = daemon.Grant("s", {.permits = 2})->id;
  const Id third = daemon.Grant("s")->id;
  const SemaphoreInfo page = PageOf(daemon, {.rows_max = 1});
  REQUIRE(page.leases.size() == 1);
  CHECK(page.leases[0]->id == first);
  CHECK(daemon.Release("s", first, {1}).kind == OutcomeKind::kReleased);
  CHECK(daemon.Release("s", second, {3}).kind == OutcomeKind::kReleased);
  const SemaphoreInfo rest = PageOf(daemon, {.rows_max = 9, .leases_after = page.leases_next});
  REQUIRE(rest.leases.size() == 2);
  CHECK(rest.leases[0]->id == second);
  CHECK(rest.leases[0]->slots == Slots{4});
  CHECK(rest.leases[1]->id == third);
}

CONTRACT_CASE("a list says that there is more exactly if there is") {
  if (!world.guarantees().names) return;
  Daemon& daemon = world.daemon();
  std::vector<Command> creates;
  for (int i = 0; i < 105; ++i) {
    creates.push_back(AdminCommand{{}, "n/" + std::to_string(1000 + i), 0, AdminCreate{1, {}}});
  }
  for (const Outcome& outcome : daemon.DoAll(std::move(creates)))
    REQUIRE(outcome.kind == OutcomeKind::kDone);
  // Where each row is a question of its own a page may have fewer rows, and then says that there is more.
  const auto check = [&](const std::string& prefix, uint32_t rows_max, size_t all, size_t pages) {
    const std::vector<size_t> sizes = PagesOfNames(daemon, prefix, rows_max);
    CHECK(std::accumulate(sizes.begin(), sizes.end(), size_t{0}) == all);
    for (const size_t size : sizes) CHECK((size > 0 && size <= rows_max));
    if (world.guarantees().exclusive) CHECK(sizes.size() == pages);
    CHECK(sizes.size() >= pages);
  };
  check("n/", 100, 105, 2);
  check("n/10", 100, 100, 1);
  check("n/", 105, 105, 1);
  check("n/", 35, 105, 3);
}

}  // namespace semaphored::contract
