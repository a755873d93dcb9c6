#include "server/rpc/caller.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/inside_peer.h"

namespace semaphored {
namespace {

constexpr std::string_view kScheme = "bearer ";
constexpr size_t kTokenBytesMax = 4096;
// Not in any identity's name.
constexpr char kScopeEnd = '!';

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// The id as one identity's: no other identity can make one that becomes the same.
Id ScopedId(const std::string& identity, const Id& one_shot) {
  const std::string text = identity + kScopeEnd + one_shot.Hex();
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  Id scoped;
  std::memcpy(&scoped.high, digest.data(), sizeof scoped.high);
  std::memcpy(&scoped.low, digest.data() + sizeof scoped.high, sizeof scoped.low);
  return scoped;
}

// Of the connection. nullptr: it is not guarded, or has ended.
std::shared_ptr<const guard::Peer> GuardedPeer(const AccessControl& access,
                                               const grpc::ServerContext& context) {
  return access.peers == nullptr ? nullptr : access.peers->Find(context.peer());
}

// Of a call from within the daemon; nullopt: it is none.
std::optional<InsidePeer> InsidePeerOf(const AccessControl& access,
                                       const grpc::ServerContext& context) {
  const std::string& key = access.inside_key;
  const auto found = context.client_metadata().find(kInsidePeerKey);
  if (key.empty() || found == context.client_metadata().end()) return std::nullopt;
  const auto& value = found->second;
  if (value.size() < key.size() || CRYPTO_memcmp(value.data(), key.data(), key.size()) != 0)
    return std::nullopt;
  return ParseInsidePeer({value.data() + key.size(), value.size() - key.size()});
}

// As TLS has verified it. Empty: the caller has shown none.
CertificateNames CertificateOf(const AccessControl& access, const grpc::ServerContext& context) {
  if (std::optional<InsidePeer> inside = InsidePeerOf(access, context))
    return std::move(inside->certificate);
  const std::shared_ptr<const guard::Peer> peer = GuardedPeer(access, context);
  return peer ? peer->certificate : CertificateNames();
}

Refusal Unauthenticated() {
  return {absl::StatusCode::kUnauthenticated, Reason::kUnauthenticated,
          "this daemon serves only clients that it knows", "",
          "show a token (metadata `authorization: Bearer TOKEN`) or a client certificate that "
          "stands in its access file"};
}

Refusal Denied(const Identity& identity, Verbs verbs, std::string_view where,
               std::string_view semaphore) {
  return {absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied,
          absl::StrCat(identity.name(), " may not ", verbs.Text(), " ", View(where)),
          std::string(semaphore),
          "ask the administrator of the daemon's access file for a rule, or for another identity"};
}

}  // namespace

std::string PeerOf(const AccessControl& access, const grpc::ServerContext& context) {
  if (std::optional<InsidePeer> inside = InsidePeerOf(access, context))
    return std::move(inside->address);
  const std::shared_ptr<const guard::Peer> peer = GuardedPeer(access, context);
  return peer ? peer->address : context.peer();
}

const Identity* Caller::Find(UnknownKind* kind) const {
  const auto& metadata = context_->client_metadata();
  const auto [first, last] = metadata.equal_range("authorization");
  if (first != last) {
    // A caller that shows a token has the token's identity, or none.
    const std::string_view value(first->second.data(), first->second.size());
    const bool alone = std::next(first) == last;
    if (!alone || value.size() > kTokenBytesMax ||
        !absl::StartsWithIgnoreCase(View(value), View(kScheme))) {
      *kind = UnknownKind::kMalformed;
      return nullptr;
    }
    *kind = UnknownKind::kToken;
    return policy_->ByToken(value.substr(kScheme.size()));
  }
  *kind = UnknownKind::kNothing;
  if (policy_->has_certificates()) {
    const CertificateNames names = CertificateOf(*access_, *context_);
    if (const Identity* identity = policy_->ByCertificate(names)) return identity;
    if (names != CertificateNames()) *kind = UnknownKind::kCertificate;
  }
  return policy_->anonymous();
}

Problem Caller::Identify(AccessControl* access, const grpc::ServerContext* context) {
  access_ = access;
  context_ = context;
  policy_ = access->policy;
  identity_ = nullptr;
  tenant_ = nullptr;
  if (policy_ == nullptr) return std::nullopt;
  UnknownKind kind{};
  const Identity* identity = Find(&kind);
  if (identity == nullptr) return Unknown(kind);
  identity_ = identity;
  tenant_ = access_->tenants.Of(*identity_);
  return std::nullopt;
}

Problem Caller::Again() {
  if (!Changed()) return std::nullopt;
  const std::string before(name());
  if (Problem problem = Identify(access_, context_)) return problem;
  // What hangs on a stream belongs to one identity.
  if (name() != before) return Unknown(UnknownKind::kChanged);
  return std::nullopt;
}

Refusal Caller::Unknown(UnknownKind kind) const {
  if (const auto line = access_->unknown.Add(kind, Peer(), access_->clock->Now()))
    spdlog::warn("{}", *line);
  return Unauthenticated();
}

Problem Caller::Check(Verbs verbs, std::string_view semaphore) const {
  if (May(verbs, semaphore)) return std::nullopt;
  return Denied(*identity_, verbs, absl::StrCat("at ", View(semaphore)), semaphore);
}

Problem Caller::CheckUnder(Verbs verbs, std::string_view prefix) const {
  if (identity_ == nullptr || identity_->MayUnder(verbs, prefix)) return std::nullopt;
  return Denied(*identity_, verbs,
                absl::StrCat("at all names that begin with '", View(prefix), "'"), "");
}

std::vector<std::string> Caller::Under(Verbs verbs, std::string_view prefix) const {
  if (identity_ == nullptr) return {std::string(prefix)};
  return identity_->Under(verbs, prefix);
}

std::string Caller::NameAt(std::string_view semaphore) const {
  return std::string(May(Verb::kAdminister, semaphore) ? std::string_view() : name());
}

bool Caller::MaySee(std::string_view owner) const {
  if (identity_ == nullptr) return true;
  return owner == name() && identity_ != policy_->anonymous();
}

Problem Caller::Take(const Usage& more, ChargePtr* charge, const Usage& less) const {
  if (tenant_ == nullptr) return std::nullopt;
  if (Problem problem = CheckQuotas(*tenant_, more, less)) return problem;
  *charge = Keep(more);
  return std::nullopt;
}

ChargePtr Caller::Keep(const Usage& usage) const {
  return tenant_ == nullptr ? nullptr : std::make_shared<Charge>(tenant_, usage);
}

Problem Caller::Scope(std::string* client_id) const {
  if (identity_ == nullptr || client_id->empty()) return std::nullopt;
  client_id->insert(0, identity_->name() + kScopeEnd);
  return Use(*client_id);
}

Problem Caller::Scope(Requester* requester) const {
  if (identity_ != nullptr && !requester->one_shot.empty())
    requester->one_shot = ScopedId(identity_->name(), requester->one_shot);
  return Scope(&requester->client_id);
}

Problem Caller::Use(std::string_view client_id) const {
  if (!CountsClients() || client_id.empty()) return std::nullopt;
  return TakeClient(tenant_.get(), client_id, access_->clock->Now(), access_->client_retention);
}

void Caller::StillUses(std::string_view client_id) const {
  if (CountsClients() && tenant_->clients.Has(client_id))
    tenant_->clients.Use(client_id, access_->clock->Now());
}

// ---- Which verbs the requests need, and what their answers may show ----

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
