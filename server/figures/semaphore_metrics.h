// Counts what happens to claims, by semaphore.
//
// Only so many semaphores have figures of their own (a place); all others are counted together, as
// the rest. A place is given to the first that come, and is kept as long as its semaphore is in
// use, so that its counters only rise. A semaphore that was destroyed gives its place up; one that
// was not used for ten minutes does if a busier one of the rest wants it. What was counted in a
// place is not added to the rest when it is given up: the rest's counters would jump. A semaphore
// that comes back begins at zero, which Prometheus takes for what it is.
//
// Invariants: a claim that stands in a gauge points to the place that it is counted in; a place
// with such claims is not given up; the waiters of a place stand in a list, the one that has waited
// longest first.
//
// Single-threaded (the reactor's). A null pointer stands for "not counted": with `semaphores_max`
// 0 nothing is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/adapter.h"
#include "server/base/clock.h"
#include "server/figures/metrics.h"

namespace semaphored {

struct FigurePlace;

// The part of a claim's record that is kept here. It must be forgotten (Forget) before it goes.
struct ClaimFigures {
  enum class Stage : uint8_t { kNone, kAsked, kWaiting, kHeld };
  FigurePlace* place = nullptr;      // Set in kWaiting and kHeld.
  ClaimFigures* previous = nullptr;  // In the list of waiters.
  ClaimFigures* next = nullptr;
  SteadyTime since{};  // When it was asked for; kHeld: when it was granted.
  uint32_t permits = 0;
  Stage stage = Stage::kNone;
  bool granted_here = false;  // `since` is when it was granted, not when it was found.
};

class SemaphoreMetrics {
 public:
  // Calls its argument with each claim of Sessions and its semaphore's name.
  using Visit = std::function<void(const std::string& semaphore, ClaimFigures* claim)>;
  using ForEachClaim = std::function<void(const Visit& visit)>;

  // The clock outlives it. semaphores_max 0: nothing is counted, and nothing costs anything.
  SemaphoreMetrics(const Clock* clock, size_t semaphores_max, ForEachClaim for_each_claim);
  ~SemaphoreMetrics();
  SemaphoreMetrics(const SemaphoreMetrics&) = delete;
  SemaphoreMetrics& operator=(const SemaphoreMetrics&) = delete;

  bool on() const { return semaphores_max_ > 0; }

  // ---- what happens to a claim ----
  void Asked(ClaimFigures* claim);
  // It stands in the queue: having been asked for here, or found there.
  void Waiting(const std::string& semaphore, ClaimFigures* claim);
  // It has become a lease by a grant to who asked here; or was found to be one (its client came
  // from another daemon, or repeated its request).
  void Granted(const std::string& semaphore, ClaimFigures* claim, uint32_t permits);
  void Found(const std::string& semaphore, ClaimFigures* claim, uint32_t permits);
  // Some of its permits were given back.
  void Changed(ClaimFigures* claim, uint32_t permits);
  void Recalled(ClaimFigures* claim);
  // `claim`: null, if none was made. What was denied since there is no such semaphore is counted
  // with the rest: names that a client makes up take no places.
  void Denied(const std::string& semaphore, ClaimFigures* claim, Reason reason);
  // The lease has ended. Without effect on what is not held.
  void Ended(ClaimFigures* claim, EndCause cause);
  // The claim's record goes: it is served elsewhere, or has ended. Twice does no harm.
  void Forget(ClaimFigures* claim);
  void Destroyed(const std::string& semaphore);

  // ---- what the engine has ----
  // A list begins (at its first page), goes on and ends. One that is not ended is not shown.
  void BeginList();
  void List(const std::vector<SemaphoreInfo>& infos);
  void EndList(bool complete);
  // nullopt: none has ended yet.
  std::optional<SteadyTime> list_begun_at() const { return list_begun_at_; }

  // Fills in `semaphores` and what concerns the list. Also the time to give places to who wants
  // them; at most once in ten seconds.
  void Snapshot(SessionsFigures* out);

 private:
  FigurePlace* PlaceOf(const std::string& semaphore);
  FigurePlace* Find(const std::string& semaphore);
  FigurePlace* Make(const std::string& semaphore);
  void Want(const std::string& semaphore, uint64_t how_much);
  void GiveToWanting();
  void GiveUp(FigurePlace* place);
  static void Link(ClaimFigures* claim);
  static void Unlink(ClaimFigures* claim);
  void Hold(const std::string& semaphore, ClaimFigures* claim, uint32_t permits);
  // Takes it out of the gauges.
  static void Leave(ClaimFigures* claim);
  static void Enter(FigurePlace* place, ClaimFigures* claim);
  SteadyTime Now() const { return clock_->Now(); }

  const Clock* clock_;
  const size_t semaphores_max_;
  ForEachClaim for_each_claim_;
  absl::flat_hash_map<std::string, std::unique_ptr<FigurePlace>> places_;
  std::unique_ptr<FigurePlace> rest_;
  // Semaphores of the rest, and how much they were used since the last look; at most as many as
  // there are places.
  absl::flat_hash_map<std::string, uint64_t> wanting_;
  SteadyTime looked_at_{};

  struct Listed {
    absl::flat_hash_map<std::string, EngineSemaphoreFigures> by_name;  // Those with a place.
    EngineSemaphoreFigures rest;
    size_t listed = 0;
    bool complete = false;
    uint64_t most_waiters = 0;
    uint64_t most_tickets = 0;
    uint64_t most_dead_letters = 0;
    // Since when each list has had it as paused; the engine keeps no time of that.
    absl::flat_hash_map<std::string, SteadyTime> paused_since;
    SteadyTime oldest_pause = SteadyTime::max();  // The least of these.
  };
  void ListLimits(const SemaphoreInfo& info);
  Listed listing_;
  Listed listed_;
  SteadyTime listing_since_{};
  std::optional<SteadyTime> list_begun_at_;
};

}  // namespace semaphored
