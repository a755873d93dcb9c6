// Administration that changes no limit: create, configure, pause, revoke, and the questions.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

Outcome ListNames(Daemon& daemon, const std::string& prefix, const std::string& after,
                  uint32_t rows_max) {
  Outcome outcome = daemon.Do(ListCommand{prefix, after, rows_max});
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  REQUIRE(outcome.report != nullptr);
  return outcome;
}

std::vector<std::string> NamesIn(const Outcome& outcome) {
  std::vector<std::string> names;
  for (const SemaphoreInfo& info : outcome.report->infos) names.push_back(info.row.name);
  return names;
}

}  // namespace

CONTRACT_CASE("create makes a semaphore with limit and settings") {
  if (!world.guarantees().settings) return;
  Daemon& daemon = world.daemon();
  const Settings settings{.backfill = true,
                          .longest_hold_ms = 9'000,
                          .recall_grace_ms = 0,
                          .permits_per_holder = world.guarantees().holder_cap ? 2u : 0u,
                          .waiters_max = 7};
  const Outcome outcome = daemon.Administer("s", AdminCreate{5, settings});
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.changed);
  const SemaphoreInfo info = daemon.Describe("s");
  CHECK(info.row.limit == 5);
  CHECK(info.row.settings == settings);
  CHECK(info.row.created_at_unix_ms == world.now_unix_ms());
  CHECK(outcome.report->info->row == info.row);
}

CONTRACT_CASE("create of the same again changes nothing, of another is refused") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5);
  const Outcome same = daemon.Administer("s", AdminCreate{5, {}});
  CHECK(same.kind == OutcomeKind::kDone);
  CHECK_FALSE(same.changed);
  const Outcome other_limit = daemon.Administer("s", AdminCreate{6, {}});
  CHECK(other_limit.kind == OutcomeKind::kAlreadyExists);
  CHECK(other_limit.report->info->row.limit == 5);
  CHECK(daemon.Administer("s", AdminCreate{5, {.backfill = true}}).kind ==
        (world.guarantees().settings ? OutcomeKind::kAlreadyExists : OutcomeKind::kUnsupported));
  CHECK(daemon.Describe("s").row.limit == 5);
}

CONTRACT_CASE("configure replaces all settings") {
  if (!world.guarantees().settings) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5,
                {.backfill = true,
                 .permits_per_holder = world.guarantees().holder_cap ? 2u : 0u,
                 .waiters_max = 3});
  const Settings settings{.longest_hold_ms = 1'000};
  const Outcome outcome = daemon.Administer("s", AdminConfigure{settings});
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(daemon.Describe("s").row.settings == settings);
  CHECK(daemon.Describe("s").row.limit == 5);
}

CONTRACT_CASE("an act on what does not exist says so") {
  Daemon& daemon = world.daemon();
  CHECK(daemon.Administer("s", AdminResize{}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Administer("s", AdminConfigure{}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Administer("s", AdminDestroy{}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Administer("s", AdminPause{}).kind ==
        (world.guarantees().settings ? OutcomeKind::kNoSuchSemaphore : OutcomeKind::kUnsupported));
  CHECK(daemon.Administer("s", AdminRevoke{}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Administer("s", AdminPrune{}).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(daemon.Administer("s", AdminDescribe{}).kind == OutcomeKind::kNoSuchSemaphore);
}

CONTRACT_CASE("describe lists leases by slot and waiters by place, as many as asked for") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  std::vector<Id> holders;
  for (int i = 0; i < 3; ++i) holders.push_back(daemon.Grant("s")->id);
  std::vector<Id> waiters;
  for (int i = 0; i < 3; ++i) waiters.push_back(daemon.Queue("s"));
  const SemaphoreInfo all = daemon.Describe("s");
  REQUIRE(all.leases.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(all.leases[i]->id == holders[i]);
  CHECK(WaitersIn(all) == waiters);
  CHECK(all.held == 3);
  CHECK(all.waiting == 3);
  const SemaphoreInfo some = daemon.Describe("s", 2);
  REQUIRE(some.leases.size() == 2);
  CHECK(some.leases[1]->id == holders[1]);
  CHECK(WaitersIn(some) == std::vector{waiters[0], waiters[1]});
  CHECK(some.held == 3);
  CHECK(some.waiting == 3);
  const SemaphoreInfo none = daemon.Describe("s", 0);
  CHECK(none.leases.empty());
  CHECK(none.waiters.empty());
  CHECK(none.held == 3);
}

CONTRACT_CASE("list goes through the names in order, page by page") {
  if (!world.guarantees().names) return;
  Daemon& daemon = world.daemon();
  for (const char* name : {"b/2", "a", "b/1", "c", "b", "b/10"}) daemon.Create(name, 1);
  const Outcome all = ListNames(daemon, "", "", 100);
  CHECK(NamesIn(all) == std::vector<std::string>{"a", "b", "b/1", "b/10", "b/2", "c"});
  CHECK_FALSE(all.report->more);
  const Outcome first = ListNames(daemon, "b", "", 2);
  CHECK(NamesIn(first) == std::vector<std::string>{"b", "b/1"});
  CHECK(first.report->more);
  const Outcome second = ListNames(daemon, "b", "b/1", 2);
  CHECK(NamesIn(second) == std::vector<std::string>{"b/10", "b/2"});
  CHECK_FALSE(second.report->more);
  CHECK(NamesIn(ListNames(daemon, "b/", "", 100)) ==
        std::vector<std::string>{"b/1", "b/10", "b/2"});
  CHECK(NamesIn(ListNames(daemon, "nothing", "", 100)).empty());
  CHECK(NamesIn(ListNames(daemon, "b", "b/2", 100)).empty());
  CHECK(NamesIn(ListNames(daemon, "", "between", 100)) == std::vector<std::string>{"c"});
}

CONTRACT_CASE("list shows what is held and waiting") {
  Daemon& daemon = world.daemon();
  daemon.Create("a", 2);
  daemon.Grant("a");
  daemon.Grant("a");
  const Id first = daemon.Queue("a");
  daemon.Queue("a", {.priority = 5});
  daemon.Create("b", 1);
  std::vector<SemaphoreInfo> infos;
  // Where not all are known, each is named in full.
  const bool all = world.guarantees().names;
  for (const char* name : all ? std::vector{""} : std::vector{"a", "b"}) {
    Outcome outcome = ListNames(daemon, name, "", 100);
    for (SemaphoreInfo& info : outcome.report->infos) infos.push_back(std::move(info));
  }
  REQUIRE(infos.size() == 2);
  CHECK(infos[0].held == 2);
  CHECK(infos[0].waiting == 2);
  // The one that has waited the longest; not of DynamoDB's list, which has numbers alone.
  const bool has_waiters = world.guarantees().adapter != "dynamodb";
  REQUIRE(infos[0].waiters.size() == (has_waiters ? 1 : 0));
  if (has_waiters) CHECK(infos[0].waiters[0].waiter->id == first);
  CHECK(infos[1].waiters.empty());
  CHECK(infos[0].row.limit == 2);
  CHECK(infos[0].row.revision == daemon.Describe("a").row.revision);
  CHECK(infos[1].held == 0);
}

CONTRACT_CASE("an act under an expected revision is done only at that revision") {
  if (!world.guarantees().revisions) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 5);
  const uint64_t revision = daemon.Describe("s").row.revision;
  if (world.guarantees().revision_counts_claims) {
    daemon.Grant("s");
  } else {
    REQUIRE(daemon.Resize("s", 6).kind == OutcomeKind::kDone);
  }
  AdminCommand pause{{}, "s", revision, AdminPause{true}};
  const Outcome refused = daemon.Do(pause);
  CHECK(refused.kind == OutcomeKind::kRevisionMismatch);
  CHECK(refused.report->info->row.revision > revision);
  CHECK_FALSE(daemon.Describe("s").row.paused);
  pause.expected_revision = daemon.Describe("s").row.revision;
  CHECK(daemon.Do(pause).kind == OutcomeKind::kDone);
  CHECK(daemon.Describe("s").row.paused);
  CHECK(daemon.Do(AdminCommand{{}, "t", 1, AdminCreate{1, {}}}).kind ==
        OutcomeKind::kRevisionMismatch);
  CHECK_FALSE(daemon.Exists("t"));
}

CONTRACT_CASE("the revision rises with every change and with nothing else") {
  Daemon& daemon = world.daemon();
  const bool claims = world.guarantees().revision_counts_claims;
  daemon.Create("s", 1);
  daemon.Create("t", 2);
  uint64_t last = daemon.Describe("s").row.revision;
  const auto rose = [&] {
    const uint64_t now = daemon.Describe("s").row.revision;
    return now > std::exchange(last, now);
  };
  const LeasePtr lease = daemon.Grant("s");
  CHECK(rose() == claims);
  const Id waiter = daemon.Queue("s");
  CHECK(rose() == claims);
  REQUIRE(daemon.EndWait("s", waiter, EndCause::kCancelled).kind == OutcomeKind::kDone);
  CHECK(rose() == claims);
  const bool pauses = world.guarantees().settings;
  if (pauses) {
    REQUIRE(daemon.Administer("s", AdminPause{true}).kind == OutcomeKind::kDone);
    CHECK(rose());
  }
  REQUIRE(daemon.Resize("s", 3).kind == OutcomeKind::kDone);
  CHECK(rose());
  daemon.GiveBack("s", lease->id);
  CHECK(rose() == claims);
  daemon.Grant("t");
  if (pauses) CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kPaused);
  CHECK(daemon.Acquire("s", {.limit = 9}).kind == OutcomeKind::kLimitMismatch);
  daemon.Do(ListCommand{});
  CHECK_FALSE(rose());
}

CONTRACT_CASE("the revision in an answer is the one after the act") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Outcome outcome = daemon.Resize("s", 7);
  CHECK(outcome.report->info->row == daemon.Describe("s").row);
}

CONTRACT_CASE("a paused semaphore grants nothing, and who holds goes on") {
  if (!world.guarantees().settings) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  const LeasePtr lease = daemon.Grant("s");
  const Outcome paused = daemon.Administer("s", AdminPause{true});
  CHECK(paused.changed);
  CHECK(paused.report->info->row.paused);
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kPaused);
  const Id waiter = daemon.Queue("s");
  CHECK(daemon.Verify("s", lease->id).kind == OutcomeKind::kHeld);
  daemon.GiveBack("s", lease->id);
  REQUIRE(daemon.Resize("s", 9).kind == OutcomeKind::kDone);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted).empty());
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{waiter});
  CHECK_FALSE(daemon.Administer("s", AdminPause{true}).changed);
}

CONTRACT_CASE("resume serves who waits, in order") {
  if (!world.guarantees().settings) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  REQUIRE(daemon.Administer("s", AdminPause{true}).kind == OutcomeKind::kDone);
  const Id a = daemon.Queue("s");
  const Id b = daemon.Queue("s", {.priority = 1});
  const Id c = daemon.Queue("s");
  CHECK(daemon.Administer("s", AdminPause{false}).changed);
  CHECK(ClaimsIn(daemon.TakeEvents(), Event::Kind::kGranted) == std::vector{b, a});
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{c});
}

CONTRACT_CASE("resume serves long queues, in order") {
  if (!world.guarantees().settings) return;
  Daemon& daemon = world.daemon();
  std::vector<uint32_t> counts{64, 1000};
  // Where an engine takes few grants in a commit, ten thousand are many commits: tests/scale asks for them.
  const bool in_one = world.guarantees().grants_per_commit_max == 0;
  if (in_one || std::getenv("SEMAPHORED_TEST_WAITERS") != nullptr) counts.push_back(10'000);
  constexpr uint32_t kAtOnce = 500;
  for (const uint32_t count : counts) {
    const std::string name = "s" + std::to_string(count);
    const uint32_t limit = std::min(count, world.guarantees().limit_max);
    daemon.Create(name, limit);
    REQUIRE(daemon.Administer(name, AdminPause{true}).kind == OutcomeKind::kDone);
    std::vector<Id> queued;
    while (queued.size() < count) {
      std::vector<Command> asked;
      for (uint32_t i = 0; i < kAtOnce && queued.size() + i < count; ++i) {
        const uint64_t number = queued.size() + i;
        const std::string client = "client" + std::to_string(number % 10);
        asked.emplace_back(
            world.MakeAcquire(name, {.wait = true, .client = client, .sequence = count + number}));
      }
      for (const Outcome& outcome : daemon.DoAll(std::move(asked))) {
        REQUIRE(outcome.kind == OutcomeKind::kQueued);
        queued.push_back(outcome.claim);
      }
    }
    REQUIRE(daemon.Describe(name).waiting == count);
    daemon.TakeEvents();
    CHECK(daemon.Administer(name, AdminPause{false}).changed);
    const auto granted = [&] { return ClaimsIn(daemon.events(), Event::Kind::kGranted); };
    for (size_t before = granted().size(); before < limit; before = granted().size()) {
      daemon.PollUntil([&] { return granted().size() > before; });
    }
    queued.resize(limit);
    CHECK(granted() == queued);
    CHECK(daemon.Describe(name).held == limit);
    CHECK(daemon.Describe(name).waiting == count - limit);
  }
}

CONTRACT_CASE("adopt makes nothing where no recipe has anything") {
  Daemon& daemon = world.daemon();
  for (const uint32_t limit : {0, 3}) {
    const Outcome outcome = daemon.Administer("s", AdminAdopt{limit});
    if (outcome.kind != OutcomeKind::kUnusable) CheckUnsupported(world, outcome);
    CHECK_FALSE(outcome.message.empty());
  }
  CHECK_FALSE(daemon.Exists("s"));
  daemon.Create("s", 3);
  CHECK(daemon.Administer("s", AdminAdopt{}).kind == OutcomeKind::kAlreadyExists);
  CHECK(daemon.Administer("s", AdminAdopt{4}).kind == OutcomeKind::kAlreadyExists);
  const Outcome same = daemon.Administer("s", AdminAdopt{3});
  CHECK(same.kind == OutcomeKind::kDone);
  CHECK_FALSE(same.changed);
  CHECK(same.affected() == 3);
}

CONTRACT_CASE("prune mends nothing where nothing is left behind") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const LeasePtr lease = daemon.Grant("s");
  const Id waiter = daemon.Queue("s");
  const Outcome outcome = daemon.Administer("s", AdminPrune{});
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == 0);
  CHECK(daemon.Verify("s", lease->id).kind == OutcomeKind::kHeld);
  CHECK(WaitersIn(daemon.Describe("s")) == std::vector{waiter});
}

}  // namespace semaphored::contract
