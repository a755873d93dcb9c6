// What a lane knows, for the canonical form of a world and for the checks. Reads only.
#pragma once

#include "adapters/ledger/ledger_adapter_impl.h"

namespace semaphored::ledger {

struct LedgerProbe {
  const LedgerAdapter& adapter;

  const LedgerState& state() const { return adapter.state_; }
  bool Loaded(const std::string& name) const { return adapter.loaded_.contains(name); }
  bool ToServe(const std::string& name) const { return adapter.to_serve_.contains(name); }
  bool StoodStill(const std::string& name) const { return adapter.stood_still_.contains(name); }
  // The revision at which an intention was last seen; 0: none was.
  uint64_t IntentionSeen(const std::string& name) const {
    const auto found = adapter.others_intentions_.find(name);
    return found == adapter.others_intentions_.end() ? 0 : found->second;
  }
  bool in_doubt() const { return adapter.unknown_ != nullptr; }
  // Commands whose fate is not known; a commit without commands can be in doubt, too.
  size_t commands_in_doubt() const {
    return adapter.unknown_ == nullptr ? 0 : adapter.unknown_->batch.size();
  }
  const std::vector<Event>& found_events() const { return adapter.found_events_; }
  EndCause EndOf(const Id& claim) const { return adapter.ends_.Find(claim); }
  // The highest sequence number that the lane knows to have a row; nullopt: it does not know the client.
  std::optional<uint64_t> SequenceHigh(const std::string& client_id) const {
    auto& clients = const_cast<Clients&>(adapter.clients_);
    const Client* client = clients.Find(client_id);
    return client == nullptr ? std::nullopt : std::optional(client->sequence_high);
  }
};

}  // namespace semaphored::ledger
