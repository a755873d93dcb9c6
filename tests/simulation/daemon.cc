#include "tests/simulation/daemon.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger.h"
#include "tests/simulation/ordered_adapter.h"

namespace semaphored::simulation {
namespace {
// A pause of a quarantine is at most 4 s, and a sweep comes every 3 s.
constexpr int64_t kQuarantineEndsWithinUs = 10 * kSecond;
}  // namespace

Daemon::Daemon(World* world, EngineHandle engine, Faults* faults, DaemonOptions options)
    : world_(world),
      engine_(engine),
      faults_(faults),
      options_(std::move(options)),
      clock_(world, options_.clock_start_us, options_.clock_speed),
      link_(std::make_shared<EngineLink>(world, faults)) {}

Daemon::~Daemon() = default;

// ---- beginning and end ----

void Daemon::Start() {
  if (!alive()) return;
  if (TryStart()) return;
  world_->After(200 * kMillisecond, [self = weak_from_this()] {
    if (const auto daemon = self.lock()) daemon->Start();
  });
}

bool Daemon::TryStart() {
  auto nodes = std::make_unique<MemoryNodeStore>(engine_.engine, link_);
  const absl::StatusOr<NodeRef> self = nodes->Join(absl::StrCat("node-", options_.node));
  if (!self.ok()) return false;
  world_->Trace(absl::StrCat(name(), " joins as ", self->number, ".", self->incarnation));
  nodes_ = MutateNodes(options_.mutant, std::move(nodes));
  if (!AddLanes(*self)) return false;
  if (!alive()) return true;
  SessionsOptions sessions_options;
  sessions_options.node_ttl_ms = options_.node_ttl_ms;
  sessions_options.sweep_interval_ms = options_.sweep_interval_ms;
  if (options_.mutant == Mutant::kNoGraceAfterMove) {
    sessions_options.node_ttl_ms = sessions_options.sweep_interval_ms = 0;
  }
  sessions_ = MakeSessions(this, sessions_options);
  MembershipOptions membership;
  membership.node_ttl = Milliseconds(options_.node_ttl_ms);
  membership.exclusive = guarantees().exclusive;
  membership_ =
      std::make_unique<Membership>(nodes_.get(), *self, &clock_, membership,
                                   [this](SteadyTime since) { return progress_at() >= since; });
  TakeOver({}, [this] {
    serving_ = true;
    world_->Trace(absl::StrCat(name(), " serves"));
  });
  for (size_t number = 0; number < lanes_.size(); ++number) LaneAfter(number, kSecond);
  RunMembership();
  return true;
}

bool Daemon::AddLanes(const NodeRef& self) {
  lanes_.clear();
  ledger::LedgerOptions ledger_options;
  ledger_options.self = self;
  ledger_options.request_window = options_.request_window;
  ledger_options.limits = options_.limits;
  ledger_options.client_retention = Milliseconds(options_.client_retention_ms);
  ledger_options.clients_max = options_.clients_max;
  ledger_options.quarantine_pause_max = Milliseconds(4000);
  ledger_options.sweep_interval = options_.mutant == Mutant::kNoNotices
                                      ? Milliseconds(3'600'000)
                                      : Milliseconds(options_.sweep_interval_ms);
  // So that acts are carried on, also here, where all is small.
  ledger_options.changes_per_commit_max = options_.cell.changes_per_commit_max();
  ledger_options.read_to_adopt_max = options_.cell.read_to_adopt_max();
  ledger_options.carry_on_time = Milliseconds(0);
  ledger_options.now = [this] { return clock_.Now(); };
  ledger_options.watched = watched_;
  ledger_options.now_unix_ms = [this] { return clock_.NowUnixMs(); };
  std::vector<std::unique_ptr<SimulatedLane>> lanes;
  for (size_t number = 0; number < options_.cell.lanes; ++number) {
    auto store = std::make_unique<MemoryStore>(
        engine_, link_,
        [self = weak_from_this(), number] {
          if (const auto daemon = self.lock()) daemon->LaneAfter(number, 0);
        },
        options_.cell);
    auto adapter =
        ledger::MakeLedgerAdapter(MutateStore(options_.mutant, std::move(store)), ledger_options);
    if (!adapter.ok()) return false;
    auto ordered = std::make_unique<OrderedAdapter>(*std::move(adapter), options_.branches);
    LaneOptions lane_options;
    lane_options.number = number;
    lane_options.lanes = options_.cell.lanes;
    auto lane = std::make_unique<SimulatedLane>();
    lane->core = std::make_unique<LaneCore>(MutateAdapter(options_.mutant, std::move(ordered)),
                                            &clock_, lane_options);
    lane->told = lane->core->fresh_at();
    lanes.push_back(std::move(lane));
  }
  lanes_ = std::move(lanes);
  return true;
}

void Daemon::TakeOver(std::vector<NodeRef> dead, std::function<void()> done) {
  sessions_->TakeOver(
      dead, [self = weak_from_this(), dead, done = std::move(done)](const absl::Status& status) {
        const auto daemon = self.lock();
        if (daemon == nullptr || !daemon->alive()) return;
        if (status.ok()) {
          if (done) done();
          return;
        }
        daemon->world_->After(500 * kMillisecond, [self, dead, done] {
          if (const auto again = self.lock())
            again->Post([again, dead, done] { again->TakeOver(dead, done); });
        });
      });
}

void Daemon::Kill() {
  if (!alive()) return;
  world_->Trace(absl::StrCat(name(), " is killed"));
  faults_->Note(FaultKind::kDaemonKilled);
  faults_->Disturb(*world_);
  link_->dead = true;
  for (const auto& listener : std::exchange(on_death_, {})) listener();
}

void Daemon::Exit(const absl::Status& why) {
  if (!alive()) return;
  world_->Trace(absl::StrCat(name(), " ends: ", why.message()));
  Kill();
}

void Daemon::PauseUntil(int64_t time_us) {
  world_->Trace(
      absl::StrCat(name(), " is paused for ", (time_us - world_->now()) / kMillisecond, " ms"));
  faults_->Note(FaultKind::kDaemonPaused);
  faults_->DisturbUntil(time_us);
  link_->paused_until_us = std::max(link_->paused_until_us, time_us);
}

// ---- the reactor ----

void Daemon::Post(std::function<void()> work) {
  if (!alive()) return;
  if (paused()) {
    world_->At(link_->paused_until_us, [self = weak_from_this(), work = std::move(work)]() mutable {
      if (const auto daemon = self.lock()) daemon->Post(std::move(work));
    });
    return;
  }
  work();
  AfterReactor();
}

void Daemon::CheckDamaged(const std::string& semaphore) const {
  const auto damaged = faults_->damaged_until_us.find(semaphore);
  if (damaged == faults_->damaged_until_us.end())
    throw Violation{
        absl::StrCat(name(), " says that ", semaphore, " is damaged, which it never was")};
  // A sweep, or the end of the pause, finds that it is not any more.
  if (faults_->CalmForUs(*world_, semaphore) > kQuarantineEndsWithinUs) {
    throw Violation{absl::StrCat(name(), " says that ", semaphore, " is damaged, which was mended ",
                                 (world_->now() - damaged->second) / kSecond, " s ago")};
  }
}

void Daemon::AfterReactor() {
  if (!alive() || sessions_ == nullptr) return;
  const SteadyTime next = sessions_->OnTimer();
  if (next == SteadyTime::max()) return;
  const int64_t at_us = std::max(clock_.WorldTimeOf(next), world_->now() + 1);
  if (timer_at_us_ > world_->now() && timer_at_us_ <= at_us) return;
  timer_at_us_ = at_us;
  world_->At(at_us, [self = weak_from_this(), at_us] {
    const auto daemon = self.lock();
    if (daemon == nullptr || daemon->timer_at_us_ != at_us) return;
    daemon->timer_at_us_ = 0;
    daemon->Post([] {});
  });
}

// ---- the lanes ----

void Daemon::Submit(size_t lane, Job job) {
  lanes_[lane]->jobs.push_back(std::move(job));
  LaneAfter(lane, world_->random().Between(5, 50));
}

void Daemon::LaneAfter(size_t number, int64_t delay_us) {
  if (number >= lanes_.size()) return;
  SimulatedLane& lane = *lanes_[number];
  const int64_t at_us = world_->now() + delay_us;
  if (lane.at_us != 0 && lane.at_us <= at_us) return;
  lane.at_us = at_us;
  world_->At(at_us, [self = weak_from_this(), number, at_us] {
    const auto daemon = self.lock();
    if (daemon == nullptr || daemon->lanes_[number]->at_us != at_us) return;
    daemon->lanes_[number]->at_us = 0;
    daemon->RunLane(number);
  });
}

void Daemon::RunLane(size_t number) {
  SimulatedLane& lane = *lanes_[number];
  // While it is busy, what comes is looked at when it has done.
  if (!alive() || lane.busy) return;
  if (paused()) {
    LaneAfter(number, link_->paused_until_us - world_->now());
    return;
  }
  const bool had_jobs = !lane.jobs.empty();
  if (!had_jobs && lane.core->not_before() > clock_.Now()) {
    const int64_t wait_us = clock_.WorldTimeOf(lane.core->not_before()) - world_->now();
    LaneAfter(number, std::max<int64_t>(wait_us, 1));
    return;
  }
  lane.busy = true;
  LaneResults results;
  lane.core->RunOnce(std::exchange(lane.jobs, {}), SteadyTime::min(), &results);
  lane.busy = false;
  if (!alive()) return;
  if (!results.empty()) {
    Deliver(number, std::move(results));
  } else if (lane.untold == 0) {
    lane.told = lane.core->fresh_at();
  }
  // What came meanwhile, what is still unknown, and otherwise a look around now and then.
  LaneAfter(number, !lane.jobs.empty()       ? 0
                    : lane.core->unsettled() ? 5 * kMillisecond
                    : had_jobs               ? 2 * kMillisecond
                                             : IdleUs());
}

// A thread may be kept from running between its Step and the delivery; that of another lane goes on.
void Daemon::Deliver(size_t number, LaneResults results) {
  SimulatedLane& lane = *lanes_[number];
  Random& random = world_->random();
  int64_t delay_us = random.Between(5, 50);
  if (lanes_.size() > 1 && random.Chance(0.1)) delay_us += random.Between(1, 100) * kMillisecond;
  lane.delivered_us = std::max(lane.delivered_us, world_->now() + delay_us);
  results.fresh = lane.core->fresh_at();
  ++lane.untold;
  auto shared = std::make_shared<LaneResults>(std::move(results));
  world_->At(lane.delivered_us, [self = weak_from_this(), number, shared] {
    const auto daemon = self.lock();
    if (daemon == nullptr) return;
    daemon->Post([daemon, number, shared] {
      const absl::Status fatal = shared->fatal;
      const SteadyTime fresh = shared->fresh;
      daemon->sessions_->OnLaneResults(number, std::move(*shared));
      daemon->lanes_[number]->told = fresh;
      --daemon->lanes_[number]->untold;
      if (!fatal.ok()) daemon->Exit(fatal);
    });
  });
}

SteadyTime Daemon::progress_at() const {
  SteadyTime oldest = SteadyTime::max();
  for (const auto& lane : lanes_) oldest = std::min(oldest, lane->core->progress_at());
  return oldest;
}

// As often as a heartbeat needs to see progress.
int64_t Daemon::IdleUs() const {
  return std::min<int64_t>(kSecond, options_.node_ttl_ms * kMillisecond / 6);
}

// ---- membership ----

SteadyTime Daemon::vouch_until() const {
  if (options_.mutant == Mutant::kVouchForEver) return SteadyTime::max();
  // As Host::vouch_until does.
  const Milliseconds lane_vouch(options_.node_ttl_ms - options_.node_ttl_ms / 10);
  SteadyTime until = membership_->vouch_until();
  if (guarantees().exclusive) return until;
  for (const auto& lane : lanes_) until = std::min(until, lane->told + lane_vouch);
  return until;
}

void Daemon::RunMembership() {
  if (!alive()) return;
  if (paused()) {
    world_->At(link_->paused_until_us, [self = weak_from_this()] {
      if (const auto daemon = self.lock()) daemon->RunMembership();
    });
    return;
  }
  const SteadyTime next = clock_.Now() + membership_->interval();
  const Membership::TickResult result = membership_->Tick();
  if (!alive()) return;
  if (!result.fatal.ok()) return Exit(result.fatal);
  if (!result.dead.empty()) {
    for (const NodeRef& dead : result.dead) {
      world_->Trace(absl::StrCat(name(), " takes over ", dead.number, ".", dead.incarnation));
    }
    Post([this, dead = result.dead] { TakeOver(dead, {}); });
  }
  LookAtVouching();
  world_->At(std::max(clock_.WorldTimeOf(next), world_->now() + 1), [self = weak_from_this()] {
    if (const auto daemon = self.lock()) daemon->RunMembership();
  });
}

void Daemon::LookAtVouching() {
  const bool vouched = clock_.Now() < vouch_until();
  if (vouched != vouched_) {
    vouched_ = vouched;
    Post([this] { sessions_->OnVouchChange(); });
  }
  if (!vouched || vouch_until() == SteadyTime::max()) return;
  world_->At(clock_.WorldTimeOf(vouch_until()) + 1, [self = weak_from_this()] {
    const auto daemon = self.lock();
    if (daemon != nullptr && daemon->alive()) daemon->LookAtVouching();
  });
}

}  // namespace semaphored::simulation
