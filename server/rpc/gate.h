// Which verbs the requests need, and what their answers may show: docs/security.md as code, once
// for the calls of all shapes. On the reactor's thread. Without an access file all of it lets pass
// and shows everything.
#pragma once

#include <vector>

#include "server/rpc/caller.h"
#include "server/rpc/environment.h"
#include "server/rpc/validate.h"
#include "server/sessions/sessions.h"

namespace semaphored {

// Each of these verbs lets a caller hold: for itself, or for a ticket.
inline constexpr Verbs kHolds = Verb::kAcquire | Verb::kWork;
// Each of these verbs lets a caller see what there is.
inline constexpr Verbs kSees = Verb::kVerify | Verb::kAdminister;

// Acquire, Hold and the acquire of a Session: checks rule and quotas, scopes the client id, says
// whether the semaphore must exist, and takes the charge along. A request with an id is
// let pass over a quota as one that is answered only if it is repeated.
Problem Admit(const Caller& caller, AcquireParams* params);

// What a resumed session holds: the rules may have changed since it was granted, at this daemon or at another one.
void DenyForbidden(const Caller& caller, const std::vector<HeldLease>& held, Sessions* sessions);

// All that a worker names must be allowed, prefixes as a whole.
Problem CheckWork(const Caller& caller, const WorkParams& work);

// By lease id: callers that may know one. By slot and token: the resource, which needs `verify`.
Problem CheckVerify(const Caller& caller, const VerifyCommand& command);

// Takes out of a lease that is shown what would let the caller impersonate its holder: the session
// id of another owner's lease, and its lease id unless the caller knows that already or administers
// the semaphore.
void HideSecrets(const Caller& caller, const Sessions& sessions, bool knows_id, pb::Lease* lease);
void HideSecrets(const Caller& caller, const Sessions& sessions,
                 google::protobuf::RepeatedPtrField<pb::LeaseInfo>* rows);

}  // namespace semaphored
