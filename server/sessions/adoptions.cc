#include "server/sessions/adoptions.h"

#include <utility>

#include "server/sessions/records.h"

namespace semaphored {
namespace {

// Of the same lease: permits are only given back, and a recall is never withdrawn.
bool IsLater(const Lease& lease, const Lease& than) {
  return lease.permits < than.permits || (lease.recall.pending() && !than.recall.pending());
}

}  // namespace

bool Adoptions::Changes::HasLeft(const Id& claim) const {
  const auto found = by_claim_.find(claim);
  return found != by_claim_.end() && found->second.left_at != 0;
}

void Adoptions::Changes::BringUpToDate(std::vector<ClaimInfo>* claims) const {
  if (by_claim_.empty()) return;
  std::erase_if(*claims, [&](const ClaimInfo& info) {
    const auto found = by_claim_.find(RowOf(info).id);
    if (found == by_claim_.end()) return false;
    return found->second.ended || found->second.left_at > RowOf(info).epoch;
  });
  for (ClaimInfo& info : *claims) {
    const auto found = by_claim_.find(RowOf(info).id);
    if (found == by_claim_.end() || found->second.lease == nullptr) continue;
    const Change& change = found->second;
    // What the lane took for another daemon's offer was reported without its ticket: the sweep reports it.
    const bool waits = info.lease == nullptr;
    if (waits && info.waiter->works && change.ticket == nullptr) continue;
    if (!waits && !IsLater(*change.lease, *info.lease)) continue;
    info.lease = change.lease;
    if (waits) info.ticket = change.ticket;
  }
}

Adoptions::Changes Adoptions::Take(const Id& session) {
  const auto found = adoptions_.find(session);
  if (--found->second.asked > 0) return found->second.changes;
  Changes changes = std::move(found->second.changes);
  adoptions_.erase(found);
  return changes;
}

Adoptions::Changes::Change* Adoptions::ChangeOf(const Id& session, const Id& claim) {
  const auto found = adoptions_.find(session);
  if (found == adoptions_.end()) return nullptr;
  auto& changes = found->second.changes.by_claim_;
  if (changes.size() >= kChangesKeptMax && !changes.contains(claim)) return nullptr;
  return &changes[claim];
}

void Adoptions::KeepEvent(const Event& event) {
  // A moved session changes none of its claims. A claim that has left its session is a change.
  if (event.kind == Event::Kind::kMoved && event.session.empty()) return;
  if (event.kind == Event::Kind::kMoved) {
    if (Changes::Change* left = ChangeOf(event.session, event.claim)) left->left_at = event.epoch;
    return;
  }
  Changes::Change* change =
      ChangeOf(event.lease ? event.lease->session : event.session, event.claim);
  if (change == nullptr) return;
  if (event.kind == Event::Kind::kEnded || event.kind == Event::Kind::kWaitEnded) {
    change->ended = true;
    return;
  }
  change->lease = WithRecallOf(event.lease, change->lease);
  if (event.ticket != nullptr) change->ticket = event.ticket;
}

void Adoptions::KeepLease(const LeasePtr& lease) {
  if (adoptions_.empty()) return;
  if (Changes::Change* change = ChangeOf(lease->session, lease->id)) change->lease = lease;
}

}  // namespace semaphored
