// What dead nodes left behind: learned from the lanes page by page, and kept until its clients come or its
// TTL is over.
#include <algorithm>
#include <utility>

#include "server/core/sessions_impl.h"
#include "spdlog/spdlog.h"

namespace semaphored {
namespace {

// A page has at most so many semaphores, and about so many claims and tickets.
constexpr uint32_t kPageRowsMax = 256;
constexpr uint32_t kPageRowsFirst = 32;
constexpr uint64_t kPageClaims = 4096;
constexpr Milliseconds kProgressLoggedEvery{2000};

// After a page of `rows` with `claims`. It at most doubles, since semaphores differ in size.
uint32_t NextRows(uint32_t rows, uint64_t claims) {
  const uint64_t fit = rows * kPageClaims / std::max<uint64_t>(claims, 1);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(fit, 1, std::min<uint64_t>(kPageRowsMax, 2 * uint64_t{rows})));
}

}  // namespace

struct SessionsImpl::Gathering {
  size_t lanes_left;
  absl::Status status;
  absl::AnyInvocable<void(absl::Status)> ready;
  SteadyTime begun_at;
  uint64_t claims = 0;  // That were read so far, of …
  uint64_t pages = 0;   // … so many pages.
  SteadyTime logged_at = begun_at;

  void Count(uint64_t read, SteadyTime now) {
    claims += read;
    ++pages;
    if (now - logged_at < kProgressLoggedEvery) return;
    logged_at = now;
    spdlog::info("take-over: {} claims were read so far", claims);
  }
  void End(SteadyTime now) {
    if (claims > kPageClaims && status.ok()) {
      const auto took = std::chrono::duration_cast<Milliseconds>(now - begun_at);
      spdlog::info("take-over: {} claims were read, in {} pages and {} ms", claims, pages,
                   took.count());
    }
    ready(status);
  }
};

void SessionsImpl::TakeOver(std::vector<NodeRef> dead,
                            absl::AnyInvocable<void(absl::Status)> ready) {
  NoteDead(dead);
  const size_t lanes = host_->lane_count();
  auto gathering =
      std::make_shared<Gathering>(Gathering{lanes, absl::OkStatus(), std::move(ready), Now()});
  idle_.Arm();
  for (size_t lane = 0; lane < lanes; ++lane) {
    OrphansCommand page;
    page.dead = dead;
    page.lane = static_cast<uint32_t>(lane);
    page.lanes = static_cast<uint32_t>(lanes);
    page.rows_max = kPageRowsFirst;
    Gather(gathering, std::move(page));
  }
}

void SessionsImpl::Gather(std::shared_ptr<Gathering> gathering, OrphansCommand page) {
  const uint32_t lane = page.lane;
  Command command = page;
  Completion received = [this, gathering = std::move(gathering),
                         page = std::move(page)](absl::StatusOr<Outcome> outcome) mutable {
    if (outcome.ok()) {
      for (const Orphan& orphan : outcome->report->orphans) Absorb(orphan);
      for (const DelayedTicket& each : outcome->report->delayed) delays_.Count(each);
      ++pages_taken_over_;
      gathering->Count(outcome->affected(), Now());
      page.after = std::move(outcome->report->next);
      page.rows_max = NextRows(page.rows_max, outcome->affected());
      if (!page.after.empty() && !stopping_) return Gather(std::move(gathering), std::move(page));
    } else {
      gathering->status = outcome.status();
    }
    if (--gathering->lanes_left == 0) gathering->End(Now());
  };
  host_->Submit(lane, Job{std::move(command), std::move(received)});
}

void SessionsImpl::Absorb(const Orphan& orphan) {
  const bool detached =
      orphan.claims.size() == 1 && (orphan.claims[0].lease ? orphan.claims[0].lease->detached()
                                                           : orphan.claims[0].waiter->detached());
  Liveness life;
  life.ttl_ms = orphan.ttl_ms;
  life.epoch = orphan.epoch;
  life.hosted = false;
  // An earlier life of ours may still run, and vouches until its next heartbeat is due.
  const int64_t keep_ms =
      orphan.replaced ? std::max(orphan.ttl_ms, options_.node_ttl_ms) : orphan.ttl_ms;
  life.expires_at = Now() + Milliseconds(keep_ms);
  // Of a node that was seen to be dead all that it vouched for is over. An exclusive engine's former owner
  // has vouched by the TTL.
  const int64_t vouched_ms = exclusive()       ? orphan.ttl_ms
                             : orphan.replaced ? std::min(orphan.ttl_ms, options_.node_ttl_ms)
                                               : 0;
  life.vouched_until = Now() + Milliseconds(vouched_ms);
  // It had moved to the daemon that is dead now. The daemon that it came from perhaps does not know yet.
  if (orphan.epoch > 1) KeepAfterMove(&life, orphan.ttl_ms);
  life.expires_at = std::max(life.expires_at, life.keep_until);
  return detached ? AbsorbDetached(orphan, life) : AbsorbSession(orphan, life);
}

// A session that is known with this epoch came with another page, perhaps another lane's, or has been
// adopted meanwhile. One that is known with an earlier epoch had moved away, to the daemon that is dead now,
// and this daemon has not heard of that.
void SessionsImpl::AbsorbSession(const Orphan& orphan, const Liveness& life) {
  SessionRecord* known = FindSession(orphan.session);
  if (known != nullptr && known->life.epoch < orphan.epoch) {
    DropSession(known, MovedRefusal(""));
    known = nullptr;
  }
  const bool is_new = known == nullptr;
  if (!is_new && (known->life.epoch > orphan.epoch || known->life.hosted || known->life.expiring ||
                  known->closing))
    return;
  // What is known already is as it was, or newer.
  std::vector<ClaimInfo> claims;
  for (const ClaimInfo& info : orphan.claims) {
    const ClaimRecord* claim = FindClaim(info.lease ? info.lease->id : info.waiter->id);
    if (is_new || claim == nullptr || claim->session != known) claims.push_back(info);
  }
  LeaveOthers(orphan.session, claims);
  auto& record = sessions_[orphan.session];
  if (is_new) {
    record = std::make_unique<SessionRecord>();
    record->id = orphan.session;
    record->life = life;
    record->owner = orphan.owner;
  }
  AddClaims(record.get(), claims);
  ArmTtl(&record->life, TimerKind::kSessionTtl, orphan.session);
}

void SessionsImpl::AbsorbDetached(const Orphan& orphan, const Liveness& life) {
  if (ClaimRecord* known = FindClaim(orphan.session)) {
    if (known->life.epoch >= orphan.epoch) return;
    if (known->session != nullptr) {
      Leave(known);
    } else {
      Refuse(known, MovedRefusal(known->semaphore));
    }
  }
  const ClaimInfo& info = orphan.claims[0];
  ClaimRecord* record = AddClaim(orphan.session, info.semaphore, nullptr);
  record->life = life;
  record->remembered = true;
  record->state = info.lease ? ClaimRecord::State::kHeld : ClaimRecord::State::kWaiting;
  record->lease = info.lease;
  const bool moves = info.lease && info.lease->moved_from != 0;
  if (moves) BecomeMoving(record, info.lease, MoveOverAt(*info.lease));
  CountFound(record);
  ArmRecall(record);
  ArmTtl(&record->life, TimerKind::kTtl, orphan.session);
}

}  // namespace semaphored
