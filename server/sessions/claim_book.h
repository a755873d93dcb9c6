// The records of claims, by id. An answer that comes late finds no record, and is dropped. Single-threaded (the reactor's).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/sessions/records.h"

namespace semaphored {

class ClaimBook {
 public:
  using Records = absl::flat_hash_map<Id, std::unique_ptr<ClaimRecord>>;

  // Null: there is none, or no longer. Of a record that leads to another (ClaimRecord::leads_to): that other one.
  ClaimRecord* Find(const Id& id) {
    const auto found = records_.find(id);
    if (found == records_.end()) return nullptr;
    ClaimRecord* record = found->second.get();
    return record->leads_to.empty() ? record : Find(record->leads_to);
  }
  const ClaimRecord* Find(const Id& id) const { return const_cast<ClaimBook*>(this)->Find(id); }
  // A new record, which replaces one with this id. It stays until Remove. `session`: null, or the session that it belongs to,
  // which has its id from now on.
  ClaimRecord* Add(const Id& id, const std::string& semaphore, SessionRecord* session);
  // Removes the record, and what leads to it: from its session, too.
  void Remove(ClaimRecord* record);
  // Removes only what leads to the record.
  void RemoveLeadTo(ClaimRecord* record);

  // Those of one semaphore, sorted; they lead to no other. Goes through all records.
  std::vector<Id> At(const std::string& semaphore) const;
  // All, in no order.
  const Records& records() const { return records_; }

 private:
  Records records_;
};

}  // namespace semaphored
