#include "server/sessions/work_desk.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/sessions/room_host.h"

namespace semaphored {
namespace {

TicketPtr AssignedTicket(const Id& lease, uint32_t attempt = 1) {
  Ticket ticket;
  ticket.id = Id{9, lease.low};
  ticket.lease = lease;
  ticket.attempt = attempt;
  ticket.max_attempts = 3;
  return std::make_shared<const Ticket>(ticket);
}

struct DeskWorld {
  RoomHost host;
  ClaimBook claims;
  SessionBook sessions;
  UnreadSemaphores unread{Milliseconds(9000)};
  Vouching vouching{&host, &claims, &unread, 10'000, 5000};
  SemaphoreMetrics metrics{&host.time, 0, [](const SemaphoreMetrics::Visit&) {}};
  LeaseLog lease_log{&host.time, false};
  Recalls recalls{&host, &host.timers, &claims, [](ClaimRecord*, EndCause) {}};
  std::vector<Id> withdrawn;
  WorkDesk desk{{&host, &host.timers, &host.lists, &claims, &sessions, &vouching, &recalls,
                 &metrics, &lease_log},
                /*sweep_ms=*/1000,
                {[this](ClaimRecord* offer) { withdrawn.push_back(offer->id); },
                 [this](ClaimRecord* offer) {
                   if (Worker* worker = WorkDesk::WorkerOf(*offer)) worker->OnGone(offer->id);
                   claims.Remove(offer);
                 }}};
  WorkerStream stream;
  SessionRecord* session = sessions.FindOrAdd(Id{1, 1});

  DeskWorld() {
    session->life.ttl_ms = 30'000;
    session->client_id = "client";
    vouching.Revive(&session->life);
    sessions.Listen(session, &stream);
  }
  void Start(uint32_t tickets_max = 1, std::vector<std::string> names = {"jobs"},
             std::vector<std::string> prefixes = {}) {
    WorkParams work;
    work.semaphores = std::move(names);
    work.prefixes = std::move(prefixes);
    work.tickets_max = tickets_max;
    desk.Start(session, work);
  }
  // The oldest job is an offer, and is given a ticket. The claim.
  Id Give(const char* payload = nullptr) {
    const Id claim = host.Oldest<TakeCommand>().claim;
    auto lease = std::make_shared<Lease>();
    lease->id = claim;
    lease->session = session->id;
    Outcome outcome;
    outcome.kind = OutcomeKind::kGranted;
    outcome.lease = lease;
    outcome.report = std::make_unique<Report>();
    outcome.report->tickets.resize(1);
    outcome.report->tickets[0].ticket = AssignedTicket(claim);
    if (payload != nullptr)
      outcome.report->tickets[0].payload = std::make_shared<const std::string>(payload);
    host.Answer(std::move(outcome));
    return claim;
  }
  std::optional<FinishAnswer> Finish(const Id& claim, FinishCommand::Result result) {
    FinishCommand finish;
    finish.semaphore = "jobs";
    finish.claim = claim;
    finish.result = result;
    std::optional<FinishAnswer> answer;
    desk.FinishIn(session->id, finish, [&](const Result<FinishAnswer>& got) {
      if (got.ok()) answer = got.value;
    });
    while (!host.jobs.empty()) {
      const bool finishes = std::holds_alternative<FinishCommand>(host.jobs.front().job.command);
      if (!finishes) return answer;
      CHECK(host.Oldest<FinishCommand>().requester.client_id == "client");
      host.Answer(OutcomeKind::kReleased);
    }
    return answer;
  }
};

TEST_CASE("work desk: an offer that is given a ticket hands it to the worker", "[unit]") {
  DeskWorld world;
  world.Start();
  CHECK(world.desk.workers() == 1);
  CHECK(world.host.Oldest<TakeCommand>().semaphore == "jobs");
  const Id claim = world.Give("work");
  REQUIRE(world.stream.assigned.size() == 1);
  CHECK(world.stream.assigned[0].lease->id == claim);
  CHECK(world.stream.Payload(0) == "work");
  CHECK(world.host.jobs.empty());  // The hand is full.
  const auto answer = world.Finish(claim, FinishCommand::Result::kReject);
  REQUIRE(answer);
  CHECK(answer->state == TicketState::kDead);
  // The free hand is offered with the call; the end that the worker has brought about is not reported.
  CHECK(world.host.Oldest<TakeCommand>().claim != claim);
  world.desk.EndAssignment(world.claims.Find(claim), EndCause::kReleased);
  CHECK(world.stream.ended.empty());
  CHECK(world.claims.Find(claim) == nullptr);
}

TEST_CASE("work desk: the worker hears of an end that it has not brought about", "[unit]") {
  DeskWorld world;
  world.Start();
  const Id claim = world.Give();
  world.desk.EndAssignment(world.claims.Find(claim), EndCause::kRevoked);
  CHECK(world.stream.ended == std::vector<std::pair<Id, EndCause>>{{claim, EndCause::kRevoked}});
  CHECK(world.host.Oldest<TakeCommand>().semaphore == "jobs");
}

TEST_CASE("work desk: a ticket that no hand takes is put back, until that is done", "[unit]") {
  DeskWorld world;
  world.Start();
  world.desk.SetTicketsMax(world.session->id, 0);
  const Id claim = world.Give();
  CHECK(world.stream.assigned.empty());
  auto finish = world.host.Oldest<FinishCommand>();
  CHECK(finish.claim == claim);
  CHECK(finish.result == FinishCommand::Result::kPutBack);
  world.host.Answer(absl::UnavailableError("away"));
  const auto timer = world.host.Pass(Milliseconds(1000));
  REQUIRE(timer);
  CHECK(timer->kind == TimerKind::kWork);
  world.desk.Sweep();
  CHECK(world.host.Oldest<FinishCommand>().claim == claim);
  world.host.Answer(OutcomeKind::kNotHeld);
  CHECK(world.claims.Find(claim) == nullptr);
}

TEST_CASE("work desk: a ticket waits for the sweep while nothing may be vouched for", "[unit]") {
  DeskWorld world;
  world.Start();
  world.host.vouched_until = world.host.time.Now();
  world.Give();
  CHECK(world.stream.assigned.empty());
  world.host.vouched_until = SteadyTime::max();
  REQUIRE(world.host.Pass(Milliseconds(1000)));
  world.desk.Sweep();
  CHECK(world.stream.assigned.size() == 1);
}

TEST_CASE("work desk: the next stream of a session receives its tickets again", "[unit]") {
  DeskWorld world;
  world.Start();
  const Id claim = world.Give();
  world.desk.Stop(world.session);
  CHECK(world.desk.workers() == 0);
  world.Start();
  REQUIRE(world.stream.assigned.size() == 2);
  CHECK(world.stream.assigned[1].lease->id == claim);
  CHECK(world.host.jobs.empty());  // Its only hand is full.
}

TEST_CASE("work desk: offers that stand end with the work, and all go back with the session",
          "[unit]") {
  DeskWorld world;
  world.Start(2);
  REQUIRE(world.host.jobs.size() == 2);
  const Id assigned = world.Give();
  const Id stands = world.host.Oldest<TakeCommand>().claim;
  world.host.Answer(OutcomeKind::kQueued);
  SECTION("the stream ends") {
    world.desk.Stop(world.session);
    CHECK(world.withdrawn == std::vector<Id>{stands});
    CHECK(world.claims.Find(assigned) != nullptr);
  }
  SECTION("the session is closed") {
    world.desk.PutAllBack(world.session);
    const auto end = world.host.Oldest<EndCommand>();
    CHECK(end.claim == stands);
    CHECK(end.only_waiting);
    world.host.Answer(OutcomeKind::kDone);
    REQUIRE(world.host.jobs.size() == 2);
    for (const RoomHost::Submitted& each : world.host.jobs) {
      const auto& finish = std::get<FinishCommand>(each.job.command);
      CHECK(finish.result == FinishCommand::Result::kPutBack);
    }
  }
}

TEST_CASE("work desk: prefixes are looked up, and tickets there are offered hands", "[unit]") {
  DeskWorld world;
  world.Start(1, {}, {"team/"});
  CHECK(world.host.Oldest<ListCommand>().prefix == "team/");
  SemaphoreInfo found = InfoOf("team/a");
  found.tickets.queued = 1;
  world.host.AnswerList({found, InfoOf("team/b")});
  CHECK(world.host.Oldest<TakeCommand>().semaphore == "team/a");
  CHECK(world.host.Oldest<TakeCommand>().keep == OfferKept::kWhileTickets);
  world.host.Answer(OutcomeKind::kNothing);
  CHECK(world.host.jobs.empty());
  world.desk.OnTicketsAt("other/a");
  CHECK(world.host.jobs.empty());
  world.desk.OnTicketsAt("team/b");
  CHECK(world.host.Oldest<TakeCommand>().semaphore == "team/b");
}

TEST_CASE("work desk: a ticket without an offer here is put back, unless it is another's",
          "[unit]") {
  DeskWorld world;
  Event event;
  event.claim = Id{2, 8};
  event.semaphore = "jobs";
  event.ticket = AssignedTicket(event.claim);
  event.lease = std::make_shared<Lease>();
  event.lease->session = Id{1, 9};
  world.desk.OnStrayTicket(event);
  CHECK(world.host.jobs.empty());
  event.lease->session = world.session->id;
  world.desk.OnStrayTicket(event);
  CHECK(world.host.Oldest<FinishCommand>().claim == event.claim);
  CHECK(world.stream.assigned.empty());
}

TEST_CASE("work desk: after a shutdown nothing is offered or finished", "[unit]") {
  DeskWorld world;
  world.Start();
  world.desk.Shutdown();
  world.Give();
  CHECK(world.stream.assigned.empty());
  CHECK(world.host.jobs.empty());
  std::optional<Reason> reason;
  world.desk.FinishIn(world.session->id, {},
                      [&](const Result<FinishAnswer>& result) { reason = result.refusal->reason; });
  CHECK(reason == Reason::kShuttingDown);
}

}  // namespace
}  // namespace semaphored
