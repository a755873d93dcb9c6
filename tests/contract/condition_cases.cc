// What a commit rests upon changes between the reading and the commit: the engine refuses the commit, and the lane decides
// again. For engines on which several daemons share claims.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/contract/tickets.h"
#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

// Two daemons beside the world's first. A session of one of them moves to the other while its host decides a command.
class Crossing {
 public:
  static constexpr int kSemaphores = 48;
  static constexpr int kTouchedLate = 20;
  static constexpr char kLate[] = "s/20";

  explicit Crossing(World& world) : world_(world), act_(std::make_shared<std::function<void()>>()) {
    // A lane asks for the time after its reading and before its commit.
    world.options().now_unix_ms = [&world, act = act_] {
      if (*act) std::exchange(*act, nullptr)();
      return world.now_unix_ms();
    };
    a_ = &world.OpenAnother("c");
    b_ = &world.OpenAnother("b");
    a_->Create("s", 1);
    session_ = Open();
  }

  Daemon& a() { return *a_; }
  Daemon& b() { return *b_; }
  const Id& session() const { return session_; }

  Id Open() {
    const Id session = world_.NewId();
    REQUIRE(a_->OpenSession(session).kind == OutcomeKind::kDone);
    return session;
  }

  // Has the session ask in so many semaphores that its new host touches kLate some commits after the move: until
  // then nothing but the epoch tells its former host. The claim in kLate.
  Id AskEverywhere(const Id& session, bool wait) {
    std::vector<Command> commands;
    for (int i = 0; i < kSemaphores; ++i) {
      commands.emplace_back(world_.MakeAcquire(absl::StrFormat("s/%02d", i),
                                               {.limit = 1, .wait = wait, .session = session}));
    }
    const std::vector<Outcome> outcomes = a_->DoAll(std::move(commands));
    REQUIRE(outcomes[kTouchedLate].kind == (wait ? OutcomeKind::kQueued : OutcomeKind::kGranted));
    return outcomes[kTouchedLate].claim;
  }

  // What the host makes of the command.
  OutcomeKind While(const Id& session, Command command) {
    bool moved = false;
    *act_ = [this, session, &moved] {
      moved = b_->Do(AdoptSessionCommand{session}).kind == OutcomeKind::kDone;
    };
    const OutcomeKind kind = a_->Do(std::move(command)).kind;
    REQUIRE(moved);
    return kind;
  }

  AcquireCommand MakeAcquire(Ask ask) {
    AcquireCommand command = world_.MakeAcquire("s", std::move(ask));
    command.epoch = 1;
    return command;
  }

  // Of the session's claim in kLate.
  EndCommand MakeEnd(const Id& claim, EndCause cause) const {
    return {.semaphore = kLate, .claim = claim, .cause = cause, .session = session_, .epoch = 1};
  }

 private:
  World& world_;
  std::shared_ptr<std::function<void()>> act_;
  Daemon* a_ = nullptr;
  Daemon* b_ = nullptr;
  Id session_;
};

}  // namespace

CONTRACT_CASE("conditions: nothing is granted under a session that moves meanwhile") {
  if (!SharesClaims(world)) return;
  Crossing crossing(world);
  CHECK(crossing.While(crossing.session(), crossing.MakeAcquire({.session = crossing.session()})) ==
        OutcomeKind::kStale);
  CHECK(crossing.b().Describe("s").held == 0);
}

CONTRACT_CASE("conditions: nothing waits under a session that moves meanwhile") {
  if (!SharesClaims(world)) return;
  Crossing crossing(world);
  crossing.a().Grant("s");
  const Ask ask{.wait = true, .session = crossing.session()};
  CHECK(crossing.While(crossing.session(), crossing.MakeAcquire(ask)) == OutcomeKind::kStale);
  CHECK(crossing.b().Describe("s").waiting == 0);
}

CONTRACT_CASE("conditions: no ticket is taken, and no offer made, under a session that moves") {
  if (!SharesClaims(world) || !KeepsTickets(world)) return;
  Crossing crossing(world);
  const Tickets tickets(&world, &crossing.a());
  const Tickets others(&world, &crossing.b());
  const auto take = [&](const Id& session) {
    TakeCommand command = tickets.MakeTake({.keep = OfferKept::kAlways, .session = session});
    command.epoch = 1;
    return crossing.While(session, std::move(command));
  };
  CHECK(take(crossing.session()) == OutcomeKind::kStale);
  CHECK(crossing.b().Describe("s").offers == 0);
  tickets.Put();
  CHECK(take(crossing.Open()) == OutcomeKind::kStale);
  CHECK(others.Counts().queued == 1);
}

CONTRACT_CASE("conditions: no claim moves to a session that moves meanwhile") {
  if (!SharesClaims(world)) return;
  Crossing crossing(world);
  const Id other = crossing.Open();
  const LeasePtr lease =
      crossing.a().Grant("s", {.session = crossing.session(), .client = "c", .sequence = 1});
  const Id waits =
      crossing.a().Queue("s", {.session = crossing.session(), .client = "c", .sequence = 2});
  const Ask held{.session = other, .client = "c", .sequence = 1};
  CHECK(crossing.While(other, crossing.MakeAcquire(held)) == OutcomeKind::kStale);
  const Id another = crossing.Open();
  const Ask queued{.wait = true, .session = another, .client = "c", .sequence = 2};
  CHECK(crossing.While(another, crossing.MakeAcquire(queued)) == OutcomeKind::kStale);
  const SemaphoreInfo info = crossing.b().Describe("s");
  REQUIRE(info.leases.size() == 1);
  CHECK(info.leases[0]->session == crossing.session());
  REQUIRE(info.waiters.size() == 1);
  CHECK(info.waiters[0].waiter->session == crossing.session());
  CHECK(info.waiters[0].waiter->id == waits);
}

CONTRACT_CASE("conditions: no move ends in a session that moves meanwhile") {
  if (!SharesClaims(world)) return;
  TakeSmallSteps(world);
  Crossing crossing(world);
  const Ask asked{.limit = 1, .session = crossing.session(), .client = "c", .sequence = 1};
  crossing.a().Grant(Crossing::kLate, asked);
  const Id other = crossing.Open();
  crossing.AskEverywhere(other, /*wait=*/true);
  Ask moves = asked;
  moves.session = other;
  REQUIRE(crossing.a().Acquire(Crossing::kLate, moves).kind == OutcomeKind::kMoving);
  AcquireCommand over = world.MakeAcquire(Crossing::kLate, moves);
  over.epoch = 1;
  over.moved_is_over = true;
  CHECK(crossing.While(other, over) == OutcomeKind::kStale);
}

CONTRACT_CASE("conditions: the host that a session leaves meanwhile ends no lease of it") {
  if (!SharesClaims(world)) return;
  TakeSmallSteps(world);
  Crossing crossing(world);
  const Id lease = crossing.AskEverywhere(crossing.session(), /*wait=*/false);
  CHECK(crossing.While(crossing.session(), crossing.MakeEnd(lease, EndCause::kExpired)) ==
        OutcomeKind::kStale);
  CHECK(crossing.b().Describe(Crossing::kLate).held == 1);
}

CONTRACT_CASE("conditions: the host that a session leaves meanwhile ends no wait of it") {
  if (!SharesClaims(world)) return;
  TakeSmallSteps(world);
  Crossing crossing(world);
  crossing.AskEverywhere(crossing.Open(), /*wait=*/false);
  const Id waits = crossing.AskEverywhere(crossing.session(), /*wait=*/true);
  CHECK(crossing.While(crossing.session(), crossing.MakeEnd(waits, EndCause::kWaitExpired)) ==
        OutcomeKind::kStale);
  CHECK(crossing.b().Describe(Crossing::kLate).waiting == 1);
}

CONTRACT_CASE("conditions: the host that a session leaves meanwhile puts no ticket of it back") {
  if (!SharesClaims(world) || !KeepsTickets(world)) return;
  TakeSmallSteps(world);
  Crossing crossing(world);
  const Id lease = crossing.AskEverywhere(crossing.session(), /*wait=*/false);
  const Tickets tickets(&world, &crossing.a(), Crossing::kLate);
  tickets.Put();
  crossing.a().GiveBack(Crossing::kLate, lease);
  const TicketInfo taken = tickets.Get({.session = crossing.session()});
  FinishCommand command = tickets.MakeFinish(taken.ticket->lease, FinishCommand::Result::kPutBack);
  command.epoch = 1;
  CHECK(crossing.While(crossing.session(), command) == OutcomeKind::kStale);
  CHECK(crossing.b().Describe(Crossing::kLate).held == 1);
}

}  // namespace semaphored::contract
