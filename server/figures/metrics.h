// The daemon's figures, as plain data: who counts what, and what one look at all of it is. It knows
// neither Prometheus nor HTTP; server/observe shows it to those.
//
// Counting costs no lock and shares no cache line that two threads write: each figure has one
// thread that writes it. What only that thread reads is a plain integer; what a scrape reads from
// another thread is a SharedCount. All figures are of this daemon since it was started, unless the
// name of the struct says of the engine.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/common/upkeep.h"
#include "adapters/types.h"
#include "server/access/unknown_callers.h"
#include "server/base/clock.h"
#include "server/base/reason.h"

namespace semaphored {

// Written by one thread at a time, read by any: no read-modify-write, so it costs what a plain
// integer does.
class SharedCount {
 public:
  SharedCount& operator+=(uint64_t more) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    return *this;
  }
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  operator uint64_t() const {  // NOLINT(google-explicit-constructor): it stands for its number.
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> value_{0};
};

inline constexpr size_t kHistogramBounds = 12;
// The largest value of each bucket, rising; one more bucket holds what is above all.
using HistogramBounds = std::array<uint64_t, kHistogramBounds>;

// In microseconds.
inline constexpr HistogramBounds kWaitBounds = {
    1'000,     5'000,      25'000,     100'000,     500'000,       1'000'000,
    5'000'000, 15'000'000, 60'000'000, 300'000'000, 1'800'000'000, 7'200'000'000};
inline constexpr HistogramBounds kHoldBounds = {
    10'000,     100'000,     500'000,     1'000'000,     5'000'000,      15'000'000,
    60'000'000, 300'000'000, 900'000'000, 3'600'000'000, 14'400'000'000, 86'400'000'000};
inline constexpr HistogramBounds kStepBounds = {
    250, 500, 1'000, 2'500, 5'000, 10'000, 25'000, 50'000, 100'000, 500'000, 1'000'000, 5'000'000};
// Commands.
inline constexpr HistogramBounds kBatchBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096};

// Cell: uint64_t, or SharedCount.
template <typename Cell>
struct Histogram {
  std::array<Cell, kHistogramBounds + 1> counts{};
  Cell sum{};

  void Observe(const HistogramBounds& bounds, uint64_t value) {
    size_t bucket = 0;
    while (bucket < kHistogramBounds && value > bounds[bucket]) ++bucket;
    counts[bucket] += 1;
    sum += value;
  }
};

inline constexpr auto kReasons = static_cast<size_t>(Reason::kCount);
inline constexpr auto kCauses = static_cast<size_t>(EndCause::kCount);
inline constexpr size_t kStatusCodes = 17;  // Those of gRPC.

// What this daemon has had to do with a semaphore, for clients that it serves itself. The sum over
// all daemons is that of the semaphore. Written and read on the reactor's thread.
struct SemaphoreFigures {
  uint64_t grants = 0;    // To who had asked this daemon, and to workers here.
  uint64_t releases = 0;  // Leases that their holders gave back, or that were given back for them.
  uint64_t recalls = 0;
  std::array<uint64_t, kReasons> denials{};  // By Reason.
  std::array<uint64_t, kCauses> losses{};    // Leases that ended otherwise, by EndCause.
  Histogram<uint64_t> wait_us;               // From the request to the grant.
  Histogram<uint64_t> hold_us;               // From the grant to the end; only if both were here.
  // As it is now, of claims that this daemon serves.
  uint64_t leases = 0;
  uint64_t held_permits = 0;
  uint64_t waiters = 0;
};

// What the engine was last seen to have, of all daemons' clients and others'. The same whichever
// daemon tells it.
struct EngineSemaphoreFigures {
  uint64_t limit = 0;
  uint64_t held_permits = 0;
  uint64_t waiters = 0;
  uint64_t tickets_queued = 0;
  uint64_t tickets_delayed = 0;
  uint64_t tickets_assigned = 0;
  uint64_t dead_letters = 0;

  EngineSemaphoreFigures& operator+=(const EngineSemaphoreFigures& more);
};

// One look at Sessions.
struct SessionsFigures {
  struct Named {
    std::string semaphore;  // Empty: all that have no place of their own, summed.
    SemaphoreFigures here;
    int64_t oldest_waiter_age_ms = 0;
    // nullopt: it was not in the last list, or there was none.
    std::optional<EngineSemaphoreFigures> engine;
  };
  std::vector<Named> semaphores;  // By name; the sum last, always there.
  size_t sessions_open = 0;       // With a stream.
  size_t sessions = 0;            // Those whose client is away as well.
  size_t workers = 0;
  // Age of the list of the engine's semaphores, by whose beginning; nullopt: there was none yet.
  std::optional<int64_t> list_age_ms;
  size_t listed = 0;           // Semaphores in it.
  bool list_complete = false;  // False: there are more than were listed.
  // In it: the most that any one semaphore has.
  uint64_t most_waiters = 0;
  uint64_t most_tickets = 0;  // Living ones.
  uint64_t most_dead_letters = 0;
  // For how long the lists have had the semaphore that they have had as paused for the longest time
  // without a break; 0: none is paused.
  int64_t oldest_pause_ms = 0;
};

// Written by a lane's thread.
struct alignas(64) LaneFigures {
  Histogram<SharedCount> step_us;  // Steps with commands; waiting for events is not one.
  Histogram<SharedCount> batch;    // Commands of each.
  std::array<SharedCount, kStatusCodes> errors{};  // Steps that failed, by code.
  SharedCount unknown;                             // Commands whose answer was lost.
  SharedCount unsettled;                           // Those of them whose fate is not known now.
  SharedCount quarantined;                         // Semaphores that are in quarantine now.
};

// Written by the membership's thread.
struct alignas(64) HeartbeatFigures {
  SharedCount sent;
  SharedCount failed;
  SharedCount nodes_declared_dead;  // By this daemon.
};

// A method of the API, for the calls' figures.
enum class Method : uint8_t {
  kAcquire,
  kRenew,
  kRelease,
  kVerify,
  kAdminister,
  kEnqueue,
  kHold,
  kSession,
  kWatch,
  kWork,
  kDescribeDaemon,
  kHealth,      // The standard health service's.
  kReflection,  // The reflection service's.
  kOther,       // There is no such method.
  kCount        // The number of methods.
};
inline constexpr auto kMethods = static_cast<size_t>(Method::kCount);
// "Acquire", …, "Health", "Reflection", "other".
const char* MethodName(Method method);

// Of one method. Written and read on the reactor's thread.
struct CallFigures {
  uint64_t begun = 0;
  std::array<uint64_t, kStatusCodes> ended{};  // By status code.

  uint64_t under_way() const {
    uint64_t left = begun;
    for (const uint64_t each : ended) left -= each;
    return left;
  }
};
using AllCallFigures = std::array<CallFigures, kMethods>;

// A limit of the daemon's own, and how much of it is in use.
struct LimitFigures {
  std::string name;  // As the setting: "streams_max".
  uint64_t used = 0;
  uint64_t most = 0;
};

// Of the connections' limit, which is measured by descriptors.
struct ConnectionLimit {
  uint64_t most = 0;
  uint64_t other_descriptors = 0;  // Open before the first connection came.
  uint64_t descriptors_each = 1;
};

// All lanes together.
struct EngineFigures {
  Histogram<uint64_t> step_us;
  Histogram<uint64_t> batch;
  std::array<uint64_t, kStatusCodes> errors{};
  uint64_t unknown = 0;
  uint64_t unsettled = 0;
  uint64_t quarantined = 0;
  int64_t last_success_age_ms = 0;  // Of the lane that is furthest behind.

  void Add(const LaneFigures& lane);
};

// Of the guard of connections (server/guard).
struct GuardFigures {
  uint64_t connections = 0;                              // Now, those in a handshake among them.
  std::vector<std::pair<std::string, uint64_t>> closed;  // So far, by reason.
};

// Of OpenTelemetry's spans.
struct SpanFigures {
  uint64_t sent = 0;     // Taken by the collector.
  uint64_t dropped = 0;  // All others that have not been taken, and will not be.
};

// One look at the daemon.
struct DaemonFigures {
  std::string version;
  std::string adapter;
  // False: the reactor did not answer in time, and this first group is empty.
  bool complete = false;
  SessionsFigures sessions;
  AllCallFigures calls{};
  UnknownCallers::Counts unauthenticated{};
  uint64_t audit_lines_lost = 0;
  uint64_t commands_under_way = 0;
  int64_t longest_turn_us = 0;  // Of the reactor, lately.
  std::vector<LimitFigures> limits;

  std::vector<LimitFigures> ledger_limits;  // Of what the ledger keeps.
  ConnectionLimit connections;
  GuardFigures guard;
  int64_t certificate_expires_unix_s = 0;   // 0: without TLS.
  std::optional<uint64_t> disk_free_bytes;  // nullopt: the store is no file of the daemon's.
  EngineFigures engine;
  UpkeepFigures upkeep;
  SpanFigures spans;
  bool vouched = false;
  std::optional<int64_t> heartbeat_age_ms;  // nullopt: none has succeeded yet.
  uint64_t heartbeats = 0;
  uint64_t heartbeats_failed = 0;
  uint64_t nodes_declared_dead = 0;
};

}  // namespace semaphored
