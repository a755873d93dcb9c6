#include "server/core/tenant.h"

#include <fmt/format.h>

#include <algorithm>

namespace semaphored {
namespace {

std::optional<Refusal> CheckQuota(const Tenant& tenant, const char* what, uint64_t quota,
                                  uint64_t has, uint64_t more, uint64_t less) {
  if (more == 0) return std::nullopt;
  const uint64_t rest = has - std::min(has, less);
  if (rest <= quota && more <= quota - rest) return std::nullopt;
  return Refusal{absl::StatusCode::kResourceExhausted, Reason::kQuota,
                 fmt::format("the quota of {} is {} {}; it has {} and asks for {}", tenant.name,
                             quota, what, rest, more),
                 "", "give something back first, or have the quota raised"};
}

}  // namespace

Charge::Charge(TenantPtr tenant, Usage usage) : tenant_(std::move(tenant)) { Set(usage); }

Charge::~Charge() { Set({}); }

void Charge::Set(Usage usage) {
  Usage& all = tenant_->usage;
  all.permits += usage.permits - usage_.permits;
  all.waiters += usage.waiters - usage_.waiters;
  all.sessions += usage.sessions - usage_.sessions;
  usage_ = usage;
}

std::optional<Refusal> CheckQuotas(const Tenant& tenant, const Usage& more, const Usage& less) {
  const Quotas& quotas = tenant.quotas;
  const Usage& has = tenant.usage;
  auto refusal = CheckQuota(tenant, "permits, held and waited for", quotas.permits, has.permits,
                            more.permits, less.permits);
  if (refusal) return refusal;
  refusal = CheckQuota(tenant, "waiters", quotas.waiters, has.waiters, more.waiters, less.waiters);
  if (refusal) return refusal;
  return CheckQuota(tenant, "sessions", quotas.sessions, has.sessions, more.sessions,
                    less.sessions);
}

TenantPtr Tenants::Of(const Identity& identity) {
  TenantPtr& tenant = tenants_[identity.name()];
  if (tenant == nullptr) {
    tenant = std::make_shared<Tenant>();
    tenant->name = identity.name();
    tenant->quotas = identity.quotas();
  }
  return tenant;
}

void Tenants::Renew(const AccessPolicy& policy) {
  // What an identity that has gone still has is counted, in case it comes back.
  absl::erase_if(tenants_, [](const auto& entry) { return entry.second.use_count() == 1; });
  for (const auto& identity : policy.identities()) {
    const auto found = tenants_.find(identity->name());
    if (found != tenants_.end()) found->second->quotas = identity->quotas();
  }
}

}  // namespace semaphored
