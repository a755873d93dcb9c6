// What stores that hand out permits have in common: they own their state, and remember requests for
// as long as the daemon lives, as they do claims.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "adapters/ledger/state/permits.h"
#include "adapters/ledger/store.h"

namespace semaphored::ledger {

class PermitStore : public LedgerStore, public PermitSource {
 public:
  bool owns_state() const override { return true; }
  PermitSource* permits() override { return this; }

  // Nothing: a semaphore is loaded when it is first spoken of.
  absl::StatusOr<Image> LoadAll() override { return Image(); }
  absl::StatusOr<std::vector<FoundRequest>> FindRequests(absl::Span<const NamedRequest> requests,
                                                         uint64_t window) override;

  // Not asked of a store that owns its state, or has no such guarantee: UNIMPLEMENTED.
  absl::StatusOr<std::vector<std::string>> Changed(
      absl::Span<const SemaphoreRow* const> semaphores) override;
  absl::StatusOr<SessionAt> LoadSession(const Id& session) override;
  absl::StatusOr<Hosted> HostedBy(absl::Span<const NodeRef> nodes) override;
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const std::string& after,
                                                 uint32_t rows_max) override;
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(const std::string& semaphore, uint64_t before,
                                                      uint32_t rows_max) override;

 protected:
  // For a commit that stands: its requests from now on, without those that it says are forgotten.
  void KeepRequests(const Transaction& transaction);

 private:
  // By client and sequence. The ledger bounds both: it raises a client's floor, and forgets
  // clients.
  std::map<uint32_t, std::map<uint64_t, RequestRow>> requests_;
};

}  // namespace semaphored::ledger
