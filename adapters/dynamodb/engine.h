// Opens a DynamoDB store; see url.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/dynamodb/credentials.h"
#include "adapters/dynamodb/url.h"
#include "adapters/open.h"

namespace semaphored::dynamodb {

// As OpenEngine.
absl::StatusOr<std::unique_ptr<Engine>> OpenDynamo(const std::string& url);
// Likewise, with credentials of this source.
absl::StatusOr<std::unique_ptr<Engine>> OpenTable(Url url,
                                                  std::shared_ptr<CredentialSource> credentials);

}  // namespace semaphored::dynamodb
