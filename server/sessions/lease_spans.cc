#include "server/sessions/lease_spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace semaphored {
namespace {

// Of a wide lease the first slots stand for all.
constexpr size_t kSlotsOfALease = 8;
constexpr size_t kSlotsKept = 20'000;  // In each of the two maps.

std::vector<uint32_t> FirstSlots(const Lease& lease) {
  std::vector<uint32_t> slots;
  for (const uint32_t slot : lease.slots) {
    if (slots.size() == kSlotsOfALease) break;
    slots.push_back(slot);
  }
  return slots;
}

// As the API names it, without END_CAUSE_.
const char* CauseName(EndCause cause) {
  switch (cause) {
    case EndCause::kReleased:
      return "RELEASED";
    case EndCause::kExpired:
      return "EXPIRED";
    case EndCause::kRevoked:
      return "REVOKED";
    case EndCause::kRecalled:
      return "RECALLED";
    case EndCause::kDestroyed:
      return "DESTROYED";
    case EndCause::kDisconnected:
      return "DISCONNECTED";
    case EndCause::kWaitExpired:
      return "WAIT_EXPIRED";
    case EndCause::kCancelled:
      return "CANCELLED";
    case EndCause::kExceedsLimit:
      return "EXCEEDS_LIMIT";
    case EndCause::kEngineLost:
      return "ENGINE_LOST";
    case EndCause::kMoved:
      return "MOVED";
    case EndCause::kNone:
    case EndCause::kUnknown:
    case EndCause::kCount:
      break;
  }
  return "UNKNOWN";
}

std::string KeyOf(const std::string& semaphore, uint32_t slot) {
  return fmt::format("{} {}", semaphore, slot);
}

}  // namespace

std::unique_ptr<ClaimSpans> LeaseSpans::Begin(const TraceContext& trace) {
  if (sink_ == nullptr || (trace.present() && !trace.sampled)) return nullptr;
  auto claim = std::make_unique<ClaimSpans>();
  claim->trace_high = trace.present() ? trace.trace_high : random_();
  claim->trace_low = trace.present() ? trace.trace_low : random_() | 1;
  claim->parent = trace.span;
  claim->hold = random_() | 1;
  claim->asked_at = clock_->Now();
  return claim;
}

std::unique_ptr<ClaimSpans> LeaseSpans::Asked(const TraceContext& trace) {
  auto claim = Begin(trace);
  if (claim != nullptr) claim->wait = random_() | 1;
  return claim;
}

std::unique_ptr<ClaimSpans> LeaseSpans::Assigned(const std::string& semaphore, const Lease& lease,
                                                 const TraceContext& trace) {
  auto claim = Begin(trace);
  Granted(semaphore, lease, claim.get());
  return claim;
}

Span LeaseSpans::Make(const char* name, const std::string& semaphore, SteadyTime began,
                      const ClaimSpans& claim) const {
  Span span;
  span.name = name;
  span.trace_high = claim.trace_high;
  span.trace_low = claim.trace_low;
  span.parent = claim.parent;
  span.semaphore = semaphore;
  // The steady clock says how long it was, the other one when, for people.
  span.ended_unix_ns = clock_->NowUnixMs() * 1'000'000;
  const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(clock_->Now() - began);
  span.began_unix_ns = span.ended_unix_ns - std::max<int64_t>(time.count(), 0);
  return span;
}

void LeaseSpans::Granted(const std::string& semaphore, const Lease& lease, ClaimSpans* claim) {
  if (claim == nullptr || claim->hold == 0) return;
  claim->granted_at = clock_->Now();
  std::vector<SpanLink> links = TakeSlots(semaphore, lease, *claim);
  if (claim->wait == 0) return;
  Span span = Make("wait", semaphore, claim->asked_at, *claim);
  span.id = std::exchange(claim->wait, 0);
  span.holder = lease.holder;
  span.permits = lease.permits;
  span.token = lease.token;
  span.outcome = "GRANTED";
  span.links = std::move(links);
  sink_->Push(std::move(span));
}

void LeaseSpans::Refused(const std::string& semaphore, std::string_view reason, ClaimSpans* claim) {
  if (claim == nullptr || claim->wait == 0) return;
  Span span = Make("wait", semaphore, claim->asked_at, *claim);
  span.id = std::exchange(claim->wait, 0);
  span.outcome = reason;
  span.failed = true;
  sink_->Push(std::move(span));
}

void LeaseSpans::Ended(const std::string& semaphore, const Lease& lease, EndCause cause,
                       ClaimSpans* claim) {
  if (claim == nullptr || claim->hold == 0 || claim->granted_at == SteadyTime{}) return;
  Span span = Make("hold", semaphore, claim->granted_at, *claim);
  span.id = std::exchange(claim->hold, 0);
  span.holder = lease.holder;
  span.permits = lease.permits;
  span.token = lease.token;
  span.outcome = CauseName(cause);
  span.failed = cause != EndCause::kReleased;
  for (const uint32_t slot : FirstSlots(lease)) {
    SlotHold* kept = Find(KeyOf(semaphore, slot));
    if (kept != nullptr && kept->hold.span == span.id) kept->ended_at = clock_->Now();
  }
  sink_->Push(std::move(span));
}

LeaseSpans::SlotHold* LeaseSpans::Find(const std::string& key) {
  for (SlotHolds* slots : {&slots_, &older_slots_}) {
    if (const auto found = slots->find(key); found != slots->end()) return &found->second;
  }
  return nullptr;
}

std::vector<SpanLink> LeaseSpans::TakeSlots(const std::string& semaphore, const Lease& lease,
                                            const ClaimSpans& claim) {
  std::vector<SpanLink> links;
  for (const uint32_t slot : FirstSlots(lease)) {
    const std::string key = KeyOf(semaphore, slot);
    const SlotHold* before = Find(key);
    if (before != nullptr && before->ended_at >= claim.asked_at &&
        std::find(links.begin(), links.end(), before->hold) == links.end()) {
      links.push_back(before->hold);
    }
    if (slots_.size() >= kSlotsKept) older_slots_ = std::exchange(slots_, {});
    slots_.insert_or_assign(key, SlotHold{{claim.trace_high, claim.trace_low, claim.hold}});
  }
  return links;
}

}  // namespace semaphored
