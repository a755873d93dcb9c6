// What is half done when a daemon dies, what a client repeats late, and what it must not gain by it.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

constexpr uint32_t kMany = 12;
constexpr uint32_t kRemoved = 8;
// Two rows for each commit: the act's own Step makes two commits, each Step after it one.
constexpr int kParts = kRemoved / 2;

AdminCommand Remove(const std::string& semaphore, uint64_t sequence, uint64_t revision) {
  AdminResize act;
  act.change = AdminResize::Change::kRemove;
  act.amount = kRemoved;
  act.limit_max = kMany;
  act.policy = ShrinkPolicy::kRecall;
  act.grace_ms = 0;
  return {{"admin", sequence}, semaphore, revision, act};
}

void CheckRemoved(const Outcome& outcome) {
  CHECK(outcome.kind == OutcomeKind::kDone);
  CHECK(outcome.affected() == kRemoved);
  CHECK(outcome.changed);
}

// The act at daemon "a", and as many Steps; 0: not even its own. Its revision before.
uint64_t RemoveParts(World& world, const std::string& name, int parts, uint64_t sequence) {
  Daemon& daemon = world.daemon();
  daemon.Create(name, kMany);
  for (uint32_t i = 0; i < kMany; ++i) daemon.Grant(name);
  const uint64_t revision = daemon.Describe(name).row.revision;
  if (parts == 0) return revision;
  CheckRemoved(daemon.Do(Remove(name, sequence, revision)));
  for (int i = 1; i < parts; ++i) daemon.Poll();
  return revision;
}

// The same request again, until it is over; then an act that expects what the first one expected.
void FinishRemoving(World& world, Daemon& daemon, const std::string& name, uint64_t sequence,
                    uint64_t revision) {
  CheckRemoved(daemon.Do(Remove(name, sequence, revision)));
  CHECK(daemon.Describe(name).row.limit == kMany - kRemoved);
  // What another node has left is taken up when it stands still from one sweep to the next.
  for (int i = 0; i < 3; ++i) {
    world.Advance(world.options().sweep_interval.count() + 1);
    daemon.Poll();
  }
  daemon.PollUntil([&] { return daemon.Describe(name).held == kMany - kRemoved; });
  CHECK(daemon.Describe(name).row.intentions.empty());
  CheckRemoved(daemon.Do(Remove(name, sequence, revision)));
  CHECK(daemon.Describe(name).row.limit == kMany - kRemoved);
  CHECK(daemon.Describe(name).held == kMany - kRemoved);
  CHECK(daemon.Do(Remove(name, sequence + 1000, revision)).kind == OutcomeKind::kRevisionMismatch);
}

}  // namespace

CONTRACT_CASE("fault: a resize is finished by its retry, whatever part of it has landed") {
  TakeSmallSteps(world);
  if (!world.CanRestart() || !world.guarantees().revisions) return;
  for (int parts = 0; parts <= kParts; ++parts) {
    const std::string name = "s" + std::to_string(parts);
    const auto sequence = static_cast<uint64_t>(parts) + 1;
    const uint64_t revision = RemoveParts(world, name, parts, sequence);
    FinishRemoving(world, world.Restart(), name, sequence, revision);
  }
}

CONTRACT_CASE("fault: a resize is finished by its retry at another daemon") {
  TakeSmallSteps(world);
  if (!SharesClaims(world) || !world.guarantees().revisions) return;
  if (!world.guarantees().leases_survive_daemon) return;  // Nothing is left to be recalled.
  for (int parts = 0; parts <= kParts; ++parts) {
    const std::string name = "s" + std::to_string(parts);
    const auto sequence = static_cast<uint64_t>(parts) + 1;
    const uint64_t revision = RemoveParts(world, name, parts, sequence);
    // Killed. The other daemon has never heard of the semaphore.
    world.CloseAll();
    FinishRemoving(world, world.OpenAnother("b" + std::to_string(parts)), name, sequence, revision);
    world.CloseAll();
  }
}

CONTRACT_CASE("fault: a late repeat is not carried out by a daemon that does not know the floor") {
  // What ends below the floor is forgotten by the daemon that raises it, or a while later; the other one
  // has read the client before.
  world.options().request_window = 4;
  if (!SharesClaims(world)) return;
  Daemon& a = world.daemon();
  Daemon& b = world.OpenAnother("b");
  a.Create("s", 3);
  const LeasePtr first = a.Grant("s", {.client = "c", .sequence = 1});
  b.GiveBack("s", b.Grant("s", {.client = "c", .sequence = 2})->id);
  a.GiveBack("s", first->id);
  constexpr uint64_t kRequests = 330;
  for (uint64_t sequence = 3; sequence < kRequests;) {
    std::vector<Command> batch;
    for (int i = 0; i < 16 && sequence < kRequests; ++i, ++sequence) {
      batch.emplace_back(world.MakeAcquire("s", {.client = "c", .sequence = sequence}));
      const Id claim = std::get<AcquireCommand>(batch.back()).claim;
      batch.push_back(world.MakeRelease("s", claim));
    }
    for (const Outcome& outcome : a.DoAll(std::move(batch))) {
      const bool done =
          outcome.kind == OutcomeKind::kGranted || outcome.kind == OutcomeKind::kReleased;
      REQUIRE(done);
    }
  }
  for (const uint64_t sequence : {1, 2}) {
    const OutcomeKind late = b.Acquire("s", {.client = "c", .sequence = sequence}).kind;
    const bool refused = late == OutcomeKind::kTooOld || late == OutcomeKind::kNotHeld;
    CHECK(refused);
    CHECK(a.Acquire("s", {.client = "c", .sequence = sequence}).kind == OutcomeKind::kTooOld);
  }
  CHECK(b.Describe("s").held == 0);
  b.Grant("s", {.client = "c", .sequence = kRequests});
}

CONTRACT_CASE("fault: an acquire that is refused leaves no new semaphore behind") {
  world.options().request_window = 4;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 3);
  daemon.Grant("s", {.client = "c", .sequence = 100});
  for (const bool waits : {false, true}) {
    Ask reused{.limit = 2, .wait = waits, .client = "c", .sequence = 100};
    Ask late = reused;
    late.sequence = 1;
    const Ask homeless{.limit = 2, .wait = waits, .session = world.NewId()};
    std::vector<std::pair<Ask, OutcomeKind>> refused = {{reused, OutcomeKind::kReused},
                                                        {late, OutcomeKind::kTooOld},
                                                        {homeless, OutcomeKind::kSessionLost}};
    if (world.guarantees().weighted)
      refused.emplace_back(Ask{.permits = 3, .limit = 2, .wait = waits},
                           OutcomeKind::kExceedsLimit);
    // Each alone, and twice in a batch with an acquire that is granted.
    std::vector<Command> batch;
    for (size_t i = 0; i < refused.size(); ++i) {
      const std::string name = "new" + std::to_string(i);
      CHECK(daemon.Acquire(name, refused[i].first).kind == refused[i].second);
      CHECK_FALSE(daemon.Exists(name));
      for (int twice = 0; twice < 2; ++twice)
        batch.emplace_back(world.MakeAcquire(name, refused[i].first));
    }
    batch.emplace_back(world.MakeAcquire("s", {}));
    const std::vector<Outcome> outcomes = daemon.DoAll(std::move(batch));
    for (size_t i = 0; i < 2 * refused.size(); ++i)
      CHECK(outcomes[i].kind == refused[i / 2].second);
    CHECK(outcomes.back().kind == OutcomeKind::kGranted);
    for (size_t i = 0; i < refused.size(); ++i)
      CHECK_FALSE(daemon.Exists("new" + std::to_string(i)));
  }
  if (!SharesClaims(world)) return;
  CHECK_FALSE(world.OpenAnother("b").Exists("new0"));
}

CONTRACT_CASE("fault: a waiter that is older than a revoke is granted by it, and not revoked") {
  TakeSmallSteps(world);
  Daemon& daemon = world.daemon();
  daemon.Create("s", 4);
  for (int i = 0; i < 4; ++i) daemon.Grant("s", {.holder = "x"});
  std::vector<Id> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(daemon.Queue("s", {.holder = "x"}));
  AdminRevoke revoke;
  revoke.holder = "x";
  REQUIRE(daemon.Administer("s", revoke).affected() == 4);
  daemon.PollUntil([&] { return ClaimsIn(daemon.events(), Event::Kind::kGranted).size() == 4; });
  for (int i = 0; i < 5; ++i) daemon.Poll();
  for (const Id& claim : waiting) {
    const Outcome verified = daemon.Verify("s", claim);
    REQUIRE(verified.kind == OutcomeKind::kHeld);
    CHECK_FALSE(verified.lease->recall.pending());
  }
}

CONTRACT_CASE("fault: a holder's later requests do not starve its waiter at the cap") {
  if (!world.guarantees().holder_cap || !world.guarantees().weighted) return;
  Daemon& daemon = world.daemon();
  daemon.Create("s", 10, {.permits_per_holder = 4});
  const Ask two{.permits = 2, .holder = "h"};
  const Id first = daemon.Grant("s", two)->id;
  const Id second = daemon.Grant("s", two)->id;
  const Id waits = daemon.Queue("s", {.permits = 4, .holder = "h"});
  daemon.GiveBack("s", first);
  // Each of these would fit under the cap. Without a wait they are refused, with one they stand behind.
  CHECK(daemon.Acquire("s", {.holder = "h"}).kind == OutcomeKind::kHolderCap);
  CHECK(daemon.Acquire("s", two).kind == OutcomeKind::kHolderCap);
  const Id later = daemon.Queue("s", {.holder = "h"});
  // It is in no other holder's way.
  const Id other = daemon.Grant("s", {.permits = 4, .holder = "other"})->id;
  daemon.GiveBack("s", second);
  daemon.PollUntil([&] { return Saw(daemon.events(), Event::Kind::kGranted, waits); });
  CHECK(daemon.Verify("s", later).kind == OutcomeKind::kStillWaiting);
  daemon.GiveBack("s", waits);
  daemon.PollUntil([&] { return Saw(daemon.events(), Event::Kind::kGranted, later); });
  CHECK(daemon.Verify("s", other).kind == OutcomeKind::kHeld);
}

CONTRACT_CASE(
    "fault: one session's expiry leaves a lease alone that another has, at the same epoch") {
  Daemon& daemon = world.daemon();
  daemon.Create("s", 1);
  const Id one = world.NewId();
  const Id two = world.NewId();
  REQUIRE(daemon.OpenSession(one, "c").kind == OutcomeKind::kDone);
  REQUIRE(daemon.OpenSession(two, "c").kind == OutcomeKind::kDone);
  const Id lease = daemon.Grant("s", {.session = one, .client = "c", .sequence = 1})->id;
  AcquireCommand repeated = world.MakeAcquire("s", {.session = two, .client = "c", .sequence = 1});
  REQUIRE(daemon.Do(repeated).kind == OutcomeKind::kMoving);
  repeated.moved_is_over = true;
  REQUIRE(daemon.Do(repeated).kind == OutcomeKind::kGranted);
  // Both sessions have the epoch 1. The expiry, the end of a disconnected client and the close of the
  // first come late.
  for (const EndCause cause : {EndCause::kExpired, EndCause::kDisconnected}) {
    const EndCommand end{
        .semaphore = "s", .claim = lease, .cause = cause, .session = one, .epoch = 1};
    CHECK(daemon.Do(end).kind == OutcomeKind::kStale);
  }
  CHECK(daemon.Do(CloseSessionCommand{one, 1, EndCause::kExpired}).kind == OutcomeKind::kDone);
  CHECK(daemon.Verify("s", lease).lease->session == two);
  CHECK(daemon.Acquire("s", {}).kind == OutcomeKind::kFull);
  const EndCommand own{.semaphore = "s", .claim = lease, .session = two, .epoch = 1};
  CHECK(daemon.Do(own).kind == OutcomeKind::kDone);
}

}  // namespace semaphored::contract
