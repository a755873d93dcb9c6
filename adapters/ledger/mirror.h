// What one lane knows of a shared store: which semaphores its state has, which of them cannot be read,
// and what other daemons have changed since. It applies change notices, reads what they do not explain,
// and puts the difference into the outbox. Used by one lane.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/ledger/core.h"
#include "adapters/ledger/shared_store.h"

namespace semaphored::ledger {

class Mirror {
 public:
  // Both outlive it.
  Mirror(Core* core, SharedStore* store) : core_(core), store_(store) {}

  // Applies change notices, or reads the semaphores again that they are about.
  absl::Status Hear(const absl::StatusOr<std::vector<ChangeNotice>>& notices);
  // Reads these again, whatever is known of them.
  absl::Status Refresh(std::vector<std::string> names);
  // From here on IsReadInRun counts.
  void BeginRun() { read_in_run_.clear(); }
  // It was read since the last BeginRun.
  bool IsReadInRun(const std::string& name) const { return read_in_run_.contains(name); }
  // A session's row as the engine has it; nullptr: there is none. A session that this daemon hosts no
  // more is reported as moved.
  void SeeSession(const Id& id, SessionPtr session);

  // The state has it, or knows that it does not exist.
  bool IsLoaded(const std::string& name) const { return loaded_.contains(name); }
  const absl::flat_hash_set<std::string>& loaded() const { return loaded_; }
  // Drops it from the state. REQUIRES: it has no claims.
  void Forget(const std::string& name);
  // Drops the sessions of which this lane knows no claim: no notice would report their end.
  void ForgetSessions();
  // Drops the numbers of clients that no row in the state names.
  void ForgetNumbers();

  // True: this lane carries the intentions of the semaphore on. REQUIRES: it has intentions.
  bool CarriesOn(const SemaphoreRow& row) const;
  // Called once in a sweep: this lane takes over intentions that have made no progress since the last call.
  void LookAtIntentions();

  // It had the same intention, at the same revision, at the last call of LookAtIntentions.
  bool StoodStill(const std::string& name) const { return stood_still_.contains(name); }
  // The revision that it had at the last LookAtIntentions; 0: it had no intention then.
  uint64_t IntentionSeen(const std::string& name) const {
    const auto found = seen_intentions_.find(name);
    return found == seen_intentions_.end() ? 0 : found->second;
  }

 private:
  // True if nothing need be read.
  bool Learn(const ChangeNotice& notice);
  // Where requests wait there may be room now.
  void ServeLater(const std::string& name);
  void ExplainEnds(std::vector<Event>* events);

  Core* const core_;
  SharedStore* const store_;
  absl::flat_hash_set<std::string> loaded_;
  absl::flat_hash_set<std::string> read_in_run_;
  // Of LookAtIntentions: the revisions of semaphores with intentions, and those whose revision has not changed since.
  absl::flat_hash_map<std::string, uint64_t> seen_intentions_;
  absl::flat_hash_set<std::string> stood_still_;
};

}  // namespace semaphored::ledger
