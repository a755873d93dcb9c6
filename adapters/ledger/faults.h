// How far a failure of the engine reaches, by its code.
#pragma once

#include "absl/status/status.h"

namespace semaphored::ledger {

// What is wrong with one semaphore's things in the engine, and with no other's.
inline bool ConcernsOneOnly(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsUnimplemented(status) || absl::IsInternal(status) ||
         absl::IsOutOfRange(status) || absl::IsDeadlineExceeded(status);
}

// A commit failed, and would fail each time: the reason is in what it was to write, or in the rows that
// it was to change. Not an outage, a full disk, a deadline, nor that this node must not go on.
inline bool LiesInData(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsInternal(status) || absl::IsInvalidArgument(status) ||
         absl::IsOutOfRange(status) || absl::IsUnimplemented(status);
}

}  // namespace semaphored::ledger
