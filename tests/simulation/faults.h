// What goes wrong between the processes and the engine, and how often.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tests/simulation/world.h"

namespace semaphored::simulation {

// What can go wrong, for the table at the end.
enum class FaultKind : uint8_t {
  kNone,
  kLostRace,
  kAnswerLost,
  kNeverLanded,
  kLandsLater,
  kCallFails,
  kSlowCall,
  kNoticeLost,
  kNoticeLate,
  kBusyRow,
  kTooLarge,
  kUnreachable,
  kDaemonKilled,
  kDaemonPaused,
  kUnreadable,     // A semaphore's record is damaged.
  kUnwritable,     // No commit to a semaphore succeeds.
  kWithheld,       // The engine failed over: nothing is granted for a while.
  kNoticesMissed,  // A connection was made again, and what the engine told meanwhile is lost.
  kForeignHolder,  // Another client of the engine takes, returns or leaves behind permits.
  kForgotten,      // A requester was silent for long, and the engine has dropped its rows.
  kCount
};
// Such as "answer lost".
std::string_view NameOf(FaultKind kind);
inline constexpr size_t kFaultKinds = static_cast<size_t>(FaultKind::kCount);

// How often each fault strikes, 0 to 1. Chosen anew for each seed.
struct FaultRates {
  double lost_race = 0;     // A commit is told that it lost, though nobody else was first.
  double answer_lost = 0;   // It landed, the answer did not come.
  double never_landed = 0;  // Neither.
  double lands_later =
      0;  // The answer did not come, and the write lands some time later, if it still may.
  double busy_row = 0;    // Another client of the engine keeps a row locked.
  double call_fails = 0;  // Any other call: UNAVAILABLE.
  double notification_lost = 0;
  double notification_late = 0;
  double slow_call = 0;  // A call takes up to seconds.
};

struct Faults {
  FaultRates rates;
  bool engine_down = false;
  bool withheld = false;
  std::array<uint64_t, kFaultKinds> struck{};  // How often, so far.
  const World* world = nullptr;                // Without it nothing is recent.
  std::array<int64_t, kFaultKinds> struck_at_us{};
  // Semaphores that are or were damaged: until when. kStill: it is now.
  std::map<std::string, int64_t, std::less<>> damaged_until_us;
  static constexpr int64_t kStill = std::numeric_limits<int64_t>::max();
  // The last time at which something was out of order: promises about delays count from then.
  int64_t disturbed_at_us = 0;

  void DisturbUntil(int64_t time_us) { disturbed_at_us = std::max(disturbed_at_us, time_us); }
  void Note(FaultKind kind) {
    ++struck[static_cast<size_t>(kind)];
    if (world != nullptr) struck_at_us[static_cast<size_t>(kind)] = world->now();
  }
  // It struck in the last two seconds. kNone: no other did.
  bool IsRecent(FaultKind kind) const;
  void Disturb(const World& at) { DisturbUntil(at.now()); }
  // For how long nothing has been out of order.
  int64_t CalmForUs(const World& at) const {
    return engine_down || withheld ? 0 : at.now() - disturbed_at_us;
  }
  // The same of what is only about one semaphore: its damage is no excuse for any other.
  int64_t CalmForUs(const World& at, std::string_view semaphore) const {
    const auto damaged = damaged_until_us.find(semaphore);
    if (damaged == damaged_until_us.end()) return CalmForUs(at);
    return damaged->second == kStill ? 0 : std::min(CalmForUs(at), at.now() - damaged->second);
  }
};

// One process's way to the engine. Everything about a process that its calls depend on.
class EngineLink {
 public:
  EngineLink(World* world, Faults* faults) : world_(world), faults_(faults) {}

  // ---- what others do to the process ----
  bool cut = false;             // From the engine only.
  bool dead = false;            // Killed: nothing that it still does matters.
  int64_t paused_until_us = 0;  // It executes nothing until then, though its clock goes on.

  bool paused() const { return paused_until_us > world_->now(); }
  bool reachable() const { return !cut && !dead && !faults_->engine_down; }

  // The call is under way for some time, in which other things happen. It ends later if the process
  // is paused.
  void SpendTime();
  // A call that only reads, or whose loss does no harm. False: UNAVAILABLE.
  bool Call();

  World& world() { return *world_; }
  Faults& faults() { return *faults_; }
  bool Strikes(double rate) { return rate > 0 && world_->random().Chance(rate); }
  bool Strikes(double rate, FaultKind kind) {
    if (!Strikes(rate)) return false;
    faults_->Note(kind);
    return true;
  }

 private:
  World* world_;
  Faults* faults_;
};

}  // namespace semaphored::simulation
