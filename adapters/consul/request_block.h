// The rows of one block of requests (request_book.h), as the value of one key: JSON, short, since all
// of it is written with each row that changes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "adapters/ledger/state/request.h"

namespace semaphored::consul {

struct RequestBlock {
  // By sequence number. They name no client. A row that waits may have been granted since: a grant
  // does not write it (claim_states.h).
  std::map<uint64_t, ledger::RequestRow> rows;
  // Rows of it were forgotten: a sequence number without a row may have had one.
  bool closed = false;
  // The value is not understood, so there may be any row. It is closed, and never written.
  bool garbled = false;

  bool pinned() const;
  friend bool operator==(const RequestBlock&, const RequestBlock&) = default;
};

// REQUIRES: it is not garbled, and no two sequence numbers are further apart than 1,000.
std::string WriteRequestBlock(const RequestBlock& block);

RequestBlock ReadRequestBlock(const std::string& text);

}  // namespace semaphored::consul
