// Whose the claims and sessions are, and what they count of their tenants' quotas.
#include <memory>
#include <utility>
#include <vector>

#include "server/core/refusals.h"
#include "server/core/sessions_impl.h"

namespace semaphored {
void SessionsImpl::Count(ClaimRecord* record, const TenantPtr& tenant) {
  if (record->offers || (record->charge == nullptr && tenant == nullptr)) return;
  Usage usage;
  if (record->has_lease()) {
    usage.permits = record->lease->permits;
  } else {
    usage.waiters = 1;
  }
  if (record->charge == nullptr) {
    record->charge = std::make_shared<Charge>(tenant, usage);
  } else if (record->has_lease()) {
    record->charge->Set(usage);
  }
}

void SessionsImpl::Deny(const Id& claim) {
  ClaimRecord* record = FindClaim(claim);
  if (record == nullptr || stopping_ || !record->leads_to.empty()) return;
  if (!record->has_lease()) {
    if (record->offers) return;
    record->denied = true;
    if (record->state == ClaimRecord::State::kWaiting) EndUnwanted(record);
  } else if (record->session != nullptr && !record->lease->recall.pending()) {
    RecallLease(record, {Recall::Reason::kAdministrator, record->session->life.ttl_ms},
                TimerKind::kDenied);
  }
}

void SessionsImpl::EndDenied(ClaimRecord* record) {
  ClaimListener* listener = std::exchange(record->listener, nullptr);
  EndClaim(record, EndCause::kRevoked, false);
  // If the engine cannot be asked now, the session's pings must not keep it: then it is recalled. (A detached lease
  // has its TTL.)
  if (record->session != nullptr)
    timers_.Add(Now() + Milliseconds(record->session->life.ttl_ms), TimerKind::kDenied, record->id);
  if (listener != nullptr) listener->OnRefused(record->tag, NotAllowedRefusal(record->semaphore));
}

void SessionsImpl::Recheck(Allows allows) {
  std::vector<Id> denied;
  for (const auto& [id, record] : claims_) {
    const bool offer = record->offers && !record->has_lease();
    const std::string_view owner = offer ? std::string_view() : OwnerOfClaim(id);
    if (!owner.empty() && !allows(owner, record->semaphore, record->has_lease()))
      denied.push_back(id);
  }
  for (const Id& id : denied) Deny(id);
  std::vector<SessionListener*> listeners;
  for (const auto& [listener, session] : by_listener_) listeners.push_back(listener);
  for (SessionListener* listener : listeners) {
    // One may have ended another's session.
    if (by_listener_.contains(listener)) listener->OnRulesChanged();
  }
}

std::string_view SessionsImpl::OwnerOfClaim(const Id& claim) const {
  const ClaimRecord* record = FindClaim(claim);
  if (record == nullptr) return {};
  // What the engine keeps is known also after a restart, before the client comes back.
  if (record->has_lease() && !record->lease->owner.empty()) return record->lease->owner;
  if (record->charge != nullptr) return record->charge->tenant()->name;
  return record->session != nullptr ? record->session->owner : std::string_view();
}

const Charge* SessionsImpl::ChargeOfSession(const Id& session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second->charge.get();
}

bool SessionsImpl::BelongsToAnother(const SessionRecord* record, const OpenParams& params) {
  return record != nullptr && IsAnothers(record->owner, TenantName(params.charge));
}

}  // namespace semaphored
