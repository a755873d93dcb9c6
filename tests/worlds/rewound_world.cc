#include "tests/worlds/rewound_world.h"

#include <algorithm>

namespace semaphored::worlds {

RewoundWorld::RewoundWorld(const WorldSpec* spec, const Planted* planted) : saved_(1) {
  {
    const Arena::Inside inside(&arena_);
    world_ = new SmallWorld(spec, planted);
  }
  arena_.Save(&saved_.back());
}

void RewoundWorld::Follow(const Path& path) {
  const auto parting = std::ranges::mismatch(path.steps, steps_);
  const auto common = static_cast<size_t>(parting.in1 - path.steps.begin());
  steps_ = path.steps;
  saved_.resize(common + 1);
  Rewind();
  for (size_t i = common; i < path.acts.size(); ++i) {
    Do([&](SmallWorld& world) { world.Do(path.acts[i]); });
    arena_.Save(&saved_.emplace_back());
  }
}

}  // namespace semaphored::worlds
