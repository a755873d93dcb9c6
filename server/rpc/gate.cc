#include "server/rpc/gate.h"

#include <memory>
#include <optional>
#include <utility>

namespace semaphored {

Problem Admit(const Caller& caller, AcquireParams* params) {
  if (Problem problem = caller.Check(Verb::kAcquire, params->semaphore)) return problem;
  if (Problem problem = caller.Scope(&params->requester)) return problem;
  params->must_exist = !caller.MayCreate(Verb::kAcquire, params->semaphore);
  Usage usage;
  usage.permits = params->permits;
  usage.waiters = params->wait_ms != 0 ? 1 : 0;
  if (Problem problem = caller.Take(usage, &params->charge)) {
    // It may have been carried out before, and counts already.
    if (!params->requester.remembered()) return problem;
    params->charge = caller.Keep(Usage());
    params->unless_repeated = std::make_shared<Refusal>(*std::move(problem));
  }
  return std::nullopt;
}

void DenyForbidden(const Caller& caller, const std::vector<HeldLease>& held, Sessions* sessions) {
  for (const HeldLease& each : held) {
    if (!caller.May(kHolds, each.semaphore)) sessions->Deny(each.lease->id);
  }
}

Problem CheckWork(const Caller& caller, const WorkParams& work) {
  for (const std::string& semaphore : work.semaphores) {
    if (Problem problem = caller.Check(Verb::kWork, semaphore)) return problem;
  }
  for (const std::string& prefix : work.prefixes) {
    if (Problem problem = caller.CheckUnder(Verb::kWork, prefix)) return problem;
  }
  return std::nullopt;
}

Problem CheckVerify(const Caller& caller, const VerifyCommand& command) {
  return caller.Check(command.claim.empty() ? kSees : kSees | kHolds, command.semaphore);
}

void HideSecrets(const Caller& caller, const Sessions& sessions, bool knows_id, pb::Lease* lease) {
  if (caller.tenant() == nullptr) return;
  const std::optional<LeaseName> name = ParseLeaseId(lease->lease_id());
  if (name.has_value() && caller.MaySee(sessions.OwnerOfClaim(name->claim))) return;
  // An administrator of one semaphore has nothing to do with what else hangs on the session.
  lease->clear_session_id();
  if (!knows_id && !caller.May(Verb::kAdminister, lease->semaphore())) lease->clear_lease_id();
}

void HideSecrets(const Caller& caller, const Sessions& sessions,
                 google::protobuf::RepeatedPtrField<pb::LeaseInfo>* rows) {
  if (caller.tenant() == nullptr) return;
  for (pb::LeaseInfo& row : *rows)
    HideSecrets(caller, sessions, /*knows_id=*/false, row.mutable_lease());
}

}  // namespace semaphored
