// Opens a DynamoDB store; see url.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/open.h"

namespace semaphored::dynamodb {

// As OpenEngine.
absl::StatusOr<std::unique_ptr<Engine>> OpenDynamo(const std::string& url);

}  // namespace semaphored::dynamodb
