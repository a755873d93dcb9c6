// A change notice, sent with NOTIFY: `<semaphore> <revision>`, and after it, where it says what has
// changed, ` <seal> <tokens> <details>`. <details> is JSON; <tokens> are those that the batch drew: the
// database writes them there, since the daemon does not know them before the commit.
//
// Any role of a database may send, and hear, any notification. So the seal is made of the rest with
// a secret that only daemons can read (store.secret, adapters/common/seal.h). And a message holds nothing by which a lease could be given back.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/change_notice.h"

namespace semaphored::postgres {

// Leases that a batch grants at most, if its notice names one: a message holds 8,000 bytes.
inline constexpr size_t kTokensTold = 64;

// The <details> of a batch about one of its semaphores; empty: there is none, or it is too much.
// `grants` gives, from 1, the place of each lease that the batch grants among the tokens that it
// draws.
std::string WriteDetails(const ledger::Transaction& transaction,
                         const ledger::SemaphoreDelta& delta,
                         const absl::flat_hash_map<Id, size_t>& grants);

// The details are <seal> <tokens> <details>.
ledger::ChangeNotice ReadMessage(const std::string& message);

// nullopt: there is none in it, none that can be read, or none of a daemon.
std::optional<ledger::ChangeDetails> ReadDetails(const ledger::ChangeNotice& notice,
                                                 const std::string& secret);

}  // namespace semaphored::postgres
