#include "tests/worlds/spec.h"

#include <algorithm>

namespace semaphored::worlds {
namespace {

using Act = Request::Act;

Request Acquire(uint64_t sequence, bool wait = true, int32_t priority = 0, uint32_t permits = 1) {
  Request request;
  request.sequence = sequence;
  request.wait = wait;
  request.priority = priority;
  request.permits = permits;
  return request;
}

Request AcquireOf(const std::string& semaphore, uint64_t sequence) {
  Request request = Acquire(sequence);
  request.semaphore = semaphore;
  return request;
}

Request Release(uint64_t sequence, size_t of) {
  Request request;
  request.act = Act::kRelease;
  request.sequence = sequence;
  request.of = of;
  return request;
}

Request Resize(uint64_t sequence, AdminResize::Change change, uint32_t amount,
               ShrinkPolicy policy = ShrinkPolicy::kWait, int64_t grace_ms = 1000) {
  Request request;
  request.act = Act::kResize;
  request.sequence = sequence;
  request.resize = {change, amount, /*limit_max=*/10, policy, grace_ms};
  return request;
}

Request Simple(Act act, uint64_t sequence) {
  Request request;
  request.act = act;
  request.sequence = sequence;
  return request;
}

Request Pause(uint64_t sequence, bool paused) {
  Request request = Simple(Act::kPause, sequence);
  request.paused = paused;
  return request;
}

using Change = AdminResize::Change;

// Each begins a world with one semaphore of the limit.
WorldSpec& Begin(std::vector<WorldSpec>* all, const std::string& name, uint32_t limit) {
  WorldSpec& world = all->emplace_back();
  world.name = name;
  world.semaphores = {{"a", limit}};
  return world;
}

void AddQueues(std::vector<WorldSpec>* all) {
  WorldSpec& queue = Begin(all, "queue", 1);
  queue.clients = {0, 0, 1};
  queue.scripts = {{Acquire(1), Release(2, 0)}, {Acquire(1, true, /*priority=*/1), Release(2, 0)}};
  queue.every_lane = false;
  queue.cancel = true;

  WorldSpec& repeats = Begin(all, "repeats", 1);
  repeats.semaphores.push_back({"b", 1});
  repeats.clients = {0, 1};
  // The id 1 stands for two semaphores.
  repeats.scripts = {{Acquire(1), AcquireOf("b", 1), Release(2, 0)}, {Acquire(1)}};
  repeats.expire = true;

  WorldSpec& lost = Begin(all, "lost answers", 1);
  lost.clients = {0, 1};
  lost.scripts = {{Acquire(1), Release(2, 0)}, {Acquire(1)}};
  lost.expire = true;
  lost.losses = 2;

  WorldSpec& batches = Begin(all, "batches", 1);
  batches.clients = {0, 0};
  batches.scripts = {{Acquire(1), Release(2, 0), Acquire(2, /*wait=*/false)}};
  batches.pairs = true;
}

// Two clients acquire in sessions of theirs, which may be closed.
void TwoSessions(WorldSpec* world) {
  world->clients = {0, 0};
  world->scripts = {{Acquire(1)}};
  world->detached = false;
  world->sessions = true;
  world->close = true;
}

void AddSessions(std::vector<WorldSpec>* all) {
  WorldSpec& sessions = Begin(all, "sessions", 1);
  TwoSessions(&sessions);
  sessions.expire = true;
  sessions.adopt = true;

  // One claim that is repeated from everywhere, and the next in the queue.
  WorldSpec& moves = Begin(all, "moves", 1);
  moves.clients = {0, 1};
  moves.scripts = {{Acquire(1)}, {}};
  moves.sessions = true;
  moves.expire = true;
  moves.adopt = true;
  moves.close = true;
  moves.only_if_repeated = true;

  WorldSpec& lanes = Begin(all, "one daemon, two lanes", 1);
  lanes.nodes = 1;
  lanes.semaphores.push_back({"b", 1});
  lanes.clients = {0, 1};
  lanes.scripts = {{Acquire(1), AcquireOf("b", 2)}, {Acquire(1)}};
  lanes.detached = false;
  lanes.sessions = true;
  lanes.close = true;

  WorldSpec& dead = Begin(all, "dead nodes", 1);
  dead.clients = {0, 1};
  dead.scripts = {{Acquire(1)}, {Acquire(1)}};
  dead.detached = false;
  dead.sessions = true;
  dead.adopt = true;
  dead.close = true;
  dead.restarts = 1;
  dead.deaths = 1;

  WorldSpec& late = Begin(all, "lost answers of dead nodes", 1);
  late.clients = {0};
  late.scripts = {{Acquire(1)}};
  late.sessions = true;
  late.expire = true;
  late.adopt = true;
  late.restarts = 1;
  late.deaths = 1;
  late.losses = 1;
}

void AddActs(std::vector<WorldSpec>* all) {
  WorldSpec& resize = Begin(all, "resize", 2);
  resize.clients = {0, 0, 1};
  resize.scripts = {
      {Acquire(1)},
      {Resize(1, Change::kRemove, 1, ShrinkPolicy::kRecall, 0), Resize(2, Change::kAdd, 1),
       Resize(3, Change::kSet, 0, ShrinkPolicy::kRefuse), Resize(1, Change::kSet, 1)}};
  resize.changes_per_commit_max = 1;

  WorldSpec& twice = Begin(all, "resize, lost answers", 2);
  twice.clients = {0, 1};
  twice.scripts = {{Acquire(1, true, 0, /*permits=*/2)},
                   {Resize(1, Change::kRemove, 1, ShrinkPolicy::kRecall, 0)}};
  twice.changes_per_commit_max = 1;
  twice.losses = 2;

  WorldSpec& pauses = Begin(all, "pauses and revokes", 1);
  pauses.clients = {0, 0, 1};
  pauses.scripts = {{Acquire(1), Release(2, 0)},
                    {Pause(1, true), Pause(2, false), Simple(Act::kRevokeAll, 3)}};

  WorldSpec& parts = Begin(all, "acts in parts", 2);
  parts.clients = {0, 0, 1};
  parts.scripts = {{Acquire(1)},
                   {Simple(Act::kRevokeAll, 1), Simple(Act::kDestroy, 2),
                    Resize(3, Change::kSet, 0, ShrinkPolicy::kRecall, 0)}};
  parts.changes_per_commit_max = 1;
  parts.restarts = 1;

  WorldSpec& again = Begin(all, "destroyed and made again", 0);
  again.clients = {0, 0, 1};
  Request acquire = Acquire(1);
  acquire.limit = 1;
  again.scripts = {{acquire, Release(2, 0)}, {Simple(Act::kDestroy, 1), Simple(Act::kDestroy, 2)}};
  again.expire = true;
}

// Two clients with requests for both semaphores, and one that resizes.
void AddThreeClients(std::vector<WorldSpec>* all) {
  const auto begin = [all](const std::string& name) -> WorldSpec& {
    WorldSpec& world = Begin(all, name, 1);
    world.semaphores.push_back({"b", 1});
    world.clients = {0, 0, 1};
    world.scripts = {{Acquire(1), AcquireOf("b", 2)}, {Resize(1, Change::kAdd, 1)}};
    return world;
  };
  begin("three clients").expire = true;

  WorldSpec& lanes = begin("three clients of one daemon");
  lanes.nodes = 1;
  lanes.expire = true;

  WorldSpec& lost = begin("three clients of one daemon, lost answers");
  lost.nodes = 1;
  lost.losses = 1;
}

// Acts of each kind, while one commit is lost.
void AddLosses(std::vector<WorldSpec>* all) {
  const auto begin = [all](const std::string& name, uint32_t limit) -> WorldSpec& {
    WorldSpec& world = Begin(all, name, limit);
    world.clients = {0, 1};
    world.losses = 1;
    return world;
  };
  const Script shrinks_and_grows = {Resize(1, Change::kRemove, 1, ShrinkPolicy::kRecall, 0),
                                    Resize(2, Change::kAdd, 1)};
  for (const bool one_daemon : {false, true}) {
    WorldSpec& resize = begin(one_daemon ? "one daemon, resize beside expiries, lost answers"
                                         : "resize beside expiries, lost answers",
                              2);
    resize.nodes = one_daemon ? 1 : 2;
    resize.clients = {0, 0, 1};
    resize.scripts = {{Acquire(1), Release(2, 0)}, shrinks_and_grows};
    resize.changes_per_commit_max = 1;
    resize.expire = true;
  }

  WorldSpec& restart = begin("one daemon, resize and a restart, lost answers", 2);
  restart.nodes = 1;
  restart.scripts = {{Acquire(1), Release(2, 0)}, shrinks_and_grows};
  restart.changes_per_commit_max = 1;
  restart.expire = true;
  restart.restarts = 1;

  WorldSpec& pauses = begin("pauses and revokes, lost answers", 1);
  pauses.scripts = {{Acquire(1)}, {Pause(1, true), Pause(2, false), Simple(Act::kRevokeAll, 3)}};

  WorldSpec& batches = begin("batches, lost answers", 1);
  batches.scripts = {{Acquire(1), Release(2, 0)}, {Acquire(1)}};
  batches.pairs = true;

  WorldSpec& expiries = begin("batches beside expiries, lost answers", 1);
  expiries.scripts = {{Acquire(1)}, {Acquire(1)}};
  expiries.pairs = true;
  expiries.expire = true;

  WorldSpec& sessions = begin("sessions, lost answers", 1);
  TwoSessions(&sessions);
  sessions.expire = true;
  sessions.adopt = true;

  WorldSpec& mixed = begin("one client with and without its session, lost answers", 1);
  mixed.clients = {0};
  mixed.scripts = {{Acquire(1), Release(2, 0)}};
  mixed.sessions = true;
  mixed.expire = true;
  mixed.adopt = true;
  mixed.close = true;

  WorldSpec& lanes = begin("one daemon, sessions, lost answers", 1);
  lanes.nodes = 1;
  TwoSessions(&lanes);
  lanes.semaphores.push_back({"b", 1});
  lanes.scripts = {{Acquire(1), AcquireOf("b", 2)}};

  WorldSpec& returns = begin("one daemon, sessions and a restart, lost answers", 1);
  returns.nodes = 1;
  TwoSessions(&returns);
  returns.restarts = 1;
}

void AddExclusive(std::vector<WorldSpec>* all) {
  const auto begin = [all](const std::string& name) -> WorldSpec& {
    WorldSpec& world = Begin(all, name, 2);
    world.lanes = 1;
    world.nodes = 1;
    world.exclusive = true;
    world.restarts = 1;
    world.expire = true;
    world.losses = 1;
    return world;
  };
  WorldSpec& sessions = begin("exclusive, sessions");
  sessions.semaphores.push_back({"b", 1});
  sessions.clients = {0, 0};
  sessions.scripts = {{Acquire(1), AcquireOf("b", 1), Release(2, 0)}};
  sessions.sessions = true;
  sessions.cancel = true;
  sessions.close = true;

  WorldSpec& three = begin("exclusive, three clients, sessions, resize");
  three.semaphores.push_back({"b", 1});
  three.clients = {0, 0, 1};
  three.scripts = {
      {Acquire(1), AcquireOf("b", 1), Release(2, 0)},
      {Resize(1, Change::kRemove, 1, ShrinkPolicy::kRecall, 0), Resize(2, Change::kAdd, 1)}};
  three.sessions = true;
  three.cancel = true;
  three.close = true;

  WorldSpec& acts = begin("exclusive, acts in parts");
  acts.clients = {0, 0, 1};
  acts.scripts = {
      {Acquire(1)},
      {Acquire(1, true, 0, /*permits=*/2), Resize(2, Change::kRemove, 1, ShrinkPolicy::kRecall, 0),
       Simple(Act::kDestroy, 3)}};
  acts.changes_per_commit_max = 1;
}

std::vector<WorldSpec> Make() {
  std::vector<WorldSpec> all;
  all.reserve(64);  // References to its elements are in use above.
  AddQueues(&all);
  AddSessions(&all);
  AddActs(&all);
  AddThreeClients(&all);
  AddLosses(&all);
  AddExclusive(&all);
  return all;
}

}  // namespace

const std::vector<WorldSpec>& AllWorlds() {
  static const std::vector<WorldSpec> all = Make();
  return all;
}

const WorldSpec& WorldNamed(const std::string& name) {
  return *std::ranges::find(AllWorlds(), name, &WorldSpec::name);
}

}  // namespace semaphored::worlds
