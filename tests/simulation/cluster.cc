#include "tests/simulation/cluster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace semaphored::simulation {

Cluster::Cluster(World* world, EngineHandle engine, Faults* faults, const Cell& cell, Mutant mutant,
                 BranchCounter* branches)
    : world_(world),
      engine_(engine),
      faults_(faults),
      cell_(cell),
      branches_(branches),
      mutant_(mutant),
      node_ttl_ms_(world->random().Between(1500, 6000)),
      sweep_interval_ms_(world->random().Between(500, 3000)) {
  Random& random = world->random();
  // A client may repeat a request after that, which is then carried out again: the checks allow for it.
  if (random.Chance(0.3)) client_retention_ms_ = random.Between(4, 30) * 1000;
  if (!random.Chance(0.15)) return;
  const auto small = [&](int64_t low, int64_t high, uint32_t* limit) {
    if (random.Chance(0.6)) *limit = static_cast<uint32_t>(random.Between(low, high));
  };
  small(1, 3, &limits_.semaphores_max);
  small(3, 12, &limits_.leases_max);
  small(2, 6, &limits_.waiters_max);
  small(1, 4, &limits_.waiters_per_semaphore_max);
  small(2, 4, &limits_.sessions_max);
  small(2, 10, &limits_.tickets_max);
  small(1, 6, &limits_.tickets_per_semaphore_max);
  small(1, 3, &limits_.dead_letters_per_semaphore_max);
  small(4, 12, &limits_.payload_bytes_max);
  small(1, 4, &limits_.backfill_depth);
  if (random.Chance(0.6))
    limits_.payload_bytes_per_semaphore_max = static_cast<uint64_t>(random.Between(8, 40));
  if (random.Chance(0.6))
    limits_.payload_bytes_total_max = static_cast<uint64_t>(random.Between(12, 80));
  if (random.Chance(0.5)) {
    clients_max_ = static_cast<uint32_t>(random.Between(4, 12));
    client_retention_ms_ = random.Between(3, 8) * 1000;
  }
}

void Cluster::MakeRoomForWorkers() {
  limits_.sessions_max = std::max(limits_.sessions_max, kWorkersMax + 1);
  limits_.waiters_max = std::max(limits_.waiters_max, 60u);
  limits_.leases_max = std::max(limits_.leases_max, 70u);
}

void Cluster::StartNode(int node) {
  Forget();
  if (cell_.exclusive && HasLiving(node)) return;
  Random& random = world_->random();
  DaemonOptions options;
  options.node = node;
  options.name = absl::StrCat("daemon ", node, "#", ++started_);
  options.clock_start_us = random.Between(1, 1'000'000) * kSecond;
  options.clock_speed = 1 + static_cast<double>(random.Between(-4500, 4500)) / 1e6;
  if (mutant_ == Mutant::kFastClock && node == 0) options.clock_speed = 1.5;
  options.node_ttl_ms = node_ttl_ms_;
  options.sweep_interval_ms = sweep_interval_ms_;
  options.cell = cell_;
  options.limits = limits_;
  options.client_retention_ms = mutant_ == Mutant::kForgetAtOnce ? 0 : client_retention_ms_;
  options.clients_max = clients_max_;
  options.branches = branches_;
  options.mutant = mutant_;
  auto daemon = std::make_shared<Daemon>(world_, engine_, faults_, std::move(options));
  daemons_.push_back(daemon);
  faults_->Disturb(*world_);
  world_->After(0, [daemon] { daemon->Start(); });
}

std::shared_ptr<Daemon> Cluster::Reach(int node) {
  std::vector<std::shared_ptr<Daemon>> living;
  for (const auto& daemon : daemons_) {
    if (daemon->node() == node && daemon->serving()) living.push_back(daemon);
  }
  return living.empty() ? nullptr : living[world_->random().Below(living.size())];
}

void Cluster::Heal() {
  for (const auto& daemon : daemons_) daemon->link().cut = false;
  for (int node = 0; node < nodes(); ++node) {
    if (!HasLiving(node)) StartNode(node);
  }
}

bool Cluster::HasLiving(int node) const {
  return std::ranges::any_of(
      daemons_, [node](const auto& daemon) { return daemon->node() == node && daemon->alive(); });
}

void Cluster::Forget() {
  std::erase_if(daemons_, [](const std::shared_ptr<Daemon>& daemon) { return !daemon->alive(); });
}

}  // namespace semaphored::simulation
