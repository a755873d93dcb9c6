// Opens a Consul store; see url.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/open.h"

namespace semaphored::consul {

// As OpenEngine.
absl::StatusOr<std::unique_ptr<Engine>> OpenConsul(const std::string& url);

// Removes all that stands under the prefix of the URL, and the sessions. For tests.
absl::Status RemoveAll(const std::string& url);

}  // namespace semaphored::consul
