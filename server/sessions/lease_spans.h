// The spans of claims: `wait` from the request to its end, `hold` from the grant to the lease's end.
// Their parent is the span of the call that asked; a call without one begins a trace. A call whose
// trace is not sampled has no spans.
//
// A wait that ends with a grant has a link to the `hold` that had one of its slots before, if that
// ended during the wait: that is the release that let it in. Holds of other daemons are not known.
//
// Single-threaded.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/types.h"
#include "server/base/clock.h"
#include "server/base/spans.h"
#include "server/base/trace.h"

namespace semaphored {

// Of one claim; kept in its record.
struct ClaimSpans {
  uint64_t trace_high = 0;
  uint64_t trace_low = 0;
  uint64_t parent = 0;
  uint64_t wait = 0;  // Ids of spans; 0: there is none.
  uint64_t hold = 0;
  SteadyTime asked_at{};
  SteadyTime granted_at{};
};

class LeaseSpans {
 public:
  // Both outlive it. Null: there are no spans.
  LeaseSpans(const Clock* clock, SpanSink* sink) : clock_(clock), sink_(sink) {}

  // A call has asked for permits. Null: the claim has no spans.
  std::unique_ptr<ClaimSpans> Asked(const TraceContext& trace);
  // A worker was given a ticket: it has waited for none. Null: as above.
  std::unique_ptr<ClaimSpans> Assigned(const std::string& semaphore, const Lease& lease,
                                       const TraceContext& trace);
  // These do nothing for a claim that is null.
  void Granted(const std::string& semaphore, const Lease& lease, ClaimSpans* claim);
  // The request has ended without a lease. `reason`: as the API names it.
  void Refused(const std::string& semaphore, std::string_view reason, ClaimSpans* claim);
  void Ended(const std::string& semaphore, const Lease& lease, EndCause cause, ClaimSpans* claim);

 private:
  // The hold that has, or had, a slot.
  struct SlotHold {
    SpanLink hold;
    SteadyTime ended_at = SteadyTime::max();  // max(): it has not, as far as is known.
  };
  using SlotHolds = absl::flat_hash_map<std::string, SlotHold>;

  std::unique_ptr<ClaimSpans> Begin(const TraceContext& trace);
  Span Make(const char* name, const std::string& semaphore, SteadyTime began,
            const ClaimSpans& claim) const;
  // Takes the slots for the claim's hold. The links: to the holds that ended since.
  std::vector<SpanLink> TakeSlots(const std::string& semaphore, const Lease& lease,
                                  const ClaimSpans& claim);
  SlotHold* Find(const std::string& key);

  const Clock* clock_;
  SpanSink* sink_;
  std::mt19937_64 random_{std::random_device{}()};
  // By "semaphore slot". Two of them, so that the older half can be forgotten at once.
  SlotHolds slots_;
  SlotHolds older_slots_;
};

}  // namespace semaphored
