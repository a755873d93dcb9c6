// The caller of a call or stream, and what it may do there: found out once, and again on a stream when the access file
// has changed. On the reactor's thread. Without an access file all of it lets pass and shows everything.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/types.h"
#include "server/access/access.h"
#include "server/access/audit_log.h"
#include "server/access/denied_acts.h"
#include "server/access/tenant.h"
#include "server/access/unknown_callers.h"
#include "server/base/clock.h"
#include "server/guard/peers.h"
#include "server/rpc/convert.h"
#include "server/rpc/validate.h"
#include "server/sessions/sessions.h"

namespace semaphored {

// What is known of all callers; the reactor's.
struct AccessControl {
  std::shared_ptr<const AccessPolicy> policy;  // Null: there is no access file, all may do all.
  Tenants tenants;
  const guard::Peers* peers = nullptr;  // Null: connections are not guarded.
  AuditLog* audit = nullptr;            // Null: acts are not written down. It outlives the server.
  const Clock* clock = nullptr;
  UnknownCallers unknown;
  DeniedActs denied_acts;
  // A call that shows it comes from within the daemon, which has found its InsidePeer itself. Random, so that no client can
  // show it. Empty: there are no such calls.
  std::string inside_key;
  // For so long after its last use a client id counts, as the engine remembers it.
  Milliseconds client_retention{3'600'000};
};

// Where a call comes from: "ipv4:192.0.2.1:4711".
std::string PeerOf(const AccessControl& access, const grpc::ServerContext& context);

class Caller {
 public:
  // Takes in who calls. Refused: UNAUTHENTICATED, the same for all causes; then the rest below may
  // not be asked. `access` and `context` must stay for the calls of Again.
  Problem Identify(AccessControl* access, const grpc::ServerContext* context);
  // As Identify, if the access file has changed since.
  Problem Again();
  bool Changed() const { return access_->policy != policy_; }

  // Without an access file all below is allowed, and nothing is counted.
  bool May(Verbs verbs, std::string_view semaphore) const {
    return identity_ == nullptr || identity_->May(verbs, semaphore);
  }
  // May a request that needs this verb make the semaphore by its first use?
  bool MayCreate(Verb verb, std::string_view semaphore) const {
    return identity_ == nullptr || identity_->MayCreate(verb, semaphore);
  }
  // Refused: PERMISSION_DENIED, whether the semaphore exists or not.
  Problem Check(Verbs verbs, std::string_view semaphore) const;
  Problem CheckUnder(Verbs verbs, std::string_view prefix) const;
  // Where it may do one of `verbs` under `prefix`, as Identity::Under.
  std::vector<std::string> Under(Verbs verbs, std::string_view prefix) const;

  // In whose name a command names a lease or a ticket of the semaphore (ReleaseCommand::caller): the caller's,
  // unless the caller administers the semaphore.
  std::string NameAt(std::string_view semaphore) const;
  // May the caller name what belongs to `owner`? Empty: that is not known, and every caller may.
  bool MayName(std::string_view owner, std::string_view semaphore) const {
    return !IsAnothers(owner, NameAt(semaphore));
  }
  // May the caller see the secrets of what belongs to `owner`? The owner may, unless it is the
  // anonymous identity, which many clients share.
  bool MaySee(std::string_view owner) const;

  // Takes `more` of its quotas; `less` of what it has is given back for it. Null without an access
  // file.
  Problem Take(const Usage& more, ChargePtr* charge, const Usage& less = Usage()) const;
  // The same without a check of the quotas: for claims that exist already.
  ChargePtr Keep(const Usage& usage) const;

  // Two identities' clients of the same id are two clients. Then as Use.
  Problem Scope(std::string* client_id) const;
  // The same of the id of one request. A one-shot id counts as no client.
  Problem Scope(Requester* requester) const;
  // Uses the client id, as Scope made it, for what the engine will remember. Refused: it is one
  // more than the caller's quota. An empty one is not counted.
  Problem Use(std::string_view client_id) const;
  // A sign of life of the stream that was opened with this id: if it counts, it goes on to.
  void StillUses(std::string_view client_id) const;

  // What the command makes belongs to the caller, and counts to the caller's quotas.
  template <typename AnyCommand>
  void Own(AnyCommand* command) const {
    command->owner = name();
    if (tenant_ != nullptr) command->quotas = tenant_->quotas.made;
  }

  std::string Peer() const { return PeerOf(*access_, *context_); }
  const TenantPtr& tenant() const { return tenant_; }
  // Null without an access file.
  const Identity* identity() const { return identity_; }
  // Empty without an access file.
  std::string_view name() const {
    return identity_ == nullptr ? std::string_view() : std::string_view(identity_->name());
  }

 private:
  // nullptr: `kind` says why.
  const Identity* Find(UnknownKind* kind) const;
  // Counts a call that is refused, and logs it now and then.
  Refusal Unknown(UnknownKind kind) const;
  bool CountsClients() const {
    return tenant_ != nullptr && tenant_->quotas.clients != Quotas::kNone;
  }

  AccessControl* access_ = nullptr;
  const grpc::ServerContext* context_ = nullptr;
  std::shared_ptr<const AccessPolicy> policy_;  // Keeps the identity.
  const Identity* identity_ = nullptr;
  TenantPtr tenant_;
};

// ---- Which verbs the requests need, and what their answers may show ----
// docs/security.md as code, once for the calls of all shapes.

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
