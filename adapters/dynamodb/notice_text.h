// What one commit did to a semaphore, as text in a notice for another daemon: then it need not read
// the semaphore to go on with it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "adapters/ledger/change_notice.h"
#include "adapters/types.h"

namespace semaphored::dynamodb {

struct SentDetails {
  ledger::ChangeDetails details;
  // What the store must know of the semaphore as it then stands.
  uint64_t digest = 0;
  uint64_t history_number = 0;
  std::vector<Id> gone;
  std::vector<Id> let_in;
};

// Empty: there is more to tell than a notice has room for.
std::string WriteDetails(const ledger::Transaction& transaction,
                         const ledger::SemaphoreDelta& delta,
                         const std::function<uint64_t(const Lease&)>& token_of, uint64_t digest,
                         uint64_t history_number);

// nullopt: it is not understood, or there is none.
std::optional<SentDetails> ReadDetailsText(const ledger::ChangeNotice& notice);

}  // namespace semaphored::dynamodb
