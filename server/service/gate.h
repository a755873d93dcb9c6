// Which verbs the requests need, and what their answers may show: docs/security.md as code, once
// for the calls of all shapes. On the reactor's thread. Without an access file all of it lets pass
// and shows everything.
#pragma once

#include <vector>

#include "server/core/sessions.h"
#include "server/service/caller.h"
#include "server/service/environment.h"
#include "server/service/validate.h"

namespace semaphored {

// Whoever holds: by himself, or for a ticket.
inline constexpr Verbs kHolds = Verb::kAcquire | Verb::kWork;
// Whoever may see what there is.
inline constexpr Verbs kSees = Verb::kVerify | Verb::kAdminister;

// Acquire, Hold and the acquire of a Session: checks rule and quotas, scopes the client id, says
// whether the semaphore must exist, and takes the charge along. A request with an id is
// let pass over a quota as one that is answered only if it is repeated.
Problem Admit(const Caller& caller, AcquireParams* params);

// What a resumed session holds: the rules may have changed since it was granted, at this daemon or at another one.
void DenyForbidden(const Caller& caller, const std::vector<HeldLease>& held, Sessions* sessions);

// All that a worker names must be allowed, prefixes as a whole.
Problem CheckWork(const Caller& caller, const WorkParams& work);

// By lease id: whoever may know one. By slot and token: the resource, which has to have `verify`.
Problem CheckVerify(const Caller& caller, const VerifyCommand& command);

// Takes out of a lease that is shown what lets its holder be impersonated: the session id of
// another's, and the lease id for whoever neither knows it already, owns the lease, nor administers
// the semaphore.
void HideSecrets(const Caller& caller, const Sessions& sessions, bool knows_id, pb::Lease* lease);
void HideSecrets(const Caller& caller, const Sessions& sessions,
                 google::protobuf::RepeatedPtrField<pb::LeaseInfo>* rows);

}  // namespace semaphored
