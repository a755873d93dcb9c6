#include "server/sessions/owners.h"

#include <vector>

namespace semaphored {

void Owners::Deny(const Id& claim) {
  ClaimRecord* record = parts_.claims->Find(claim);
  if (record == nullptr || stopping_ || !record->leads_to.empty()) return;
  if (!record->has_lease()) {
    if (record->offers) return;
    record->denied = true;
    if (record->state == ClaimRecord::State::kWaiting) parts_.ends->EndUnwanted(record);
  } else if (record->session != nullptr && !record->lease->recall.pending()) {
    parts_.recalls->Submit(*record, {Recall::Reason::kAdministrator, record->session->life.ttl_ms},
                           TimerKind::kDenied);
  }
}

void Owners::Recheck(Sessions::Allows allows) {
  std::vector<Id> denied;
  for (const auto& [id, record] : parts_.claims->records()) {
    const bool offer = record->offers && !record->has_lease();
    const std::string_view owner = offer ? std::string_view() : OfClaim(id);
    if (!owner.empty() && !allows(owner, record->semaphore, record->has_lease()))
      denied.push_back(id);
  }
  for (const Id& id : denied) Deny(id);
  for (SessionListener* listener : parts_.sessions->listeners()) {
    // One may have ended another's session.
    if (parts_.sessions->Listens(listener)) listener->OnRulesChanged();
  }
}

std::string_view Owners::OfClaim(const Id& claim) const {
  const ClaimRecord* record = parts_.claims->Find(claim);
  if (record == nullptr) return {};
  // What the engine keeps is known also after a restart, before the client comes back.
  if (record->has_lease() && !record->lease->owner.empty()) return record->lease->owner;
  if (record->charge != nullptr) return record->charge->tenant()->name;
  return record->session != nullptr ? record->session->owner : std::string_view();
}

const Charge* Owners::ChargeOf(const Id& session) const {
  const SessionRecord* record = parts_.sessions->Find(session);
  return record == nullptr ? nullptr : record->charge.get();
}

}  // namespace semaphored
