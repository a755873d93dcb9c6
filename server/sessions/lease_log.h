// What the log says of leases: grants, at level debug, and leases that were lost, at level warn.
// Each line carries the trace of the call that asked for the lease. Lease ids are secrets of their
// holders and are in no line. What traces say of leases goes the same way: see lease_spans.h.
//
// Of losses at most twenty lines a second are written, and then one that says how many were left
// out: a daemon whose engine takes ten thousand leases back does not spend its time on that.
//
// Single-threaded.
#pragma once

#include <cstdint>
#include <string>

#include "adapters/types.h"
#include "server/base/clock.h"
#include "server/base/trace.h"
#include "server/sessions/lease_spans.h"

namespace semaphored {

class LeaseLog {
 public:
  // All outlive it. Without `on` it writes nothing. Null: there are no spans.
  LeaseLog(const Clock* clock, bool on, SpanSink* spans = nullptr)
      : clock_(clock), on_(on), spans_(clock, spans) {}

  LeaseSpans& spans() { return spans_; }

  void Granted(const std::string& semaphore, const Lease& lease, const TraceContext& trace) const;
  void Lost(const std::string& semaphore, const Lease& lease, EndCause cause,
            const TraceContext& trace);

 private:
  const Clock* clock_;
  bool on_;
  SteadyTime second_begun_{};
  uint64_t written_ = 0;  // In this second.
  uint64_t left_out_ = 0;
  LeaseSpans spans_;
};

}  // namespace semaphored
