#include "server/access/tenant.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "absl/container/flat_hash_set.h"

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

void RecentClients::Use(std::string_view id, SteadyTime now) {
  if (const auto known = by_id_.find(id); known != by_id_.end()) {
    known->second->used_at = now;
    by_use_.splice(by_use_.end(), by_use_, known->second);
    return;
  }
  by_use_.push_back({std::string(id), now});
  by_id_.emplace(by_use_.back().id, std::prev(by_use_.end()));
}

void RecentClients::ForgetUntil(SteadyTime then) {
  while (!by_use_.empty() && by_use_.front().used_at <= then) {
    by_id_.erase(by_use_.front().id);
    by_use_.pop_front();
  }
}

void RecentClients::Clear() {
  by_id_.clear();
  by_use_.clear();
}

std::optional<Refusal> TakeClient(Tenant* tenant, std::string_view client_id, SteadyTime now,
                                  Milliseconds retention) {
  RecentClients& clients = tenant->clients;
  if (!clients.Has(client_id)) {
    clients.ForgetUntil(now - retention);
    auto refusal = CheckQuota(*tenant, "client ids within client_retention", tenant->quotas.clients,
                              clients.size(), 1, 0);
    if (refusal) {
      refusal->advice =
          "use one client id for many requests, or ask without request_id, or have the quota "
          "raised";
      return refusal;
    }
  }
  clients.Use(client_id, now);
  return std::nullopt;
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
  absl::flat_hash_set<std::string_view> named;
  for (const auto& identity : policy.identities()) {
    named.insert(identity->name());
    const auto found = tenants_.find(identity->name());
    if (found == tenants_.end()) continue;
    Tenant& tenant = *found->second;
    tenant.quotas = identity->quotas();
    if (tenant.quotas.clients == Quotas::kNone) tenant.clients.Clear();
  }
  // What an identity that has gone still has is counted, in case it comes back.
  absl::erase_if(tenants_, [&](const auto& entry) {
    const auto& [name, tenant] = entry;
    const bool remembers = named.contains(name) && tenant->clients.size() > 0;
    return tenant.use_count() == 1 && !remembers;
  });
}

}  // namespace semaphored
