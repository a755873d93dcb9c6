// Whose the claims and sessions are, and what they count of their tenants' quotas.
#include <memory>

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

const Tenant* SessionsImpl::OwnerOfClaim(const Id& claim) const {
  const ClaimRecord* record = FindClaim(claim);
  if (record == nullptr) return nullptr;
  const ChargePtr& charge = record->charge == nullptr && record->session != nullptr
                                ? record->session->charge
                                : record->charge;
  return charge == nullptr ? nullptr : charge->tenant().get();
}

const Charge* SessionsImpl::ChargeOfSession(const Id& session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second->charge.get();
}

// Whoever is not its owner is told what he would be told if it were not there.
bool SessionsImpl::IsAnothers(const SessionRecord* record, const OpenParams& params) {
  return record != nullptr && record->charge != nullptr &&
         (params.charge == nullptr || params.charge->tenant() != record->charge->tenant());
}

}  // namespace semaphored
