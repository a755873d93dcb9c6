// What a lane knows, for the canonical form of a world and for the checks. Reads only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "adapters/ledger/inside.h"

namespace semaphored::ledger {

class LedgerProbe {
 public:
  explicit LedgerProbe(const Adapter& adapter) : inside_(InsideOf(adapter)) {}

  const LedgerState& state() const { return inside_.core.state; }
  // All that there is, if the store owns its state.
  bool Loaded(const std::string& name) const {
    return inside_.mirror != nullptr && inside_.mirror->IsLoaded(name);
  }
  bool ToServe(const std::string& name) const {
    return inside_.core.serving.names().contains(name);
  }
  bool IsTouched(const std::string& name) const { return inside_.core.serving.IsTouched(name); }
  bool StoodStill(const std::string& name) const {
    return inside_.mirror != nullptr && inside_.mirror->StoodStill(name);
  }
  // The revision at which an intention was last seen; 0: none was.
  uint64_t IntentionSeen(const std::string& name) const {
    return inside_.mirror == nullptr ? 0 : inside_.mirror->IntentionSeen(name);
  }
  bool in_doubt() const { return inside_.unsettled != nullptr; }
  // Commands whose fate is not known; a commit without commands can be in doubt, too.
  size_t commands_in_doubt() const { return in_doubt() ? inside_.unsettled->batch.size() : 0; }
  const std::vector<Event>& found_events() const { return inside_.core.outbox.waiting_events(); }
  EndCause EndOf(const Id& claim) const { return inside_.core.ends.Find(claim); }
  // The highest sequence number that the lane knows to have a row; nullopt: it does not know the client.
  std::optional<uint64_t> SequenceHigh(const std::string& client_id) const {
    return inside_.core.requests.SequenceHigh(client_id);
  }

 private:
  Inside inside_;
};

}  // namespace semaphored::ledger
