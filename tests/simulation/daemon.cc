#include "tests/simulation/daemon.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/ledger.h"
#include "tests/simulation/ordered_adapter.h"

namespace semaphored::simulation {

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
  ledger::LedgerOptions ledger_options;
  ledger_options.self = *self;
  ledger_options.request_window = options_.request_window;
  ledger_options.sweep_interval = options_.mutant == Mutant::kNoHints
                                      ? Milliseconds(3'600'000)
                                      : Milliseconds(options_.sweep_interval_ms);
  // So that acts are carried on, also here, where all is small.
  ledger_options.changes_per_commit_max = options_.changes_per_commit_max;
  ledger_options.carry_on_time = Milliseconds(0);
  ledger_options.now = [this] { return clock_.Now(); };
  ledger_options.now_unix_ms = [this] { return clock_.NowUnixMs(); };
  auto store = std::make_unique<MemoryStore>(engine_, link_, [self = weak_from_this()] {
    if (const auto daemon = self.lock()) daemon->LaneAfter(0);
  });
  auto adapter = ledger::MakeLedgerAdapter(MutateStore(options_.mutant, std::move(store)),
                                           std::move(ledger_options));
  if (!adapter.ok()) return false;
  auto ordered = std::make_unique<OrderedAdapter>(*std::move(adapter));
  lane_ = std::make_unique<LaneCore>(MutateAdapter(options_.mutant, std::move(ordered)), &clock_,
                                     LaneOptions{});
  SessionsOptions sessions_options;
  sessions_options.node_ttl_ms = options_.node_ttl_ms;
  sessions_options.sweep_interval_ms = options_.sweep_interval_ms;
  if (options_.mutant == Mutant::kNoGraceAfterMove) {
    sessions_options.node_ttl_ms = sessions_options.sweep_interval_ms = 0;
  }
  sessions_ = MakeSessions(this, sessions_options);
  MembershipOptions membership;
  membership.node_ttl = Milliseconds(options_.node_ttl_ms);
  membership_ = std::make_unique<Membership>(
      nodes_.get(), *self, &clock_, membership,
      [this](SteadyTime since) { return lane_->progress_at() >= since; });
  TakeOver({}, [this] {
    serving_ = true;
    world_->Trace(absl::StrCat(name(), " serves"));
  });
  LaneAfter(kSecond);
  RunMembership();
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

// ---- the lane ----

void Daemon::Submit(size_t, Job job) {
  jobs_.push_back(std::move(job));
  LaneAfter(world_->random().Between(5, 50));
}

void Daemon::LaneAfter(int64_t delay_us) {
  const int64_t at_us = world_->now() + delay_us;
  if (lane_at_us_ != 0 && lane_at_us_ <= at_us) return;
  lane_at_us_ = at_us;
  world_->At(at_us, [self = weak_from_this(), at_us] {
    const auto daemon = self.lock();
    if (daemon == nullptr || daemon->lane_at_us_ != at_us) return;
    daemon->lane_at_us_ = 0;
    daemon->RunLane();
  });
}

void Daemon::RunLane() {
  // While it is busy, what comes is looked at when it has done.
  if (!alive() || lane_busy_ || lane_ == nullptr) return;
  if (paused()) {
    LaneAfter(link_->paused_until_us - world_->now());
    return;
  }
  const bool had_jobs = !jobs_.empty();
  if (!had_jobs && lane_->not_before() > clock_.Now()) {
    LaneAfter(std::max<int64_t>(clock_.WorldTimeOf(lane_->not_before()) - world_->now(), 1));
    return;
  }
  lane_busy_ = true;
  auto results = std::make_shared<LaneResults>();
  lane_->RunOnce(std::exchange(jobs_, {}), SteadyTime::min(), results.get());
  lane_busy_ = false;
  if (!alive()) return;
  if (!results->empty()) {
    world_->After(world_->random().Between(5, 50), [self = weak_from_this(), results] {
      const auto daemon = self.lock();
      if (daemon == nullptr) return;
      daemon->Post([daemon, results] {
        const absl::Status fatal = results->fatal;
        daemon->sessions_->OnLaneResults(0, std::move(*results));
        if (!fatal.ok()) daemon->Exit(fatal);
      });
    });
  }
  // What came meanwhile, what is still unknown, and otherwise a look around now and then.
  LaneAfter(!jobs_.empty()       ? 0
            : lane_->unsettled() ? 5 * kMillisecond
            : had_jobs           ? 2 * kMillisecond
                                 : IdleUs());
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
  return std::min(membership_->vouch_until(), lane_->fresh_at() + lane_vouch);
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
