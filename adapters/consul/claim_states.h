// Whether the claim of a request waits, stands, or is gone. The document of its semaphore says so; the
// request's row says only that it was accepted, and how it ended.
#pragma once

#include "absl/types/span.h"
#include "adapters/consul/keys.h"
#include "adapters/consul/transaction_request.h"
#include "adapters/ledger/state/request.h"

namespace semaphored::consul {

// Operations that AskForClaim adds.
inline constexpr size_t kAskedForClaim = 2;

// Adds what must be read to know what has become of the row's claim.
void AskForClaim(const Keys& keys, const ledger::RequestRow& row, TransactionRequest* request);

// `entries`: of the answer to that, others are passed over. The row's state becomes kWaiting or
// kGranted; or kEnded, with the cause kEngineLost, if the semaphore knows nothing of the claim: its
// permits ended with their daemon, or its document was put back. If the document is not understood
// the row stays as it is. REQUIRES: the row is pinned, and was read with the entries.
void ReadClaimState(const Keys& keys, absl::Span<const Entry> entries, ledger::RequestRow* row);

}  // namespace semaphored::consul
