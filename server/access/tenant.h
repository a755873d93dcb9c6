// How much an identity has of this daemon now, and its quotas. On one thread, the reactor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/access/access.h"
#include "server/base/clock.h"
#include "server/base/reason.h"

namespace semaphored {

struct Usage {
  uint64_t permits = 0;
  uint64_t waiters = 0;
  uint64_t sessions = 0;
  friend bool operator==(const Usage&, const Usage&) = default;
};

// The client ids that were used of late, and when.
class RecentClients {
 public:
  bool Has(std::string_view id) const { return by_id_.contains(id); }
  void Use(std::string_view id, SteadyTime now);
  // Those that were not used since.
  void ForgetUntil(SteadyTime then);
  void Clear();
  size_t size() const { return by_use_.size(); }

 private:
  struct Client {
    std::string id;
    SteadyTime used_at;
  };

  std::list<Client> by_use_;                                                  // The latest last.
  absl::flat_hash_map<std::string_view, std::list<Client>::iterator> by_id_;  // By theirs.
};

// One for each identity's name, for as long as anything of it stands: also over a change of the
// access file, and when its identity has gone from there.
struct Tenant {
  std::string name;
  Quotas quotas;
  Usage usage;
  RecentClients clients;  // Empty without a quota of them.
};
using TenantPtr = std::shared_ptr<Tenant>;

// A part of a tenant's usage, given back when it goes.
class Charge {
 public:
  // Counts, whatever the quotas say: for what stands already.
  Charge(TenantPtr tenant, Usage usage);
  ~Charge();
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  const TenantPtr& tenant() const { return tenant_; }
  const Usage& usage() const { return usage_; }
  // From now on this much instead.
  void Set(Usage usage);

 private:
  TenantPtr tenant_;
  Usage usage_;
};
using ChargePtr = std::shared_ptr<Charge>;

// Empty: null.
inline std::string_view TenantName(const ChargePtr& charge) {
  return charge == nullptr ? std::string_view() : std::string_view(charge->tenant()->name);
}

// Whether `more` is within the tenant's quotas when `less` of its usage is given back for it. The
// refusal is RESOURCE_EXHAUSTED, QUOTA, and names the quota.
std::optional<Refusal> CheckQuotas(const Tenant& tenant, const Usage& more,
                                   const Usage& less = Usage());

// Uses the client id, which counts for `retention` from its last use. Refused, as by CheckQuotas:
// it is not among those that count, and they are as many as may be. REQUIRES: a quota of clients.
std::optional<Refusal> TakeClient(Tenant* tenant, std::string_view client_id, SteadyTime now,
                                  Milliseconds retention);

class Tenants {
 public:
  // The identity's own, with its quotas as they are now.
  TenantPtr Of(const Identity& identity);
  // The access file has changed: quotas are taken over, and those of whom nothing stands are
  // forgotten; but not the clients of who is still in the file.
  void Renew(const AccessPolicy& policy);

 private:
  absl::flat_hash_map<std::string, TenantPtr> tenants_;
};

}  // namespace semaphored
