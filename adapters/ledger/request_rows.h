// Where the rows of requests are read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "adapters/ledger/state/request.h"

namespace semaphored::ledger {

class RequestRows {
 public:
  virtual ~RequestRows() = default;

  // The rows of these requests, in this order. `too_old`: there is no row, but there may have been one: the sequence
  // number is below the client's floor, or a row with a number that is higher by `window` exists. Row and floor are
  // read at the same moment. The rows name clients by the numbers in `requests`. A one-shot request has no floor and no
  // window.
  struct FoundRequest {
    std::optional<RequestRow> row;
    bool too_old = false;
  };
  virtual absl::StatusOr<std::vector<FoundRequest>> FindRequests(
      absl::Span<const NamedRequest> requests, uint64_t window) = 0;
};

}  // namespace semaphored::ledger
