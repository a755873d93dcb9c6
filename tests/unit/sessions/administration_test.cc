#include "server/sessions/administration.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

class NotingWatcher : public WatchListener {
 public:
  void OnSnapshot(const std::vector<SemaphoreInfo>& infos, bool is_last) override {
    for (const SemaphoreInfo& info : infos) seen.push_back(info.row.name);
    last = is_last;
  }
  void OnChange(const SemaphoreChange& change) override { seen.push_back(change.info.row.name); }
  void OnWatchRefused(Refusal refusal) override { refused = refusal.reason; }

  std::vector<std::string> seen;
  bool last = false;
  std::optional<Reason> refused;
};

struct AdminWorld {
  RoomHost host;
  SemaphoreMetrics metrics{&host.time, 0, [](const SemaphoreMetrics::Visit&) {}};
  TicketDelays delays{&host, &host.timers, [](const std::string&) {}};
  ClaimBook claims;
  std::vector<std::string> requeued;
  Administration administration{
      {&host, &host.timers, &host.lists, &metrics, &delays, &claims},
      [this](const std::string& semaphore) { requeued.push_back(semaphore); }};
  std::vector<Result<AdminAnswer>> replies;

  Reply<AdminAnswer> Noted() {
    return [this](Result<AdminAnswer> result) { replies.push_back(std::move(result)); };
  }
  Id Administer(decltype(AdminCommand::act) act, int64_t wait_ms = 0) {
    AdminCommand command;
    command.semaphore = "a";
    command.act = std::move(act);
    return administration.Administer(std::move(command), wait_ms, Noted());
  }
  Id Drain(uint32_t held_max, int64_t wait_ms) {
    AdminCommand pause;
    pause.semaphore = "a";
    return administration.Drain(std::move(pause), held_max, wait_ms, Noted());
  }
  // The semaphore stands, and so many permits are held.
  void AnswerHeld(uint32_t held) {
    Outcome outcome;
    outcome.kind = OutcomeKind::kDone;
    outcome.report = std::make_unique<Report>();
    outcome.report->info = InfoOf("a");
    outcome.report->info->held = held;
    host.Answer(std::move(outcome));
  }
  void Change(uint32_t held, SemaphoreChange::Kind kind = SemaphoreChange::Kind::kEnded) {
    SemaphoreChange change;
    change.kind = kind;
    change.info = InfoOf("a");
    change.info.held = held;
    administration.OnChanges({change});
  }
};

TEST_CASE("administration: a drain is answered when few enough permits are held", "[unit]") {
  AdminWorld world;
  world.Drain(1, 5000);
  world.AnswerHeld(3);
  CHECK(world.replies.empty());
  CHECK(world.host.watched()->Matches("a"));
  world.Change(2);
  CHECK(world.host.jobs.empty());
  world.Change(1);
  world.AnswerHeld(1);  // Describes it.
  REQUIRE(world.replies.size() == 1);
  CHECK(world.replies[0].value.done);
  CHECK(world.replies[0].value.changed);
  CHECK_FALSE(world.host.watched()->Matches("a"));
}

TEST_CASE("administration: a drain whose time is over says what is still held", "[unit]") {
  AdminWorld world;
  world.Drain(0, 5000);
  world.AnswerHeld(3);
  const auto timer = world.host.Pass(Milliseconds(5000));
  REQUIRE(timer);
  CHECK(timer->kind == TimerKind::kDrain);
  CHECK(world.administration.Waits(timer->id));
  world.administration.OnWaitOver(timer->id);
  CHECK_FALSE(world.administration.Waits(timer->id));
  world.AnswerHeld(2);
  REQUIRE(world.replies.size() == 1);
  CHECK_FALSE(world.replies[0].value.done);
  CHECK(world.replies[0].value.report->info->held == 2);
  world.administration.OnWaitOver(timer->id);
  CHECK(world.host.jobs.empty());
}

TEST_CASE("administration: a destroy that waits is answered when the semaphore is gone", "[unit]") {
  AdminWorld world;
  world.Administer(AdminDestroy{DestroyPolicy::kWait}, 5000);
  world.AnswerHeld(1);
  world.Change(0);
  CHECK(world.replies.empty());
  world.Change(0, SemaphoreChange::Kind::kDestroyed);
  world.host.Answer(OutcomeKind::kNoSuchSemaphore);
  REQUIRE(world.replies.size() == 1);
  CHECK(world.replies[0].value.done);
}

TEST_CASE("administration: an act whose client has gone is answered without the rest of its wait",
          "[unit]") {
  AdminWorld world;
  const bool drains = GENERATE(true, false);
  const Id wait =
      drains ? world.Drain(0, 5000) : world.Administer(AdminDestroy{DestroyPolicy::kWait}, 5000);
  SECTION("while it waits") {
    world.AnswerHeld(3);
    CHECK(world.administration.Waits(wait));
    world.administration.EndWait(wait);
  }
  SECTION("while the act is under way") {
    world.administration.EndWait(wait);
    CHECK(world.replies.empty());
    world.AnswerHeld(3);
    const auto timer = world.host.Pass(Milliseconds(0));
    REQUIRE(timer);
    CHECK(timer->id == wait);
    world.administration.OnWaitOver(timer->id);
  }
  CHECK_FALSE(world.administration.Waits(wait));
  world.AnswerHeld(3);  // Describes it.
  REQUIRE(world.replies.size() == 1);
  CHECK_FALSE(world.replies[0].value.done);
  CHECK(world.replies[0].value.changed);
  CHECK_FALSE(world.host.watched()->Matches("a"));
  world.administration.EndWait(wait);
  CHECK(world.host.jobs.empty());
}

TEST_CASE("administration: only what waits for its effect has a wait that can be ended", "[unit]") {
  AdminWorld world;
  const Id wait = world.Administer(AdminRequeue{});
  CHECK(wait.empty());
  world.administration.EndWait(wait);
  CHECK(world.host.jobs.size() == 1);
}

// Answers a destroy by force. `info`: of the semaphore, if one stands.
void AnswerForced(AdminWorld* world, std::optional<SemaphoreInfo> info) {
  Outcome outcome;
  outcome.kind = OutcomeKind::kDone;
  outcome.report = std::make_unique<Report>();
  outcome.report->info = std::move(info);
  world->host.Answer(std::move(outcome));
}

TEST_CASE("administration: the delays of a semaphore end with it", "[unit]") {
  AdminWorld world;
  Ticket ticket;
  ticket.id = Id{3, 3};
  ticket.delays = 1;
  ticket.delay_ms = 604'800'000;
  DelayedTicket delayed;
  delayed.semaphore = "a";
  delayed.ticket = std::make_shared<const Ticket>(ticket);
  world.delays.Count(delayed);
  world.Administer(AdminDestroy{DestroyPolicy::kForce}, 5000);
  SECTION("it is gone") {
    AnswerForced(&world, std::nullopt);
    CHECK_FALSE(world.delays.Contains(ticket.id));
  }
  SECTION("it is gone once its holders are") {
    SemaphoreInfo info = InfoOf("a");
    info.row.destroying = true;
    AnswerForced(&world, std::move(info));
    CHECK_FALSE(world.delays.Contains(ticket.id));
  }
  SECTION("the request was repeated, and a later one has its name") {
    AnswerForced(&world, InfoOf("a"));
    CHECK(world.delays.Contains(ticket.id));
  }
  SECTION("it is not destroyed") {
    world.host.Answer(OutcomeKind::kRevisionMismatch);
    CHECK(world.delays.Contains(ticket.id));
  }
}

TEST_CASE("administration: a requeue brings work, and an error is the answer", "[unit]") {
  AdminWorld world;
  world.Administer(AdminRequeue{});
  world.host.Answer(absl::UnavailableError("away"));
  REQUIRE(world.replies.size() == 1);
  CHECK_FALSE(world.replies[0].ok());
  CHECK(world.requeued == std::vector<std::string>{"a"});
}

TEST_CASE("administration: a watch receives slices as it asks for them, and changes", "[unit]") {
  AdminWorld world;
  NotingWatcher watcher;
  const uint64_t watch = world.administration.Watch("a", "", &watcher);
  world.host.AnswerList({InfoOf("a")}, /*more=*/true);
  CHECK_FALSE(watcher.last);
  CHECK(world.host.jobs.empty());
  world.administration.NextSnapshot(watch);
  CHECK(world.host.Oldest<ListCommand>().after == "a");
  world.host.AnswerList({InfoOf("ab")});
  CHECK(watcher.last);
  world.Change(1);
  CHECK(watcher.seen == std::vector<std::string>{"a", "ab", "a"});
  world.administration.Unwatch(watch);
  world.Change(1);
  CHECK(watcher.seen.size() == 3);
}

TEST_CASE("administration: after a stop all is refused", "[unit]") {
  AdminWorld world;
  NotingWatcher watcher;
  world.administration.Watch("a", "", &watcher);
  world.Drain(0, 5000);
  world.host.AnswerList({});
  world.AnswerHeld(3);
  world.administration.Stop();
  NotingWatcher late;
  CHECK(world.administration.Watch("a", "", &late) == 0);
  CHECK(late.refused == Reason::kShuttingDown);
  world.Administer(AdminRequeue{});
  REQUIRE(world.replies.size() == 1);
  CHECK_FALSE(watcher.refused);
  world.administration.RefuseAll();
  CHECK(watcher.refused == Reason::kShuttingDown);
  REQUIRE(world.replies.size() == 2);
  for (const Result<AdminAnswer>& reply : world.replies)
    CHECK(reply.refusal->reason == Reason::kShuttingDown);
}

}  // namespace
}  // namespace semaphored
