// What belongs to an identity is not there for another, also after a restart; and the quotas of what it makes.
#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

Outcome ReleaseAs(Daemon& daemon, const std::string& caller, const Id& claim) {
  ReleaseCommand release;
  release.semaphore = "s";
  release.claim = claim;
  release.caller = caller;
  return daemon.Do(release);
}

Outcome VerifyAs(Daemon& daemon, const std::string& caller, const Id& claim) {
  VerifyCommand verify;
  verify.semaphore = "s";
  verify.claim = claim;
  verify.caller = caller;
  return daemon.Do(verify);
}

// An acquire that makes the semaphore, of an owner who may make two.
Outcome Make(World& world, const std::string& semaphore, uint64_t sequence = 0) {
  Ask ask;
  ask.limit = 1;
  ask.owner = "alice";
  ask.sequence = sequence;
  if (sequence != 0) ask.client = "c";
  AcquireCommand command = world.MakeAcquire(semaphore, ask);
  command.quotas.semaphores = 2;
  return world.daemon().Do(std::move(command));
}

// A ticket with a payload of ten bytes, of an owner who may have three tickets and 25 bytes.
Outcome Put(World& world, Daemon& daemon, const std::string& owner = "alice",
            uint64_t sequence = 0) {
  EnqueueCommand command;
  if (sequence != 0) command.requester = {"c", sequence};
  command.semaphore = "s";
  command.ticket = world.NewId();
  command.payload = std::make_shared<const std::string>(10, 'x');
  command.owner = owner;
  command.quotas.tickets = 3;
  command.quotas.ticket_bytes = 25;
  return daemon.Do(std::move(command));
}

}  // namespace

CONTRACT_CASE("owners: a lease is not there for another identity") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 2);
  const Id owned = daemon.Grant("s", {.owner = "alice"})->id;
  const Id free = daemon.Grant("s")->id;
  CHECK(VerifyAs(daemon, "bob", owned).kind == OutcomeKind::kNotHeld);
  CHECK(ReleaseAs(daemon, "bob", owned).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Do(AdoptCommand{"s", owned, "bob"}).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Describe("s").held == 2);
  CHECK(VerifyAs(daemon, "alice", owned).kind == OutcomeKind::kHeld);
  CHECK(VerifyAs(daemon, "", owned).kind == OutcomeKind::kHeld);
  CHECK(VerifyAs(daemon, "bob", free).kind == OutcomeKind::kHeld);
  CHECK(ReleaseAs(daemon, "alice", owned).kind == OutcomeKind::kReleased);
  CHECK(ReleaseAs(daemon, "bob", free).kind == OutcomeKind::kReleased);
}

CONTRACT_CASE("owners: a wait is not there for another identity") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Id lease = daemon.Grant("s")->id;
  const Id waiter = daemon.Queue("s", {.owner = "alice"});
  CHECK(VerifyAs(daemon, "bob", waiter).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Do(AdoptCommand{"s", waiter, "bob"}).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Do(AdoptCommand{"s", waiter, "alice"}).kind == OutcomeKind::kStillWaiting);
  daemon.GiveBack("s", lease);
  daemon.PollUntil([&] { return VerifyAs(daemon, "alice", waiter).kind == OutcomeKind::kHeld; });
  CHECK(ReleaseAs(daemon, "bob", waiter).kind == OutcomeKind::kNotHeld);
  CHECK(ReleaseAs(daemon, "alice", waiter).kind == OutcomeKind::kReleased);
}

CONTRACT_CASE("owners: the engine keeps them over a restart") {
  if (!world.CanRestart()) return;
  const Id session = world.NewId();
  world.daemon().Do(OpenSessionCommand{session, "c", 8'000, "worker", false, "alice"});
  world.daemon().Create("s", 2);
  const Id under_session = world.daemon().Grant("s", {.session = session, .owner = "alice"})->id;
  const Id detached = world.daemon().Grant("s", {.owner = "alice"})->id;
  const Id waiter = world.daemon().Queue("s", {.owner = "alice"});
  Daemon& daemon = world.Restart();
  const Outcome orphans = daemon.Do(OrphansCommand{});
  for (const Orphan& orphan : orphans.report->orphans) CHECK(orphan.owner == "alice");
  CHECK(daemon.Do(AdoptSessionCommand{session, 0, "bob"}).kind == OutcomeKind::kSessionLost);
  CHECK(daemon.Do(AdoptCommand{"s", detached, "bob"}).kind == OutcomeKind::kNotHeld);
  CHECK(daemon.Do(AdoptCommand{"s", waiter, "bob"}).kind == OutcomeKind::kNotHeld);
  CHECK(ReleaseAs(daemon, "bob", under_session).kind == OutcomeKind::kNotHeld);
  const Outcome adopted = daemon.Do(AdoptSessionCommand{session, 0, "alice"});
  REQUIRE(adopted.kind == OutcomeKind::kDone);
  CHECK(adopted.report->session->owner == "alice");
  CHECK(adopted.report->claims.at(0).lease->owner == "alice");
  const Outcome renewed = daemon.Do(AdoptCommand{"s", detached, "alice"});
  REQUIRE(renewed.kind == OutcomeKind::kHeld);
  CHECK(renewed.lease->owner == "alice");
  CHECK(daemon.Describe("s").waiters.at(0).waiter->owner == "alice");
}

CONTRACT_CASE("owners: a ticket is finished by its worker's identity alone") {
  if (!world.guarantees().durable_tickets) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Id session = world.NewId();
  daemon.Do(OpenSessionCommand{session, "c", 8'000, "worker", false, "alice"});
  EnqueueCommand enqueue;
  enqueue.semaphore = "s";
  enqueue.ticket = world.NewId();
  enqueue.payload = std::make_shared<const std::string>("work");
  REQUIRE(daemon.Do(enqueue).kind == OutcomeKind::kEnqueued);
  TakeCommand take;
  take.semaphore = "s";
  take.claim = world.NewId();
  take.session = session;
  take.ttl_ms = 8'000;
  take.holder = "worker";
  take.owner = "alice";
  REQUIRE(daemon.Do(take).kind == OutcomeKind::kGranted);
  FinishCommand finish;
  finish.semaphore = "s";
  finish.claim = take.claim;
  finish.caller = "bob";
  CHECK(daemon.Do(finish).kind == OutcomeKind::kNotHeld);
  finish.caller = "alice";
  CHECK(daemon.Do(finish).kind == OutcomeKind::kReleased);
}

CONTRACT_CASE("owners: a quota of semaphores") {
  // (Where the engine keeps no settings, it does not say which identity has made a semaphore.)
  if (!world.guarantees().settings) return;
  const bool restarts = world.CanRestart();
  const auto create = [&](const std::string& name, const std::string& owner = "alice") {
    return world.daemon().Do(
        AdminCommand{{}, name, 0, AdminCreate{1, {}}, owner, {.semaphores = 2}});
  };
  REQUIRE(create("a").kind == OutcomeKind::kDone);
  REQUIRE(create("b").kind == OutcomeKind::kDone);
  if (restarts) world.Restart();
  for (const char* name : {"a", "b"}) world.daemon().Describe(name);
  const Outcome over = create("c");
  CHECK(over.kind == OutcomeKind::kOverQuota);
  CHECK(over.message == "the quota of alice is 2 semaphores; it has 2 and asks for 1");
  CHECK(Make(world, "c").kind == OutcomeKind::kOverQuota);
  CHECK_FALSE(world.daemon().Exists("c"));
  // Neither what is there nor what another identity makes is one more.
  CHECK(create("a").kind == OutcomeKind::kDone);
  CHECK(Make(world, "b").kind != OutcomeKind::kOverQuota);
  CHECK(create("d", "bob").kind == OutcomeKind::kDone);
  REQUIRE(world.daemon().Administer("a", AdminDestroy{}).kind == OutcomeKind::kDone);
  CHECK(create("c").kind == OutcomeKind::kDone);
  CHECK(create("e").kind == OutcomeKind::kOverQuota);
}

CONTRACT_CASE("owners: at the quota of semaphores a repeated request has its lease") {
  if (!world.guarantees().settings || !world.guarantees().grants_at_once) return;
  REQUIRE(Make(world, "a", 1).kind == OutcomeKind::kGranted);
  REQUIRE(Make(world, "b").kind == OutcomeKind::kGranted);
  CHECK(Make(world, "c").kind == OutcomeKind::kOverQuota);
  CHECK(Make(world, "a", 1).kind == OutcomeKind::kGranted);
  CHECK(Make(world, "a").kind == OutcomeKind::kFull);
}

CONTRACT_CASE("owners: a quota of tickets, and of the bytes of their payloads") {
  if (!world.guarantees().durable_tickets) return;
  const bool restarts = world.CanRestart();
  world.daemon().Create("s", 1);
  REQUIRE(Put(world, world.daemon(), "alice", 1).kind == OutcomeKind::kEnqueued);
  const Outcome second = Put(world, world.daemon());
  REQUIRE(second.kind == OutcomeKind::kEnqueued);
  Daemon& daemon = restarts ? world.Restart() : world.daemon();
  daemon.Describe("s");
  const Outcome over = Put(world, daemon);
  CHECK(over.kind == OutcomeKind::kOverQuota);
  CHECK(over.message == "the quota of alice is 25 bytes of payloads; it has 20 and asks for 10");
  CHECK(Put(world, daemon, "alice", 1).kind == OutcomeKind::kEnqueued);  // The former one.
  CHECK(daemon.Describe("s").tickets.living() == 2);
  CHECK(Put(world, daemon, "bob").kind == OutcomeKind::kEnqueued);
  EnqueueCommand empty;
  empty.semaphore = "s";
  empty.ticket = world.NewId();
  empty.owner = "alice";
  empty.quotas.tickets = 3;
  CHECK(daemon.Do(empty).kind == OutcomeKind::kEnqueued);
  empty.ticket = world.NewId();
  CHECK(daemon.Do(empty).kind == OutcomeKind::kOverQuota);
  REQUIRE(daemon.Administer("s", AdminCancelTicket{second.claim}).kind == OutcomeKind::kDone);
  CHECK(Put(world, daemon).kind == OutcomeKind::kEnqueued);
}

}  // namespace semaphored::contract
