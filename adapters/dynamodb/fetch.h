// Small answers of the machine's own helpers over HTTP, such as credentials.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"

namespace semaphored::dynamodb {

struct Fetched {
  int http_status = 0;
  std::string body;
  std::string date;  // The answer's Date; empty: none.
};

// Past any proxy; redirections are not followed. Blocks, until `deadline` of the steady clock at
// most. UNAVAILABLE: no answer came, and why.
absl::StatusOr<Fetched> Fetch(const char* method, const std::string& address,
                              const std::vector<std::string>& headers, SteadyTime deadline);

}  // namespace semaphored::dynamodb
