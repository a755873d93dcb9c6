#include "tests/contract/world.h"

#include <algorithm>
#include <optional>

#include "adapters/steady_clock.h"

namespace semaphored::contract {
namespace {

using std::chrono::seconds;
constexpr seconds kPatience = seconds(10);
constexpr std::chrono::milliseconds kPoll{20};
// What is under way mostly has come after so long; what has not is owed (IsOwed).
constexpr std::chrono::milliseconds kUnderWay{15};

}  // namespace

void TokenWatch::See(const Guarantees& guarantees, const std::string& semaphore,
                     const Lease& lease) {
  REQUIRE((lease.token != 0) == guarantees.fencing);
  if (!guarantees.fencing) return;
  for (const uint32_t slot : lease.slots) {
    OfSlot& seen = slots_[{semaphore, slot}];
    const auto [claim, is_new] = seen.of_claims.try_emplace(lease.id, lease.token);
    REQUIRE(claim->second == lease.token);
    if (!is_new) continue;
    REQUIRE(lease.token > seen.highest);
    seen.highest = lease.token;
  }
}

World::World(const EngineUnderTest& engine) : fixture_(engine.make()) {
  options_.now = [this] { return now(); };
  options_.now_unix_ms = [this] { return wall_ms_; };
  options_.watched = watched_;
}

World::~World() { CloseAll(); }

absl::StatusOr<std::unique_ptr<Daemon>> World::TryOpen(const std::string& node_id) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = fixture_->Open();
  if (!engine.ok()) return engine.status();
  absl::StatusOr<NodeRef> self = (*engine)->nodes().Join(node_id);
  if (!self.ok()) return self.status();
  options_.self = *self;
  absl::StatusOr<std::unique_ptr<Adapter>> lane = (*engine)->OpenLane(options_);
  if (!lane.ok()) return lane.status();
  return std::make_unique<Daemon>(this, *std::move(engine), *self, *std::move(lane));
}

Daemon& World::OpenAnother(const std::string& node_id) {
  absl::StatusOr<std::unique_ptr<Daemon>> opened = TryOpen(node_id);
  INFO(opened.status().ToString());
  REQUIRE(opened.ok());
  daemons_.push_back(*std::move(opened));
  return *daemons_.back();
}

Daemon& World::OpenLane(const Daemon& daemon) {
  options_.self = daemon.self();
  daemons_.push_back(daemon.NewLane(options_));
  REQUIRE(daemons_.back() != nullptr);
  return *daemons_.back();
}

Daemon& World::daemon() { return daemons_.empty() ? OpenAnother("a") : *daemons_.front(); }

Daemon& World::Restart(const std::string& node_id) {
  REQUIRE(fixture_->can_restart());
  CloseAll();
  return OpenAnother(node_id);
}

bool World::CanRestart() {
  const bool survive = guarantees().leases_survive_daemon;
  if (fixture_->can_restart() && survive) return true;
  daemon().Create("kept", 1);
  const Id lease = daemon().Grant("kept")->id;
  CloseAll();
  CHECK(daemon().Exists("kept") == fixture_->can_restart());
  CHECK(daemon().Verify("kept", lease).kind == OutcomeKind::kNotHeld);
  return false;
}

bool World::CanBeZero() {
  daemon().Create("zero", 1);
  const Outcome lowered = daemon().Resize("zero", 0);
  const bool can = lowered.kind == OutcomeKind::kDone;
  if (!can) {
    CHECK_FALSE(guarantees().settings);
    CheckUnsupported(*this, lowered);
    CHECK(daemon().Describe("zero").row.limit == 1);
  }
  REQUIRE(daemon().Administer("zero", AdminDestroy{}).kind == OutcomeKind::kDone);
  return can;
}

void World::CloseAll() {
  // A lane goes before its engine: see the order of Daemon's members.
  daemons_.clear();
}

const Guarantees& World::guarantees() { return daemon().lane().guarantees(); }

AcquireCommand World::MakeAcquire(const std::string& semaphore, Ask ask) {
  AcquireCommand command;
  command.requester = {ask.client, ask.sequence, ask.one_shot};
  command.semaphore = semaphore;
  command.claim = NewId();
  command.session = ask.session.empty() ? command.claim : ask.session;
  command.permits = ask.permits;
  command.limit = ask.limit;
  command.adopt_limit = ask.adopt_limit;
  command.must_exist = ask.must_exist;
  command.wait = ask.wait;
  command.priority = ask.priority;
  command.ttl_ms = ask.ttl_ms;
  command.holder = std::move(ask.holder);
  command.owner = std::move(ask.owner);
  command.only_if_repeated = ask.only_if_repeated;
  return command;
}

Command World::MakeRelease(const std::string& semaphore, const Id& claim) {
  ReleaseCommand command;
  command.semaphore = semaphore;
  command.claim = claim;
  return command;
}

// The batch under way: what was asked under which ticket, the answers, and the grants that were
// seen.
struct Daemon::Running {
  std::vector<Submission> batch;
  std::vector<Outcome> outcomes;
  std::vector<std::pair<std::string, LeasePtr>> grants;
  std::vector<size_t> undone;  // Places in the batch.
};

// A Step that fails has done nothing of its batch. It fails now and then where answers are lost: that of
// a commit without commands must be found out first.
absl::StatusOr<StepResult> Daemon::StepPatiently(absl::Span<const Submission> batch,
                                                 SteadyTime deadline) {
  constexpr int kTries = 20;
  absl::StatusOr<StepResult> result = lane_->Step(batch, deadline);
  for (int i = 1; i < kTries && absl::IsUnavailable(result.status()); ++i)
    result = lane_->Step(batch, deadline);
  return result;
}

std::unique_ptr<Daemon> Daemon::NewLane(const ledger::LedgerOptions& options) const {
  absl::StatusOr<std::unique_ptr<Adapter>> lane = engine_->OpenLane(options);
  if (!lane.ok()) return nullptr;
  return std::make_unique<Daemon>(world_, engine_, self_, *std::move(lane));
}

std::vector<Outcome> Daemon::DoAll(std::vector<Command> commands) {
  Running running;
  for (Command& command : commands) running.batch.push_back({++numbers_, std::move(command)});
  const SteadyTime deadline = std::max(world_->now(), SteadyClock::now()) + kPatience;
  absl::StatusOr<StepResult> result = StepPatiently(running.batch, deadline);
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  REQUIRE(result->outcomes.size() == running.batch.size());
  running.outcomes = std::move(result->outcomes);
  Collect(*std::move(result), &running);
  const auto unknown = [](const Outcome& outcome) { return outcome.kind == OutcomeKind::kUnknown; };
  while (std::any_of(running.outcomes.begin(), running.outcomes.end(), unknown)) {
    REQUIRE(SteadyClock::now() < deadline);
    result = lane_->Step({}, deadline);
    REQUIRE(result.ok());
    Collect(*std::move(result), &running);
  }
  for (size_t i = 0; i < running.outcomes.size(); ++i) {
    const Outcome& outcome = running.outcomes[i];
    if (outcome.kind != OutcomeKind::kGranted) continue;
    running.grants.emplace_back(SemaphoreOf(running.batch[i].command), outcome.lease);
  }
  See(&running);
  for (size_t i = 0; i < running.outcomes.size(); ++i) {
    const Outcome& outcome = running.outcomes[i];
    if (outcome.kind != OutcomeKind::kQueued) continue;
    waiting_[outcome.claim] = SemaphoreOf(running.batch[i].command);
    // A request that has just come is let in at once, or knows why not.
    const auto* acquire = std::get_if<AcquireCommand>(&running.batch[i].command);
    if (acquire != nullptr && outcome.claim == acquire->claim)
      REQUIRE(outcome.wait_reason() != WaitReason::kNone);
  }
  LetArrive();
  for (const size_t place : running.undone)
    running.outcomes[place] = Do(running.batch[place].command);
  return std::move(running.outcomes);
}

// Where grants come a moment later, those that are under way come before the case goes on.
void Daemon::LetArrive() {
  if (guarantees().grants_at_once) return;
  const SteadyTime deadline = SteadyClock::now() + kPatience;
  size_t seen = events_.size();
  int quiet = 0;
  while (!waiting_.empty() && SteadyClock::now() < deadline) {
    absl::StatusOr<StepResult> result = StepPatiently({}, SteadyClock::now() + kUnderWay);
    REQUIRE(result.ok());
    Running nothing;
    Collect(*std::move(result), &nothing);
    See(&nothing);
    // Twice: what is on its way to us may just have been counted as held by others.
    quiet = events_.size() == seen && !IsOwed() ? quiet + 1 : 0;
    if (quiet == 2) return;
    seen = events_.size();
  }
}

bool Daemon::IsOwed() {
  std::set<std::string> names;
  for (const auto& [claim, name] : waiting_) names.insert(name);
  std::vector<Submission> batch;
  for (const std::string& name : names)
    batch.push_back({++numbers_, AdminCommand{{}, name, 0, AdminDescribe{0}}});
  absl::StatusOr<StepResult> result = lane_->Step(batch, SteadyClock::now() + kPatience);
  REQUIRE(result.ok());
  bool owed = false;
  for (const Outcome& outcome : result->outcomes) {
    if (outcome.kind != OutcomeKind::kDone) continue;
    const SemaphoreInfo& info = outcome.report->info.value();
    const bool closed = info.row.paused || info.row.destroying;
    owed = owed || (!closed && info.waiting > 0 && info.held < info.row.limit);
  }
  Running nothing;
  Collect(*std::move(result), &nothing);
  See(&nothing);
  return owed;
}

void Daemon::See(Running* running) {
  // Outcomes and events of one batch have no order among each other; batches have.
  std::ranges::sort(running->grants, {}, [](const auto& grant) { return grant.second->token; });
  for (const auto& [semaphore, lease] : running->grants) {
    REQUIRE(lease->slots.size() == lease->permits);
    world_->tokens().See(guarantees(), semaphore, *lease);
  }
}

void Daemon::Collect(StepResult result, Running* running) {
  for (Settled& settled : result.settled) {
    INFO(settled.outcome.status().ToString());
    REQUIRE_FALSE(running->batch.empty());
    const size_t place = settled.number - running->batch.front().number;
    // Where a batch is carried out in several commits, and the answer to one of them was lost.
    if (absl::IsUnavailable(settled.outcome.status())) {
      running->undone.push_back(place);
      running->outcomes.at(place).kind = OutcomeKind::kStale;
      continue;
    }
    REQUIRE(settled.outcome.ok());
    running->outcomes.at(place) = *std::move(settled.outcome);
  }
  for (const Event& event : result.events) {
    events_.push_back({event.kind, event.cause, event.claim, std::string(event.semaphore),
                       event.lease, event.ticket, event.payload});
    waiting_.erase(event.claim);
    if (event.kind != Event::Kind::kGranted) continue;
    REQUIRE(event.lease != nullptr);
    running->grants.emplace_back(event.semaphore, event.lease);
  }
  for (SemaphoreChange& change : result.changes) changes_.push_back(std::move(change));
  for (DelayedTicket& delayed : result.delayed) delayed_.push_back(std::move(delayed));
}

absl::Status Daemon::ErrorOf(Command command) {
  std::vector<Submission> batch;
  batch.push_back({++numbers_, std::move(command)});
  const SteadyTime deadline = SteadyClock::now() + kPatience;
  absl::StatusOr<StepResult> result = lane_->Step(batch, deadline);
  while (result.ok() && SteadyClock::now() < deadline) {
    for (const Settled& settled : result->settled) return settled.outcome.status();
    if (!result->outcomes.empty() && result->outcomes[0].kind != OutcomeKind::kUnknown) break;
    result = lane_->Step({}, deadline);
  }
  return result.status();
}

Outcome Daemon::Do(Command command) {
  std::vector<Command> commands;
  commands.push_back(std::move(command));
  return std::move(DoAll(std::move(commands)).front());
}

void Daemon::Poll() {
  absl::StatusOr<StepResult> result = StepPatiently({}, SteadyTime{});
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  Running nothing;
  Collect(*std::move(result), &nothing);
  See(&nothing);
}

void Daemon::PollUntil(const std::function<bool()>& there) {
  const SteadyTime deadline = SteadyClock::now() + kPatience;
  while (!there()) {
    REQUIRE(SteadyClock::now() < deadline);
    // What no notice tells is found when the daemon looks again.
    if (!guarantees().push) world_->Advance(kPoll.count());
    absl::StatusOr<StepResult> result = StepPatiently({}, SteadyClock::now() + kPoll);
    REQUIRE(result.ok());
    Running nothing;
    Collect(*std::move(result), &nothing);
    See(&nothing);
  }
}

Outcome Daemon::Acquire(const std::string& semaphore, Ask ask) {
  return Do(world_->MakeAcquire(semaphore, std::move(ask)));
}

Outcome Daemon::Release(const std::string& semaphore, Id claim, Slots slots, Requester requester) {
  return Do(ReleaseCommand{std::move(requester), semaphore, claim, std::move(slots)});
}

Outcome Daemon::Verify(const std::string& semaphore, Id claim) {
  return Do(VerifyCommand{semaphore, claim, 0, 0});
}

Outcome Daemon::VerifySlot(const std::string& semaphore, uint32_t slot, uint64_t token) {
  return Do(VerifyCommand{semaphore, {}, slot, token});
}

Outcome Daemon::End(const std::string& semaphore, Id claim, EndCause cause, uint32_t epoch) {
  return Do(EndCommand{.semaphore = semaphore, .claim = claim, .cause = cause, .epoch = epoch});
}

Outcome Daemon::EndWait(const std::string& semaphore, Id claim, EndCause cause) {
  return Do(
      EndCommand{.semaphore = semaphore, .claim = claim, .cause = cause, .only_waiting = true});
}

Outcome Daemon::Resize(const std::string& semaphore, uint32_t limit, ShrinkPolicy policy) {
  return Administer(semaphore,
                    AdminResize{AdminResize::Change::kSet, limit, 1'000'000, policy, {}});
}

Outcome Daemon::OpenSession(Id session, const std::string& client, int64_t ttl_ms) {
  return Do(OpenSessionCommand{session, client, ttl_ms, "session holder", false});
}

void Daemon::Create(const std::string& semaphore, uint32_t limit, Settings settings) {
  const Outcome outcome = Administer(semaphore, AdminCreate{limit, settings});
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  REQUIRE(outcome.changed);
}

LeasePtr Daemon::Grant(const std::string& semaphore, Ask ask) {
  Outcome outcome = Acquire(semaphore, std::move(ask));
  REQUIRE(outcome.kind == OutcomeKind::kGranted);
  return outcome.lease;
}

Id Daemon::Queue(const std::string& semaphore, Ask ask) {
  ask.wait = true;
  const Outcome outcome = Acquire(semaphore, std::move(ask));
  REQUIRE(outcome.kind == OutcomeKind::kQueued);
  REQUIRE_FALSE(outcome.claim.empty());
  return outcome.claim;
}

void Daemon::GiveBack(const std::string& semaphore, const Id& claim) {
  REQUIRE(Release(semaphore, claim).kind == OutcomeKind::kReleased);
}

LeasePtr Daemon::GrantSoon(const std::string& semaphore, Ask ask) {
  if (guarantees().grants_at_once) return Grant(semaphore, std::move(ask));
  ask.wait = true;
  const Outcome outcome = Acquire(semaphore, std::move(ask));
  if (outcome.kind == OutcomeKind::kGranted) return outcome.lease;
  REQUIRE(outcome.kind == OutcomeKind::kQueued);
  PollUntil([&] { return Saw(events_, Event::Kind::kGranted, outcome.claim); });
  return Verify(semaphore, outcome.claim).lease;
}

void Daemon::CheckHeld(const std::string& semaphore, uint32_t held) {
  if (!guarantees().grants_at_once) PollUntil([&] { return Describe(semaphore, 0).held == held; });
  CHECK(Describe(semaphore).held == held);
}

SemaphoreInfo Daemon::Describe(const std::string& semaphore, uint32_t rows_max) {
  Outcome outcome = Administer(semaphore, AdminDescribe{rows_max});
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  REQUIRE(outcome.report != nullptr);
  REQUIRE(outcome.report->info.has_value());
  return *std::move(outcome.report->info);
}

bool Daemon::Exists(const std::string& semaphore) {
  const Outcome outcome = Administer(semaphore, AdminDescribe{0});
  if (outcome.kind == OutcomeKind::kNoSuchSemaphore) return false;
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  return true;
}

bool IsShared(World& world) { return !world.guarantees().exclusive; }

bool SharesClaims(World& world) { return IsShared(world) && world.guarantees().shares_claims; }

void OnEachPair(World& world, const std::function<void(Daemon&, Daemon&)>& check) {
  check(world.daemon(), world.daemon());
  if (SharesClaims(world)) check(world.daemon(), world.OpenAnother("b"));
}

void OnEachPairAndLanes(World& world, const std::function<void(Daemon&, Daemon&)>& check) {
  OnEachPair(world, check);
  if (world.guarantees().lanes_max > 1) check(world.daemon(), world.OpenLane(world.daemon()));
}

void TakeSmallSteps(World& world) {
  world.options().changes_per_commit_max = 2;
  world.options().carry_on_time = std::chrono::milliseconds(0);
}

bool Saw(const std::vector<SeenEvent>& events, Event::Kind kind, const Id& claim, EndCause cause) {
  return std::any_of(events.begin(), events.end(), [&](const SeenEvent& event) {
    return event.kind == kind && event.claim == claim && event.cause == cause;
  });
}

bool Overtakes(const Guarantees& guarantees, const Lease& after, const Lease& before) {
  return guarantees.fencing ? after.token > before.token : after.token == 0 && before.token == 0;
}

void CheckUnsupported(World& world, const Outcome& outcome) {
  CHECK(outcome.kind == OutcomeKind::kUnsupported);
  CHECK(outcome.message.find(world.guarantees().adapter) != std::string::npos);
}

std::vector<Id> ClaimsIn(const std::vector<SeenEvent>& events, Event::Kind kind) {
  std::vector<Id> claims;
  for (const SeenEvent& event : events) {
    if (event.kind == kind) claims.push_back(event.claim);
  }
  return claims;
}

std::vector<Id> WaitersIn(const SemaphoreInfo& info) {
  std::vector<Id> claims;
  for (const WaiterInfo& waiter : info.waiters) claims.push_back(waiter.waiter->id);
  return claims;
}

bool IsCause(const Guarantees& guarantees, EndCause told, EndCause cause) {
  const bool must_know = guarantees.history && guarantees.exclusive;
  return told == cause || (!must_know && told == EndCause::kUnknown);
}

}  // namespace semaphored::contract
