// Requests of callers that keep no state: a UUID is the id of this one request. The same id is the same
// answer and one effect, for as long as the row is kept; and ids without end fill nothing up.
#include <functional>
#include <vector>

#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {
AdminCommand AddTo(const std::string& semaphore, const Requester& requester) {
  return {requester, semaphore, 0, AdminResize{AdminResize::Change::kAdd, 1, 1'000'000, {}, {}}};
}

uint32_t LimitAfter(Daemon& daemon, const AdminCommand& add) {
  const Outcome outcome = daemon.Do(add);
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  return outcome.report->info->row.limit;
}

Id LeaseOf(const Outcome& outcome) {
  REQUIRE(outcome.kind == OutcomeKind::kGranted);
  return outcome.lease->id;
}

Requester OneShot(const Id& id) { return {"", 0, id}; }

// Rows that may go are named to the store by the next commit; some stores remove them while they wait.
void LetGo(World& world, Daemon& daemon) {
  daemon.Create("written" + world.NewId().Hex(), 1);
  for (int i = 0; i < 3; ++i) daemon.Poll();
}

void CheckOneShotLimitReached(const Outcome& outcome) {
  CHECK(outcome.kind == OutcomeKind::kLimitReached);
  CHECK(outcome.message.find("one_shot_requests_max") != std::string::npos);
}

}  // namespace

CONTRACT_CASE("one-shot: a repeated acquire finds its lease, and how it has ended") {
  int round = 0;
  OnEachPair(world, [&](Daemon& first, Daemon& second) {
    const std::string s = "s" + std::to_string(++round);
    first.Create(s, 3);
    const Ask ask{.one_shot = world.NewId()};
    const Id lease = first.Grant(s, ask)->id;
    const Id other = first.Grant(s, {.one_shot = world.NewId()})->id;
    CHECK(other != lease);
    for (Daemon* daemon : {&second, &first}) {
      const Outcome again = daemon->Acquire(s, ask);
      REQUIRE(again.kind == OutcomeKind::kGranted);
      CHECK(again.lease->id == lease);
    }
    CHECK(first.Describe(s).held == 2);
    first.GiveBack(s, lease);
    for (Daemon* daemon : {&second, &first}) {
      const Outcome ended = daemon->Acquire(s, ask);
      CHECK(ended.kind == OutcomeKind::kNotHeld);
      CHECK(ended.cause == EndCause::kReleased);
    }
    CHECK(first.Describe(s).held == 1);
  });
}

CONTRACT_CASE("one-shot: a repeated acquire keeps its place, and finds how its wait has ended") {
  int round = 0;
  OnEachPair(world, [&](Daemon& first, Daemon& second) {
    const std::string s = "s" + std::to_string(++round);
    first.Create(s, 1);
    const Id holds = first.Grant(s)->id;
    const Ask granted{.wait = true, .one_shot = world.NewId()};
    const Ask late{.wait = true, .one_shot = world.NewId()};
    const Ask given_up{.wait = true, .one_shot = world.NewId()};
    const Id waits = first.Queue(s, granted);
    const Id expires = first.Queue(s, late);
    const Id gone = first.Queue(s, given_up);
    const Outcome again = second.Acquire(s, granted);
    CHECK(again.kind == OutcomeKind::kQueued);
    CHECK(again.claim == waits);
    CHECK(again.position() == 1);
    REQUIRE(first.EndWait(s, expires, EndCause::kWaitExpired).kind == OutcomeKind::kDone);
    const Outcome ended = second.Acquire(s, late);
    CHECK(ended.kind == OutcomeKind::kWaitEnded);
    CHECK(ended.cause == EndCause::kWaitExpired);
    // What its client gives up leaves no row.
    REQUIRE(first.EndWait(s, gone, EndCause::kDisconnected).kind == OutcomeKind::kDone);
    CHECK(second.Queue(s, given_up) != gone);
    second.GiveBack(s, holds);
    const Outcome lease = second.Acquire(s, granted);
    REQUIRE(lease.kind == OutcomeKind::kGranted);
    CHECK(lease.lease->id == waits);
    CHECK(first.Describe(s).waiting == 1);
  });
}

CONTRACT_CASE("one-shot: an act, a release and a ticket are done once") {
  int round = 0;
  OnEachPair(world, [&](Daemon& first, Daemon& second) {
    const std::string s = "s" + std::to_string(++round);
    first.Create(s, 2);
    const AdminCommand add = AddTo(s, OneShot(world.NewId()));
    const Requester release = OneShot(world.NewId());
    const Id lease = first.Grant(s)->id;
    const Requester enqueue = OneShot(world.NewId());
    Id ticket;
    for (Daemon* daemon : {&first, &second, &first}) {
      const Outcome added = daemon->Do(add);
      REQUIRE(added.kind == OutcomeKind::kDone);
      CHECK(added.changed);
      CHECK(added.report->info->row.limit == 3);
      const Outcome released = daemon->Release(s, lease, {}, release);
      CHECK(released.kind == OutcomeKind::kReleased);
      CHECK(released.released() == 1);
      if (!world.guarantees().durable_tickets) continue;
      EnqueueCommand command;
      command.requester = enqueue;
      command.semaphore = s;
      command.ticket = world.NewId();
      const Outcome enqueued = daemon->Do(command);
      REQUIRE(enqueued.kind == OutcomeKind::kEnqueued);
      if (ticket.empty()) ticket = enqueued.claim;
      CHECK(enqueued.claim == ticket);
    }
    CHECK(first.Describe(s).held == 0);
  });
}

CONTRACT_CASE("one-shot: another effect under the same id is refused, wherever it comes from") {
  int round = 0;
  OnEachPairAndLanes(world, [&](Daemon& first, Daemon& second) {
    const std::string a = "a" + std::to_string(++round);
    const std::string b = "b" + std::to_string(round);
    first.Create(a, 1);
    second.Create(b, 1);
    const Id holds_a = first.Grant(a)->id;
    const Id holds_b = second.Grant(b)->id;
    const Id id = world.NewId();
    const Id waits = first.Queue(a, {.one_shot = id});
    // It waits for one semaphore only, and the other's holder notices nothing.
    CHECK(second.Acquire(b, {.wait = true, .one_shot = id}).kind == OutcomeKind::kReused);
    CHECK(second.Release(b, holds_b, {}, OneShot(id)).kind == OutcomeKind::kReused);
    CHECK(second.Do(AddTo(b, OneShot(id))).kind == OutcomeKind::kReused);
    CHECK(second.Verify(b, holds_b).kind == OutcomeKind::kHeld);
    second.GiveBack(b, holds_b);
    CHECK(second.Resize(b, 2).kind == OutcomeKind::kDone);
    first.GiveBack(a, holds_a);
    first.PollUntil([&] { return Saw(first.events(), Event::Kind::kGranted, waits); });
    CHECK(second.Acquire(b, {.one_shot = id}).kind == OutcomeKind::kReused);
    first.GiveBack(a, waits);
    CHECK(second.Acquire(b, {.one_shot = id}).kind == OutcomeKind::kReused);
    CHECK(second.Describe(b).held == 0);
  });
}

CONTRACT_CASE("one-shot: the same id many times in one batch is one request") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  const Ask ask{.one_shot = world.NewId()};
  std::vector<Command> batch;
  for (int i = 0; i < 4; ++i) batch.push_back(world.MakeAcquire("s", ask));
  batch.push_back(AddTo("s", OneShot(ask.one_shot)));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  for (int i = 0; i < 4; ++i) {
    REQUIRE(outcomes[i].kind == OutcomeKind::kGranted);
    CHECK(outcomes[i].lease->id == outcomes[0].lease->id);
  }
  CHECK(outcomes[4].kind == OutcomeKind::kReused);
  CHECK(daemon.Describe("s").held == 1);
}

CONTRACT_CASE("one-shot: only what became of it is asked for") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  Ask ask{.only_if_repeated = true, .one_shot = world.NewId()};
  CHECK(daemon.Acquire("s", ask).kind == OutcomeKind::kNotAskedBefore);
  ask.only_if_repeated = false;
  const Id lease = daemon.Grant("s", ask)->id;
  ask.only_if_repeated = true;
  CHECK(LeaseOf(daemon.Acquire("s", ask)) == lease);
}

CONTRACT_CASE("one-shot: a client's number is no id of one request") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  const Id id = world.NewId();
  const Id one = daemon.Grant("s", {.one_shot = id})->id;
  const Id two = daemon.Grant("s", {.client = id.Hex(), .sequence = 1})->id;
  CHECK(one != two);
  CHECK(LeaseOf(daemon.Acquire("s", {.one_shot = id})) == one);
  CHECK(LeaseOf(daemon.Acquire("s", {.client = id.Hex(), .sequence = 1})) == two);
}

CONTRACT_CASE("one-shot: a request that is repeated in a session moves there") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Id session = world.NewId();
  REQUIRE(daemon.OpenSession(session).kind == OutcomeKind::kDone);
  const Id id = world.NewId();
  const Id lease = daemon.Grant("s", {.one_shot = id})->id;
  AcquireCommand repeated = world.MakeAcquire("s", {.session = session, .one_shot = id});
  CHECK(daemon.Do(repeated).kind == OutcomeKind::kMoving);
  repeated.moved_is_over = true;
  const Outcome moved = daemon.Do(repeated);
  REQUIRE(moved.kind == OutcomeKind::kGranted);
  CHECK(moved.lease->id == lease);
  CHECK(moved.lease->session == session);
}

CONTRACT_CASE("one-shot: a row stays for the retention after the end, and then goes") {
  world.options().request_retention = std::chrono::minutes(1);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Ask ask{.one_shot = world.NewId()};
  const Id lease = daemon.Grant("s", ask)->id;
  // While it stands, its time does not run.
  world.Advance(600'000);
  LetGo(world, daemon);
  CHECK(LeaseOf(daemon.Acquire("s", ask)) == lease);
  daemon.GiveBack("s", lease);
  const AdminCommand add = AddTo("s", OneShot(world.NewId()));
  CHECK(LimitAfter(daemon, add) == 2);
  world.Advance(59'000);
  LetGo(world, daemon);
  CHECK(daemon.Acquire("s", ask).cause == EndCause::kReleased);
  CHECK(LimitAfter(daemon, add) == 2);
  world.Advance(1'000);
  LetGo(world, daemon);
  const Outcome later = daemon.Acquire("s", ask);
  REQUIRE(later.kind == OutcomeKind::kGranted);
  CHECK(later.lease->id != lease);
  CHECK(LimitAfter(daemon, add) == 3);
}

CONTRACT_CASE("one-shot: the row of a request that waits or holds never goes") {
  world.options().request_retention = std::chrono::minutes(1);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  daemon.Create("t", 1);
  const Ask holds{.one_shot = world.NewId()};
  const Ask waits{.wait = true, .one_shot = world.NewId()};
  const Id lease = daemon.Grant("s", holds)->id;
  const Id waiter = daemon.Queue("s", waits);
  for (int i = 0; i < 5; ++i) {
    world.Advance(120'000);
    LetGo(world, daemon);
  }
  CHECK(LeaseOf(daemon.Acquire("s", holds)) == lease);
  CHECK(daemon.Acquire("s", waits).claim == waiter);
  CHECK(daemon.Acquire("t", {.one_shot = holds.one_shot}).kind == OutcomeKind::kReused);
  CHECK(daemon.Acquire("t", {.one_shot = waits.one_shot}).kind == OutcomeKind::kReused);
}

CONTRACT_CASE("one-shot: the node that ended the claim counts the age of its row") {
  if (!SharesClaims(world)) return;
  world.options().request_retention = std::chrono::minutes(1);
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 9);
  const Ask ask{.one_shot = world.NewId()};
  b.GiveBack("s", a.Grant("s", ask)->id);
  world.Advance(61'000);
  LetGo(world, a);
  CHECK(a.Acquire("s", ask).kind == OutcomeKind::kNotHeld);
  LetGo(world, b);
  const Id lease = a.Grant("s", ask)->id;
  world.Advance(61'000);
  LetGo(world, b);
  LetGo(world, a);
  CHECK(LeaseOf(b.Acquire("s", ask)) == lease);
}

CONTRACT_CASE("one-shot: restart: rows stand, and their age counts from zero") {
  world.options().request_retention = std::chrono::minutes(1);
  if (!world.CanRestart()) return;
  world.daemon().Create("s", 2);
  const Ask ended{.one_shot = world.NewId()};
  const Ask stands{.one_shot = world.NewId()};
  const AdminCommand add = AddTo("s", OneShot(world.NewId()));
  world.daemon().GiveBack("s", world.daemon().Grant("s", ended)->id);
  const Id lease = world.daemon().Grant("s", stands)->id;
  CHECK(LimitAfter(world.daemon(), add) == 3);
  for (int i = 0; i < 2; ++i) {
    world.Advance(59'000);
    Daemon& daemon = world.Restart();
    LetGo(world, daemon);
    CHECK(daemon.Acquire("s", ended).kind == OutcomeKind::kNotHeld);
    CHECK(LeaseOf(daemon.Acquire("s", stands)) == lease);
    CHECK(LimitAfter(daemon, add) == 3);
  }
  // On a shared engine a daemon finds later what another life has left.
  if (!world.guarantees().exclusive) return;
  Daemon& daemon = world.daemon();
  world.Advance(59'000);
  LetGo(world, daemon);
  CHECK(daemon.Acquire("s", ended).kind == OutcomeKind::kNotHeld);
  world.Advance(1'000);
  LetGo(world, daemon);
  CHECK(daemon.Acquire("s", ended).kind == OutcomeKind::kGranted);
  CHECK(LeaseOf(daemon.Acquire("s", stands)) == lease);
  CHECK(LimitAfter(daemon, add) == 4);
}

CONTRACT_CASE("one-shot: at the bound new ids are refused, and known ones answered") {
  world.options().one_shot_requests_max = 3;
  world.options().request_retention = std::chrono::minutes(1);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Ask holds{.one_shot = world.NewId()};
  const Ask waits{.wait = true, .one_shot = world.NewId()};
  const AdminCommand add = AddTo("t", OneShot(world.NewId()));
  daemon.Create("t", 1);
  const Id lease = daemon.Grant("s", holds)->id;
  const Id waiter = daemon.Queue("s", waits);
  CHECK(LimitAfter(daemon, add) == 2);
  // Nothing is done for one more.
  const Ask refused{.limit = 1, .one_shot = world.NewId()};
  CheckOneShotLimitReached(daemon.Acquire("made", refused));
  CHECK_FALSE(daemon.Exists("made"));
  CheckOneShotLimitReached(daemon.Do(AddTo("t", OneShot(world.NewId()))));
  CheckOneShotLimitReached(daemon.Release("s", lease, {}, OneShot(world.NewId())));
  CHECK(daemon.Verify("s", lease).kind == OutcomeKind::kHeld);
  // Those that are known, and all other requests, are answered.
  CHECK(LeaseOf(daemon.Acquire("s", holds)) == lease);
  CHECK(daemon.Acquire("s", waits).claim == waiter);
  CHECK(LimitAfter(daemon, add) == 2);
  daemon.Grant("t", {.client = "c", .sequence = 1});
  daemon.Grant("t");
  CHECK(daemon.EndWait("s", waiter, EndCause::kCancelled).kind == OutcomeKind::kDone);
  // A wait that was given up makes room; a row that has ended does so after its time.
  CHECK(daemon.Acquire("made", refused).kind == OutcomeKind::kGranted);
  daemon.GiveBack("s", lease);
  CheckOneShotLimitReached(daemon.Acquire("s", {.one_shot = world.NewId()}));
  CHECK(daemon.Acquire("s", holds).cause == EndCause::kReleased);
  world.Advance(60'000);
  CHECK(daemon.Acquire("s", {.one_shot = world.NewId()}).kind == OutcomeKind::kGranted);
}

CONTRACT_CASE("one-shot: the bound is kept within one batch") {
  world.options().one_shot_requests_max = 2;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 9);
  std::vector<Command> batch;
  const Ask first{.one_shot = world.NewId()};
  batch.push_back(world.MakeAcquire("s", first));
  batch.push_back(AddTo("s", OneShot(world.NewId())));
  batch.push_back(world.MakeAcquire("s", {.one_shot = world.NewId()}));
  batch.push_back(world.MakeAcquire("s", first));
  const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
  CHECK(outcomes[0].kind == OutcomeKind::kGranted);
  CHECK(outcomes[1].kind == OutcomeKind::kDone);
  CheckOneShotLimitReached(outcomes[2]);
  REQUIRE(outcomes[3].kind == OutcomeKind::kGranted);
  CHECK(outcomes[3].lease->id == outcomes[0].lease->id);
}

CONTRACT_CASE("one-shot: thousands of ids lock out no client") {
  world.options().clients_max = 2;
  Daemon& daemon = world.daemon();
  constexpr int kAtOnce = 20;
  daemon.Create("s", kAtOnce);
  Ask last;
  for (int i = 0; i < 50; ++i) {
    std::vector<Command> acquires;
    std::vector<Command> releases;
    for (int j = 0; j < kAtOnce; ++j) {
      last = {.one_shot = world.NewId()};
      acquires.push_back(world.MakeAcquire("s", last));
    }
    for (const Outcome& outcome : daemon.DoAll(std::move(acquires))) {
      REQUIRE(outcome.kind == OutcomeKind::kGranted);
      releases.push_back(ReleaseCommand{OneShot(world.NewId()), "s", outcome.lease->id, {}});
    }
    for (const Outcome& outcome : daemon.DoAll(std::move(releases)))
      REQUIRE(outcome.kind == OutcomeKind::kReleased);
    // Where permits come back a moment later than the Step that gave them back.
    daemon.CheckHeld("s", 0);
  }
  CHECK(daemon.Acquire("s", {.client = "a", .sequence = 1}).kind == OutcomeKind::kGranted);
  CHECK(daemon.OpenSession(world.NewId(), "b").kind == OutcomeKind::kDone);
  CHECK(daemon.Acquire("s", last).kind == OutcomeKind::kNotHeld);
}

}  // namespace semaphored::contract
