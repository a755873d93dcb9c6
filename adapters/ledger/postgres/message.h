// What one daemon tells another with NOTIFY: `<semaphore> <revision>`, and after it, where it says
// what has changed, ` <tokens> <news>`. <news> is JSON; <tokens> are those that the batch drew,
// written there by the database, since nobody else knows them before.
#pragma once

#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "adapters/ledger/news.h"

namespace semaphored::postgres {

// Leases that a batch grants at most, if it tells of one: a message holds 8,000 bytes.
inline constexpr size_t kTokensTold = 64;

// The <news> of a batch about one of its semaphores; empty: there is none, or it is too much.
// `grants` gives, from 1, the place of each lease that the batch grants among the tokens that it
// draws; `client_id` the names of clients by number.
std::string WriteNews(const ledger::Transaction& transaction, const ledger::SemaphoreDelta& delta,
                      const absl::flat_hash_map<Id, size_t>& grants,
                      const std::function<const std::string&(uint32_t)>& client_id);

// The details are <tokens> <news>.
ledger::Hint ReadMessage(const std::string& message);

// nullopt: there is none in it, or none that can be read. `client` gives clients their number.
std::optional<ledger::News> ReadNews(const ledger::Hint& hint,
                                     const std::function<uint32_t(const std::string&)>& client);

}  // namespace semaphored::postgres
