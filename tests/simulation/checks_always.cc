// The checks that follow each event: what clients believe, who waits, who is served for nobody.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checks.h"

namespace semaphored::simulation {
namespace {

constexpr int64_t kAlways = std::numeric_limits<int64_t>::max();
// How long after the last disturbance (and beyond a lease's own TTL) everything must have found its
// way: a dead node is seen within two node TTLs, a lost notice by the next sweep, a stream that is
// cut by keepalive.
constexpr int64_t kBoundUs = 30 * kSecond;
// A grant is pushed, or found by the next sweep.
constexpr int64_t kToldWithinUs = 8 * kSecond;
constexpr int64_t kLookEveryUs = 50 * kMillisecond;

}  // namespace

// Without acts that end leases at once, only its client's word ends a lease that is counted on.
bool Checks::EndedByForce(EndCause cause) const {
  const bool by_act =
      cause == EndCause::kRevoked || cause == EndCause::kRecalled || cause == EndCause::kDestroyed;
  return cause == EndCause::kDisconnected || (by_act && acts_now_);
}

// ---- what clients report ----

void Checks::Wants(const std::string& client_id, uint64_t sequence, int64_t ttl_ms) {
  Wish& wish = wishes_[{client_id, sequence}];
  wish.ttl_ms = ttl_ms;
  wish.until_us = kAlways;
}

void Checks::WantsNoMore(const std::string& client_id, uint64_t sequence) {
  Wish& wish = wishes_[{client_id, sequence}];
  wish.until_us = std::min(wish.until_us, world_->now());
}

void Checks::IsGone(const std::string& client_id) {
  for (auto at = wishes_.lower_bound({client_id, 0});
       at != wishes_.end() && at->first.first == client_id; ++at) {
    at->second.until_us = std::min(at->second.until_us, world_->now());
  }
}

void Checks::WasGranted(const std::string& client_id, uint64_t sequence, const Id& claim,
                        const Belief& belief) {
  Wish& wish = wishes_[{client_id, sequence}];
  wish.told = true;
  if (wish.claim != claim)
    Fail(absl::StrCat(client_id, " was told of a lease that its request ", sequence,
                      " has not got"));
  const StoredSemaphore* semaphore = engine_->Find(belief.semaphore);
  const auto lease =
      semaphore == nullptr ? decltype(semaphore->leases.begin()){} : semaphore->leases.find(claim);
  if (semaphore == nullptr || lease == semaphore->leases.end())
    return;  // It may have ended meanwhile.
  if (lease->second.token != belief.token) {
    Fail(absl::StrCat(client_id, " was told token ", belief.token, ", granted was ",
                      lease->second.token));
  }
}

// Promise 11: there was a moment, between question and answer, at which it was full.
void Checks::WasRefused(const std::string& client_id, const std::string& semaphore,
                        uint32_t permits, int64_t since_us) {
  const auto& changes = room_[semaphore];
  if (changes.empty() || changes.front().first > since_us) return;
  uint32_t least = std::numeric_limits<uint32_t>::max();
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
    least = std::min(least, change->second);
    if (change->first <= since_us) break;
  }
  if (least >= permits) {
    Fail(absl::StrCat(client_id, " was told that ", semaphore, " is full, but there was room for ",
                      least, " all the time"));
  }
}

void Checks::OnDeclaredDead(const NodeStore::Node& node, int64_t node_ttl_ms) const {
  const auto heard = heard_us_.find(node.ref.number);
  const int64_t silent_us =
      heard == heard_us_.end() ? world_->now() : world_->now() - heard->second;
  // A hundredth for clocks that differ.
  if (silent_us >= node_ttl_ms * 990) return;
  Fail(absl::StrCat(node.node_id, " was declared dead ", silent_us / kMillisecond,
                    " ms after its heartbeat"));
}

// ---- after each event ----

void Checks::AfterEvent() {
  CheckBeliefs();
  if (world_->now() < looked_at_us_ + kLookEveryUs) return;
  looked_at_us_ = world_->now();
  CheckWaiters();
  CheckOwners();
  tickets_.Look(*faults_);
}

// Promise 1, as the holders see it: who counts on a lease by the rules has it, unless it was taken
// by force.
void Checks::CheckBeliefs() {
  std::map<std::string, uint64_t> believed;
  std::set<Id> counted;
  for (const Believer* believer : believers_) {
    for (const auto& [claim, belief] : believer->beliefs()) {
      if (believer->ClockUs() >= belief.deadline_us) continue;
      const auto ended = ends_.find(claim);
      if (ended != ends_.end()) {
        if (EndedByForce(ended->second)) continue;
        Fail(absl::StrCat(believer->name(), " counts on a lease of ", belief.semaphore,
                          " for another ",
                          (belief.deadline_us - believer->ClockUs()) / kMillisecond,
                          " ms, but it has ended (cause ", static_cast<int>(ended->second), ")"));
      }
      const StoredSemaphore* semaphore = engine_->Find(belief.semaphore);
      if (semaphore == nullptr || !semaphore->leases.contains(claim)) {
        Fail(absl::StrCat(believer->name(), " counts on a lease of ", belief.semaphore,
                          " that the engine does not know"));
      }
      if (!counted.insert(claim).second)
        Fail(absl::StrCat(believer->name(), " counts on a lease of ", belief.semaphore,
                          " that counts in another place too"));
      believed[belief.semaphore] += belief.slots.size();
    }
  }
  for (const auto& [name, permits] : believed) {
    const StoredSemaphore* semaphore = engine_->Find(name);
    if (permits > std::max(semaphore->row.limit, semaphore->held())) {
      Fail(absl::StrCat(name, ": its holders count on ", permits, " permits, the limit is ",
                        semaphore->row.limit));
    }
  }
}

// No waiter is forgotten once there is room, in the engine or on the way to its client.
void Checks::CheckWaiters() {
  for (const auto& [name, semaphore] : engine_->semaphores()) {
    const int64_t calm_us = faults_->CalmForUs(*world_, name);
    std::string who;
    if (Servable(semaphore, &who) == 0) {
      servable_since_us_.erase(name);
    } else {
      const auto [at, is_new] = servable_since_us_.try_emplace(name, world_->now());
      if (!is_new && std::min(calm_us, world_->now() - at->second) > kBoundUs / 3)
        Fail(absl::StrCat(name, ": ", who, " waits though there is room"));
    }
    for (const auto& [id, lease] : semaphore.leases) {
      if (!lease.ticket.empty()) continue;  // See TicketChecks.
      const auto wish = wishes_.find(RequestOf(lease));
      if (wish == wishes_.end() || wish->second.told || wish->second.until_us != kAlways) continue;
      // Its client may have gone: then it is kept, unheard of, until its TTL has passed.
      const int64_t bound_us = kToldWithinUs + engine_->KeptForUs(lease);
      if (std::min(calm_us, world_->now() - wish->second.granted_us) > bound_us) {
        Fail(absl::StrCat(name, ": ", lease.holder, " was granted a lease and is not told"));
      }
    }
  }
}

// No lease and no place in the queue for somebody who is gone.
void Checks::CheckOwners() {
  for (const auto& [name, semaphore] : engine_->semaphores()) {
    // Clang 14 does not capture a structured binding without a name of its own.
    const auto check = [&, &name = name](const Claim& claim, const char* what) {
      const auto wish = wishes_.find(RequestOf(claim));
      if (wish == wishes_.end() || wish->second.until_us == kAlways) return;
      if (impolite_.contains(wish->first.first)) return;
      const int64_t bound_us = kBoundUs + claim.ttl_ms * kMillisecond;
      const int64_t gone_us = world_->now() - wish->second.until_us;
      if (std::min(faults_->CalmForUs(*world_, name), gone_us) > bound_us) {
        Fail(absl::StrCat(name, ": there is a ", what, ", ", claim.id.Hex().substr(0, 6), ", for ",
                          wish->first.first, ", request ", wish->first.second,
                          ", which has been gone for ",
                          (world_->now() - wish->second.until_us) / kSecond, " s"));
      }
    };
    for (const auto& [id, lease] : semaphore.leases) check(lease, "lease");
    for (const auto& [id, waiter] : semaphore.waiters) check(waiter, "waiter");
  }
}

void Checks::AtTheEnd() {
  for (const auto& [name, semaphore] : engine_->semaphores()) {
    if (!semaphore.leases.empty()) {
      Fail(absl::StrCat(name, ": at the end ", semaphore.leases.begin()->second.holder,
                        " still has a lease"));
    }
    if (!semaphore.waiters.empty()) {
      Fail(absl::StrCat(name, ": at the end ", semaphore.waiters.begin()->second.holder,
                        " still waits"));
    }
  }
  tickets_.AtTheEnd();
  if (!engine_->sessions().empty()) Fail("at the end there still is a session");
}

}  // namespace semaphored::simulation
