// How much of its limits an adapter has in use, for metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace semaphored::ledger {

// A limit of what stands at once. The last three are of one semaphore.
enum class StandingLimit : uint8_t {
  kSemaphores,
  kLeases,  // Waiters among them.
  kWaiters,
  kSessions,
  kTickets,
  kClients,
  kOneShotRequests,
  kWaitersPerSemaphore,
  kTicketsPerSemaphore,
  kDeadLettersPerSemaphore,
  kCount  // The number of them.
};
inline constexpr auto kStandingLimits = static_cast<size_t>(StandingLimit::kCount);

// As the setting is called: "semaphores_max", …
inline const char* NameOf(StandingLimit limit) {
  constexpr std::array<const char*, kStandingLimits> kNames = {"semaphores_max",
                                                               "leases_max",
                                                               "waiters_max",
                                                               "sessions_max",
                                                               "tickets_max",
                                                               "clients_max",
                                                               "one_shot_requests_max",
                                                               "waiters_per_semaphore_max",
                                                               "tickets_per_semaphore_max",
                                                               "dead_letters_per_semaphore_max"};
  return kNames[static_cast<size_t>(limit)];
}

// Written by the adapter's lane, at the end of each Step; read by any thread.
class LimitUse {
 public:
  struct Figures {
    uint64_t used = 0;  // Of one semaphore's limits: 0, as the adapter counts no semaphore apart.
    uint64_t most =
        0;  // As it is in force, on an engine that takes less than is configured. 0: no Step yet.
  };

  void Set(StandingLimit limit, uint64_t used, uint64_t most) {
    Cell& cell = cells_[static_cast<size_t>(limit)];
    cell.used.store(used, std::memory_order_relaxed);
    cell.most.store(most, std::memory_order_relaxed);
  }
  Figures Get(StandingLimit limit) const {
    const Cell& cell = cells_[static_cast<size_t>(limit)];
    return {cell.used.load(std::memory_order_relaxed), cell.most.load(std::memory_order_relaxed)};
  }

 private:
  struct Cell {
    std::atomic<uint64_t> used = 0;
    std::atomic<uint64_t> most = 0;
  };
  std::array<Cell, kStandingLimits> cells_;
};

}  // namespace semaphored::ledger
