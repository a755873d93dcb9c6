// Recalls that daemons ask of each other. A lease is known to its own daemon alone, so a daemon sends what is wanted to
// all, sealed (sealing.h), over the exchange that has the change notices, and each daemon looks among its own leases.
//
// Where a limit was lowered and the leases of the sending daemon do not suffice, the others give back as many as are
// missing: those on the highest slots that are left. All see alike which these are, once the free tokens have been
// taken out; so they wait a moment before they choose.
//
// Used by the thread of the connections.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "adapters/common/upkeep.h"
#include "adapters/ledger/state/permits.h"
#include "adapters/rabbitmq/sealing.h"
#include "adapters/rabbitmq/token_broker.h"
#include "adapters/rabbitmq/used_semaphores.h"
#include "adapters/steady_clock.h"

namespace semaphored::rabbitmq {

struct AskedOfAll {
  ledger::AskedRecall wanted;
  std::set<uint32_t> slots_of_sender;  // These are not meant: the sender recalls its own.
};
// Pure functions.
nlohmann::json WriteAsked(const AskedOfAll& asked);
// nullopt: a later version's, or none of ours.
std::optional<AskedOfAll> ReadAsked(const nlohmann::json& text);

// The claims whose leases are on the highest slots: as many as there are tokens too many, and no more than
// wanted.leases_max.
std::vector<Id> ChooseLeases(const AskedOfAll& asked, const StoredSemaphore& stored,
                             const absl::flat_hash_map<Id, UsedTokens::Held>& held);

class AskedRecalls {
 public:
  // All outlive it.
  AskedRecalls(Sealing* sealing, TokenBroker* broker, UsedSemaphores* used, Upkeep* upkeep)
      : sealing_(sealing), broker_(broker), used_(used), upkeep_(upkeep) {}

  // To all other daemons; blocks. An error is reported to the upkeep.
  void Send(const ledger::AskedRecall& wanted);
  // What came over the exchange. Of a shrinking this daemon's leases are chosen a moment later; with a thousand that
  // wait, one more is dropped. Does not block.
  void Hear(const std::string& text);
  // When to call Choose; SteadyTime::max(): nothing waits.
  SteadyTime Next() const;
  // Chooses where the moment has come. May read rows; what cannot be read is tried again.
  void Choose();
  bool any() const { return !asked_.empty(); }
  // What this daemon is asked for, since the last call.
  std::vector<ledger::AskedRecall> Take() { return std::exchange(asked_, {}); }

 private:
  struct Shrinking {
    AskedOfAll asked;
    SteadyTime choose_at{};
  };

  Sealing* const sealing_;
  TokenBroker* const broker_;
  UsedSemaphores* const used_;
  Upkeep* const upkeep_;
  std::vector<Shrinking> to_choose_;
  std::vector<ledger::AskedRecall> asked_;
};

}  // namespace semaphored::rabbitmq
