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

using Change = AdminResize::Change;

std::vector<WorldSpec> Make() {
  std::vector<WorldSpec> all;
  {
    WorldSpec& world = all.emplace_back();
    world.name = "queue";
    world.semaphores = {{"a", 1}};
    world.clients = {0, 0, 1};
    world.scripts = {{Acquire(1), Release(2, 0)}, {Acquire(1, true, /*priority=*/1), Release(2, 0)}};
    world.every_lane = false;
    world.cancel = true;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "repeats";
    world.semaphores = {{"a", 1}, {"b", 1}};
    world.clients = {0, 0};
    // The id 1 stands for two semaphores.
    world.scripts = {{Acquire(1), AcquireOf("b", 1), Release(2, 0)}};
    world.expire = true;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "lost answers";
    world.semaphores = {{"a", 1}};
    world.clients = {0, 0};
    world.scripts = {{Acquire(1), Release(2, 0)}};
    world.expire = true;
    world.losses = 2;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "sessions";
    world.semaphores = {{"a", 1}};
    world.clients = {0, 0};
    world.scripts = {{Acquire(1)}};
    world.sessions = true;
    world.sessions_lag = true;
    world.expire = true;
    world.adopt = true;
    world.close = true;
    world.only_if_repeated = true;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "one daemon, two lanes";
    world.nodes = 1;
    world.semaphores = {{"a", 1}, {"b", 1}};
    world.clients = {0, 1};
    world.scripts = {{Acquire(1)}, {Acquire(1), AcquireOf("b", 2)}};
    world.detached = false;
    world.sessions = true;
    world.expire = true;
    world.close = true;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "resize";
    world.semaphores = {{"a", 2}};
    world.clients = {0, 0, 1};
    world.scripts = {{Acquire(1)},
                     {Resize(1, Change::kRemove, 1, ShrinkPolicy::kRecall, 0),
                      Resize(2, Change::kAdd, 1), Resize(3, Change::kSet, 0, ShrinkPolicy::kRefuse),
                      Resize(1, Change::kSet, 1)}};
    world.changes_per_commit_max = 1;
    world.losses = 1;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "acts in parts";
    world.semaphores = {{"a", 2}};
    world.clients = {0, 0, 1};
    world.scripts = {{Acquire(1)},
                     {Simple(Act::kRevokeAll, 1), Simple(Act::kDestroy, 2),
                      Resize(3, Change::kSet, 0, ShrinkPolicy::kRecall, 0)}};
    world.changes_per_commit_max = 1;
    world.restarts = 1;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "destroyed and made again";
    world.semaphores = {{"a", 0}};
    world.clients = {0, 0, 1};
    Request acquire = Acquire(1);
    acquire.limit = 1;
    world.scripts = {{acquire, Release(2, 0)}, {Simple(Act::kDestroy, 1), Simple(Act::kDestroy, 2)}};
    world.expire = true;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "dead nodes";
    world.semaphores = {{"a", 1}};
    world.clients = {0, 0};
    world.scripts = {{Acquire(1)}};
    world.sessions = true;
    world.sessions_lag = true;
    world.expire = true;
    world.adopt = true;
    world.restarts = 1;
    world.deaths = 1;
    world.losses = 1;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "batches";
    world.semaphores = {{"a", 1}};
    world.clients = {0, 0};
    world.scripts = {{Acquire(1), Release(2, 0), Acquire(2, /*wait=*/false)}};
    world.pairs = true;
    world.expire = true;
  }
  {
    WorldSpec& world = all.emplace_back();
    world.name = "exclusive";
    world.lanes = 1;
    world.nodes = 1;
    world.exclusive = true;
    world.semaphores = {{"a", 2}, {"b", 1}};
    world.clients = {0, 0, 1};
    world.scripts = {{Acquire(1), AcquireOf("b", 1), Release(2, 0)},
                     {Acquire(1, true, 0, /*permits=*/2), Resize(2, Change::kRemove, 1, ShrinkPolicy::kRecall, 0)}};
    world.sessions = true;
    world.expire = true;
    world.cancel = true;
    world.close = true;
    world.restarts = 1;
    world.losses = 1;
    world.quick_depth = 4;
  }
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
