// How much an identity has of this daemon now, and its quotas. On one thread, the reactor's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/core/access.h"
#include "server/core/reason.h"

namespace semaphored {

struct Usage {
  uint64_t permits = 0;
  uint64_t waiters = 0;
  uint64_t sessions = 0;
  friend bool operator==(const Usage&, const Usage&) = default;
};

// One for each identity's name, for as long as anything of it stands: also over a change of the
// access file, and when its identity has gone from there.
struct Tenant {
  std::string name;
  Quotas quotas;
  Usage usage;
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

// Whether `more` is within the tenant's quotas when `less` of its usage is given back for it. The
// refusal is RESOURCE_EXHAUSTED, QUOTA, and names the quota.
std::optional<Refusal> CheckQuotas(const Tenant& tenant, const Usage& more,
                                   const Usage& less = Usage());

class Tenants {
 public:
  // The identity's own, with its quotas as they are now.
  TenantPtr Of(const Identity& identity);
  // The access file has changed: quotas are taken over, and those of whom nothing stands are
  // forgotten.
  void Renew(const AccessPolicy& policy);

 private:
  absl::flat_hash_map<std::string, TenantPtr> tenants_;
};

}  // namespace semaphored
