// Promises 1, 2 and 6 after whatever may happen: thousands of random commands, in batches, against
// a model. A failure names the seed and the batch.
#include <algorithm>
#include <random>

#include "tests/contract/walk_model.h"
#include "tests/contract/world.h"

namespace semaphored::contract {
namespace {

class Walk {
 public:
  Walk(World* world, uint32_t seed, uint32_t lowest_limit)
      : world_(world),
        guarantees_(world->guarantees()),
        lowest_limit_(lowest_limit),
        random_(seed) {
    for (const char* name : {"walk/a", "walk/b"}) {
      const uint32_t limit = Below(6) + 1;
      world_->daemon().Create(name, limit);
      models_.emplace(name, Place{ModelSemaphore(limit), {}});
    }
  }

  void Run(int batches) {
    for (int i = 0; i < batches; ++i) {
      INFO("batch " << i);
      RunBatch();
      if (restarts && Below(10) == 0) world_->Restart();
      CheckRows();
    }
  }

  bool restarts = false;

 private:
  struct Place {
    ModelSemaphore model;
    std::vector<Id> claims;  // All that ever asked for it.
  };

  uint32_t Below(uint32_t bound) {
    return std::uniform_int_distribution<uint32_t>(0, bound - 1)(random_);
  }

  void RunBatch();
  // For engines that make room a moment later than the Step: one command, until all that follows
  // from it has come.
  void RunLate();
  void WaitForGrants();
  // A random command, carried out in the model: what the adapter must say to it.
  OutcomeKind Next(const std::string& name, Place& place, Command* command);
  OutcomeKind NextAcquire(const std::string& name, Place& place, Command* command);
  OutcomeKind NextRelease(const std::string& name, Place& place, Command* command);
  Id SomeClaim(const Place& place);
  void CheckEvents();
  void CheckRows();

  World* world_;
  const Guarantees guarantees_;
  const uint32_t lowest_limit_;
  std::mt19937 random_;
  std::map<std::string, Place> models_;
};

Id Walk::SomeClaim(const Place& place) {
  const auto& holdings = place.model.holdings();
  const auto& queue = place.model.queue();
  if (Below(8) == 0 && !place.claims.empty()) {
    return place.claims[Below(static_cast<uint32_t>(place.claims.size()))];
  }
  if (Below(3) == 0 && !queue.empty())
    return queue[Below(static_cast<uint32_t>(queue.size()))].claim;
  if (!holdings.empty()) return holdings[Below(static_cast<uint32_t>(holdings.size()))].claim;
  return world_->NewId();
}

OutcomeKind Walk::NextAcquire(const std::string& name, Place& place, Command* command) {
  const Ask ask{.permits = guarantees_.weighted ? Below(3) + 1 : 1,
                .wait = Below(3) != 0,
                .priority = static_cast<int32_t>(Below(3)) - 1};
  AcquireCommand acquire = world_->MakeAcquire(name, ask);
  place.claims.push_back(acquire.claim);
  const OutcomeKind kind = place.model.Acquire(acquire.claim, ask.permits, ask.priority, ask.wait);
  *command = std::move(acquire);
  return kind;
}

OutcomeKind Walk::NextRelease(const std::string& name, Place& place, Command* command) {
  const Id claim = SomeClaim(place);
  std::set<uint32_t> slots;
  const auto found =
      std::ranges::find(place.model.holdings(), claim, &ModelSemaphore::Holding::claim);
  if (found != place.model.holdings().end() && Below(3) == 0) slots.insert(*found->slots.begin());
  if (Below(20) == 0) slots.insert(Below(12) + 1);
  *command = ReleaseCommand{{}, name, claim, Slots(slots.begin(), slots.end())};
  return place.model.Release(claim, slots);
}

OutcomeKind Walk::Next(const std::string& name, Place& place, Command* command) {
  const uint32_t dice = Below(100);
  if (dice < 45) return NextAcquire(name, place, command);
  if (dice < 75) return NextRelease(name, place, command);
  if (dice < 85) {
    const EndCause cause = Below(2) == 0 ? EndCause::kExpired : EndCause::kDisconnected;
    const Id claim = SomeClaim(place);
    *command = EndCommand{.semaphore = name, .claim = claim, .cause = cause};
    return place.model.End(claim, cause);
  }
  if (dice < 92) {
    const Id claim = SomeClaim(place);
    *command = VerifyCommand{name, claim, 0, 0};
    return place.model.Verify(claim, guarantees_.verifies_removed_slots);
  }
  if (dice < 97 || !guarantees_.settings) {
    const uint32_t limit = lowest_limit_ + Below(7 - lowest_limit_);
    place.model.Resize(limit);
    *command = AdminCommand{
        {}, name, 0, AdminResize{AdminResize::Change::kSet, limit, 100, ShrinkPolicy::kWait, {}}};
    return OutcomeKind::kDone;
  }
  const bool paused = !place.model.paused();
  place.model.Pause(paused);
  *command = AdminCommand{{}, name, 0, AdminPause{paused}};
  return OutcomeKind::kDone;
}

void Walk::WaitForGrants() {
  size_t expected = 0;
  for (const auto& [name, place] : models_) expected += place.model.granted().size();
  Daemon& daemon = world_->daemon();
  const auto granted = [&] { return ClaimsIn(daemon.events(), Event::Kind::kGranted).size(); };
  daemon.PollUntil([&] { return granted() >= expected; });
  if (guarantees_.lowest_slot) return;
  for (const SeenEvent& event : daemon.events()) {
    if (event.kind != Event::Kind::kGranted) continue;
    models_.at(event.semaphore)
        .model.SetSlots(event.claim, {event.lease->slots.begin(), event.lease->slots.end()});
  }
}

void Walk::RunLate() {
  const auto at = std::next(models_.begin(), Below(static_cast<uint32_t>(models_.size())));
  ModelSemaphore& model = at->second.model;
  Command command;
  const OutcomeKind expected = Next(at->first, at->second, &command);
  Outcome outcome = world_->daemon().Do(command);
  if (expected == OutcomeKind::kGranted) {
    // What is free may not be to be had yet: then it is soon, for who waits and for who asks again.
    const Id claim = std::get<AcquireCommand>(command).claim;
    world_->daemon().PollUntil([&] {
      if (outcome.kind == OutcomeKind::kFull) outcome = world_->daemon().Do(command);
      return outcome.kind != OutcomeKind::kFull;
    });
    if (outcome.kind == OutcomeKind::kQueued) {
      model.ExpectGranted(claim);
    } else {
      REQUIRE(outcome.kind == OutcomeKind::kGranted);
      model.SetSlots(claim, {outcome.lease->slots.begin(), outcome.lease->slots.end()});
    }
  } else {
    REQUIRE(outcome.kind == expected);
  }
  WaitForGrants();
  CheckEvents();
}

void Walk::RunBatch() {
  if (!guarantees_.grants_at_once) return RunLate();
  std::vector<Command> batch;
  std::vector<OutcomeKind> expected;
  const uint32_t size = Below(6) + 1;
  for (uint32_t i = 0; i < size; ++i) {
    const auto at = std::next(models_.begin(), Below(static_cast<uint32_t>(models_.size())));
    expected.push_back(Next(at->first, at->second, &batch.emplace_back()));
  }
  const std::vector<Outcome> outcomes = world_->daemon().DoAll(std::move(batch));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    INFO("command " << i);
    REQUIRE(outcomes[i].kind == expected[i]);
  }
  CheckEvents();
}

void Walk::CheckEvents() {
  const std::vector<SeenEvent> events = world_->daemon().TakeEvents();
  for (auto& [name, place] : models_) {
    std::vector<ModelSemaphore::Holding> granted;
    std::vector<ModelSemaphore::Told> ended;
    std::vector<ModelSemaphore::Told> waits_ended;
    for (const SeenEvent& event : events) {
      if (event.semaphore != name) continue;
      if (event.kind == Event::Kind::kGranted) {
        granted.push_back({event.claim, {event.lease->slots.begin(), event.lease->slots.end()}});
      }
      if (event.kind == Event::Kind::kEnded) ended.push_back({event.claim, event.cause});
      if (event.kind == Event::Kind::kWaitEnded) waits_ended.push_back({event.claim, event.cause});
    }
    const std::vector<ModelSemaphore::Holding> expected = place.model.TakeGranted();
    REQUIRE(granted.size() == expected.size());
    for (size_t i = 0; i < granted.size(); ++i) {
      REQUIRE(granted[i].claim == expected[i].claim);
      REQUIRE(granted[i].slots == expected[i].slots);
    }
    REQUIRE(ended == place.model.TakeEnded());
    REQUIRE(waits_ended == place.model.TakeWaitsEnded());
  }
}

void Walk::CheckRows() {
  for (const auto& [name, place] : models_) {
    const SemaphoreInfo info = world_->daemon().Describe(name);
    REQUIRE(info.row.limit == place.model.limit());
    REQUIRE(info.row.paused == place.model.paused());
    if (guarantees_.grants_at_once) {
      REQUIRE(info.held == place.model.held());
    } else {
      world_->daemon().CheckHeld(name, place.model.held());
    }
    REQUIRE(info.leases.size() == place.model.holdings().size());
    for (const LeasePtr& lease : info.leases) {
      const auto found =
          std::ranges::find(place.model.holdings(), lease->id, &ModelSemaphore::Holding::claim);
      REQUIRE(found != place.model.holdings().end());
      REQUIRE(std::set<uint32_t>(lease->slots.begin(), lease->slots.end()) == found->slots);
      REQUIRE(lease->slots.size() == lease->permits);
    }
    std::vector<Id> queue;
    for (const ModelSemaphore::Waiting& each : place.model.queue()) queue.push_back(each.claim);
    REQUIRE(WaitersIn(info) == queue);
    REQUIRE(info.waiting == queue.size());
  }
}

void RunSeeds(World& world, uint32_t first, uint32_t last, bool restarts) {
  const uint32_t lowest_limit = world.CanBeZero() ? 0 : 1;
  for (uint32_t seed = first; seed <= last; ++seed) {
    INFO("seed " << seed);
    Walk walk(&world, seed, lowest_limit);
    walk.restarts = restarts;
    walk.Run(world.guarantees().grants_at_once ? 150 : 60);
    for (const char* name : {"walk/a", "walk/b"}) {
      const Outcome gone = world.daemon().Administer(name, AdminDestroy{DestroyPolicy::kForce});
      REQUIRE(gone.kind == OutcomeKind::kDone);
    }
    world.daemon().TakeEvents();
  }
}

}  // namespace

CONTRACT_CASE("after any commands the leases are the truth, and the queue is in order") {
  RunSeeds(world, 1, world.guarantees().grants_at_once ? 10 : 5, false);
}

CONTRACT_CASE(
    "restart: after any commands and restarts the leases are the truth, and the queue is in "
    "order") {
  if (!world.CanRestart()) return;
  RunSeeds(world, 101, 103, true);
}

}  // namespace semaphored::contract
