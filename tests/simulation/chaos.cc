#include "tests/simulation/chaos.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace semaphored::simulation {

void Chaos::Start() {
  Random& random = world_->random();
  const auto sometimes = [&](double rate_max) {
    return random.Chance(0.5) ? 0 : rate_max * static_cast<double>(random.Below(1000)) / 1000;
  };
  FaultRates& rates = faults_->rates;
  rates.lost_race = sometimes(0.2);
  rates.answer_lost = sometimes(0.05);
  rates.never_landed = sometimes(0.05);
  rates.lands_later = sometimes(0.05);
  rates.call_fails = sometimes(0.02);
  rates.busy_row = random.Chance(0.8) ? 0 : 0.02;
  rates.slow_call = sometimes(0.03);
  rates.notification_lost = sometimes(0.5);
  rates.notification_late = sometimes(0.5);
  mean_interval_ms_ = random.Between(300, 8000);
  // Some seeds are nearly calm: there the bounds on delays tell the most.
  if (random.Chance(0.15)) {
    mean_interval_ms_ = 1'000'000;
    const FaultRates stormy = rates;
    rates = {};
    rates.lost_race = stormy.lost_race;
    rates.notification_lost = stormy.notification_lost;
    rates.notification_late = stormy.notification_late;
  }
  world_->After(random.Between(1, mean_interval_ms_) * kMillisecond, [this] { Strike(); });
  // Damage of one semaphore is no excuse for what happens to others, so it is no part of the calm.
  if (random.Chance(0.3)) world_->After(random.Between(1, 10) * kSecond, [this] { Damage(); });
  if (!cluster_->exclusive() && random.Chance(0.2))
    world_->After(random.Between(1, 20) * kSecond, [this] { Withhold(); });
}

void Chaos::Damage() {
  if (healed_) return;
  Random& random = world_->random();
  const std::string name = absl::StrCat("s", random.Below(static_cast<uint64_t>(semaphores_)));
  const auto found = faults_->damaged_until_us.find(name);
  if (found == faults_->damaged_until_us.end() || found->second != Faults::kStill) {
    // What an exclusive store has is read once, when it is opened.
    const bool unreadable = !cluster_->exclusive() && random.Chance(0.6);
    world_->Trace(absl::StrCat(name, unreadable ? " cannot be read" : " cannot be written"));
    (unreadable ? engine_->unreadable : engine_->unwritable).insert(name);
    faults_->Note(unreadable ? FaultKind::kUnreadable : FaultKind::kUnwritable);
    faults_->damaged_until_us[name] = Faults::kStill;
    world_->After(SomeTimeUs(), [this, name] { Mend(name); });
  }
  world_->After(random.Between(1, 15) * kSecond, [this] { Damage(); });
}

void Chaos::Mend(const std::string& name) {
  if (faults_->damaged_until_us[name] != Faults::kStill) return;
  engine_->unreadable.erase(name);
  engine_->unwritable.erase(name);
  faults_->damaged_until_us[name] = world_->now();
  world_->Trace(name + " is mended");
}

void Chaos::Withhold() {
  if (healed_) return;
  world_->Trace("the engine has failed over: nothing is granted");
  faults_->withheld = true;
  faults_->Note(FaultKind::kWithheld);
  world_->After(SomeTimeUs(), [this] {
    faults_->withheld = false;
    faults_->Disturb(*world_);
    world_->Trace("what may have been lost has run out");
  });
  world_->After(world_->random().Between(10, 30) * kSecond, [this] { Withhold(); });
}

void Chaos::Heal() {
  healed_ = true;
  for (const auto& [name, until_us] : faults_->damaged_until_us) {
    if (until_us == Faults::kStill) Mend(name);
  }
  faults_->withheld = false;
  faults_->rates = {};
  faults_->engine_down = false;
  network_->Heal();
  cluster_->Heal();
  faults_->Disturb(*world_);
}

int64_t Chaos::SomeTimeUs() {
  Random& random = world_->random();
  return (random.Chance(0.5) ? random.Between(1, 1500) : random.Between(1500, 9000)) * kMillisecond;
}

void Chaos::Strike() {
  if (healed_) return;
  Random& random = world_->random();
  faults_->Disturb(*world_);
  const uint64_t choice = random.Below(100);
  if (choice < 60) {
    StrikeDaemon(choice);
  } else if (choice < 70) {
    StrikeEngine();
  } else {
    StrikeClient();
  }
  world_->After(random.Between(1, 2 * mean_interval_ms_) * kMillisecond, [this] { Strike(); });
}

// The node, or the way to it: there may be no other to keep a promise meanwhile.
void Chaos::MissUntil(int node, int64_t time_us) {
  for (int other = 0; other < cluster_->nodes(); ++other) {
    if (other != node && cluster_->HasLiving(other)) return;
  }
  faults_->DisturbUntil(time_us);
}

void Chaos::StrikeDaemon(uint64_t choice) {
  const auto& daemons = cluster_->daemons();
  Random& random = world_->random();
  if (daemons.empty()) return;
  const std::shared_ptr<Daemon> daemon = daemons[random.Below(daemons.size())];
  const int node = daemon->node();
  const int64_t until_us = world_->now() + SomeTimeUs();
  MissUntil(node, until_us);
  if (choice < 18) {
    daemon->Kill();
    world_->At(until_us, [this, node] {
      if (!healed_) cluster_->StartNode(node);
    });
  } else if (choice < 30) {
    daemon->PauseUntil(until_us);
  } else if (choice < 36) {
    world_->Trace("a second process of a node starts");
    cluster_->StartNode(node);
  } else if (choice < 48) {
    world_->Trace(daemon->name() + " is cut off from the engine");
    daemon->link().cut = true;
    world_->At(until_us, [this, daemon] {
      daemon->link().cut = false;
      faults_->Disturb(*world_);
    });
  } else {
    world_->Trace(daemon->name() + " is cut off from all clients");
    network_->CutNode(node);
    world_->At(until_us, [this] {
      network_->Heal();
      faults_->Disturb(*world_);
    });
  }
}

void Chaos::StrikeEngine() {
  world_->Trace("the engine is gone");
  faults_->engine_down = true;
  world_->After(SomeTimeUs(), [this] {
    faults_->engine_down = false;
    faults_->Disturb(*world_);
    world_->Trace("the engine is back");
  });
}

void Chaos::StrikeClient() {
  Random& random = world_->random();
  const std::shared_ptr<Actor> actor = actors_[random.Below(actors_.size())];
  const int64_t for_us = SomeTimeUs();
  const uint64_t choice = random.Below(3);
  if (choice == 0) {
    world_->Trace(actor->name() + " is paused");
    faults_->DisturbUntil(world_->now() + for_us);
    actor->PauseUntil(world_->now() + for_us);
  } else if (choice == 1) {
    actor->Crash();
  } else {
    const int index = static_cast<int>(std::ranges::find(actors_, actor) - actors_.begin());
    const int node = static_cast<int>(random.Below(static_cast<uint64_t>(cluster_->nodes())));
    network_->Cut(index, node);
    MissUntil(node, world_->now() + for_us);
    world_->After(for_us, [this] {
      network_->Heal();
      faults_->Disturb(*world_);
    });
  }
}

}  // namespace semaphored::simulation
