// What people and other clients of Consul have done to a semaphore's keys: the store puts it right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/consul/commit.h"
#include "adapters/consul/store.h"

namespace semaphored::consul {

// Made for one call. All calls block for some requests.
class ConsulStore::Mender {
 public:
  explicit Mender(ConsulStore* store)
      : store_(store), client_(store->client_), keys_(store->keys_) {}

  // Puts the record and our places right, if it is for us to do, by as many transactions as it takes;
  // reads the folder again.
  absl::Status Mend(Folder* folder);
  // What a commit cannot do beside all else. False: another daemon was first.
  absl::StatusOr<bool> MakePlaces(const Writer::Lacking& lacking);
  // As the recipe does when it meets them. What is left, or may not be removed, is looked for the next time.
  void RemoveDeadContenders(const Folder& folder);

  // As the store's.
  absl::StatusOr<std::optional<ledger::Pruned>> Repair(const std::string& name);
  absl::StatusOr<std::optional<ledger::Adoptable>> Adopt(const std::string& name, uint32_t limit);

 private:
  absl::Status ReadAgain(Folder* folder);
  // The index at which it landed. nullopt: others were first.
  absl::StatusOr<std::optional<uint64_t>> Send(const Writer& writer);
  // Removes the record, if it still stands as it was read; reads the folder again.
  absl::Status RemoveRecord(Folder* folder);
  // What Adopt would do with the folder as it is.
  ledger::Adoptable FindAdoptable(const Folder& folder) const;
  // Writes `record` in place of the folder's, if that still stands. False: it was written meanwhile.
  absl::StatusOr<bool> ReplaceRecord(const Folder& folder, const LockRecord& record);
  // Goes on with those tickets that are there, and makes dead letters of payloads that are left;
  // `mended`: how many. FAILED_PRECONDITION: a person has to look first, and why.
  absl::Status MendTickets(Folder* folder, uint32_t* mended);
  // Payloads whose tickets are not in the folder, with their sizes: as many as fit a transaction.
  absl::StatusOr<std::vector<std::pair<Id, uint32_t>>> LonePayloads(const Folder& folder);

  ConsulStore* const store_;
  Client& client_;
  const Keys& keys_;
};

}  // namespace semaphored::consul
