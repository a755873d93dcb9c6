#include "tests/simulation/foreign_clients.h"

#include "absl/strings/str_cat.h"

namespace semaphored::simulation {

void ForeignClients::Start() {
  world_->After(world_->random().Between(1, 3000) * kMillisecond, [this] { Act(); });
}

void ForeignClients::Act() {
  if (winding_down_) return;
  Random& random = world_->random();
  if (held_.size() < 3 && random.Chance(0.6)) {
    Take();
  } else if (!held_.empty()) {
    const size_t at = random.Below(held_.size());
    const auto [name, id] = held_[at];
    faults_->Note(FaultKind::kForeignHolder);
    if (random.Chance(0.25)) {
      world_->Trace(absl::StrCat("a foreign client dies, and leaves permits of ", name, " behind"));
      engine_->LeaveForeign(id);
      held_.erase(held_.begin() + static_cast<ptrdiff_t>(at));
    } else if (engine_->ReturnForeign(name, id)) {
      world_->Trace(absl::StrCat("a foreign client returns permits of ", name));
      held_.erase(held_.begin() + static_cast<ptrdiff_t>(at));
    }
  }
  world_->After(random.Between(50, 4000) * kMillisecond, [this] { Act(); });
}

void ForeignClients::Take() {
  Random& random = world_->random();
  const std::string name = absl::StrCat("s", random.Below(static_cast<uint64_t>(semaphores_)));
  const Id id = random.NewId();
  const auto permits = static_cast<uint32_t>(random.Between(1, 2));
  if (!engine_->TakeForeign(name, id, permits)) return;
  faults_->Note(FaultKind::kForeignHolder);
  world_->Trace(absl::StrCat("a foreign client takes ", permits, " of ", name));
  held_.emplace_back(name, id);
}

// Also what the dead have left: a daemon ends it only where a client of ours waits.
void ForeignClients::CleanUp() {
  winding_down_ = true;
  held_.clear();
  for (const auto& [name, semaphore] : engine_->semaphores()) {
    for (const auto& [id, lease] : semaphore.leases) {
      if (lease.foreign) held_.emplace_back(name, id);
    }
  }
  for (const auto& [name, id] : held_) engine_->ReturnForeign(name, id);
  held_.clear();
}

}  // namespace semaphored::simulation
