// Forgets the requests of clients that have been silent for long: no other code would, when the daemon
// that they were with is gone.
//
// A client counts as silent when none of its blocks has been written between two looks that are
// `retention` apart on this daemon's steady clock, and none of its claims waits or stands. The blocks
// are then deleted, under the condition that they still stand as they stood; a client that is back
// meanwhile loses none.
//
// A one-shot request is one of a client of its own (adapters/common/client_names.h), which makes no
// other: it counts as silent in the same way. Its daemon removes it sooner, if it lives.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/consul/client.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/transaction_request.h"

namespace semaphored::consul {

class RequestSweep {
 public:
  RequestSweep(const Keys* keys, std::chrono::milliseconds retention)
      : keys_(keys), retention_(retention) {}

  // When it is time: four times in `retention`. Blocks for a request for each sixty clients, and
  // for some for each that is forgotten, of whom there are a hundred at most. After an error it is time
  // again in a minute.
  absl::Status SweepIfDue(Client* client, SteadyTime now);

 private:
  struct Seen {
    uint64_t index = 0;  // Of the newest block.
    SteadyTime since{};
    // Of a one-shot request whose row says that its claim waits or stands: there was none at `since`.
    bool claim_is_gone = false;
  };

  absl::Status Sweep(Client* client, SteadyTime now);
  // Removes one-shot requests that are in their last state.
  absl::Status Look(Client* client, const std::vector<std::string>& newest, SteadyTime now,
                    std::vector<std::string>* silent);
  absl::Status Forget(Client* client, const std::string& under, SteadyTime now);
  // Deletes these keys if they stand as they stood.
  static absl::Status Delete(Client* client, const std::vector<Entry>& entries);
  // Whether a claim of these blocks' rows waits or stands, or cannot be looked for.
  absl::StatusOr<bool> HasClaims(Client* client, const std::vector<Entry>& blocks) const;

  const Keys* const keys_;
  const std::chrono::milliseconds retention_;
  std::map<std::string, Seen> seen_;  // By what the keys of a client begin with.
  SteadyTime sweep_at_{};
};

}  // namespace semaphored::consul
