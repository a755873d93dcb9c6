// Whose the claims and sessions are, and what they count of their tenants' quotas.
#include <memory>
#include <utility>
#include <vector>

#include "server/sessions/refusals.h"
#include "server/sessions/sessions_impl.h"

namespace semaphored {
void SessionsImpl::Deny(const Id& claim) {
  ClaimRecord* record = claims_.Find(claim);
  if (record == nullptr || stopping_ || !record->leads_to.empty()) return;
  if (!record->has_lease()) {
    if (record->offers) return;
    record->denied = true;
    if (record->state == ClaimRecord::State::kWaiting) ends_.EndUnwanted(record);
  } else if (record->session != nullptr && !record->lease->recall.pending()) {
    recalls_.Submit(*record, {Recall::Reason::kAdministrator, record->session->life.ttl_ms},
                    TimerKind::kDenied);
  }
}

void SessionsImpl::Recheck(Allows allows) {
  std::vector<Id> denied;
  for (const auto& [id, record] : claims_.records()) {
    const bool offer = record->offers && !record->has_lease();
    const std::string_view owner = offer ? std::string_view() : OwnerOfClaim(id);
    if (!owner.empty() && !allows(owner, record->semaphore, record->has_lease()))
      denied.push_back(id);
  }
  for (const Id& id : denied) Deny(id);
  for (SessionListener* listener : sessions_.listeners()) {
    // One may have ended another's session.
    if (sessions_.Listens(listener)) listener->OnRulesChanged();
  }
}

std::string_view SessionsImpl::OwnerOfClaim(const Id& claim) const {
  const ClaimRecord* record = claims_.Find(claim);
  if (record == nullptr) return {};
  // What the engine keeps is known also after a restart, before the client comes back.
  if (record->has_lease() && !record->lease->owner.empty()) return record->lease->owner;
  if (record->charge != nullptr) return record->charge->tenant()->name;
  return record->session != nullptr ? record->session->owner : std::string_view();
}

const Charge* SessionsImpl::ChargeOfSession(const Id& session) const {
  const SessionRecord* record = sessions_.Find(session);
  return record == nullptr ? nullptr : record->charge.get();
}

bool SessionsImpl::BelongsToAnother(const SessionRecord* record, const OpenParams& params) {
  return record != nullptr && IsAnothers(record->owner, TenantName(params.charge));
}

}  // namespace semaphored
