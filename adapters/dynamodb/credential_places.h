// The places where credentials may be, each by itself.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/dynamodb/credentials.h"

namespace semaphored::dynamodb {

using Environment = std::function<std::optional<std::string>(const char* name)>;

struct Found {
  Credentials credentials;
  // When they run out, as time from now; nullopt: that is not said. May be past.
  std::optional<std::chrono::seconds> lifetime;
  bool may_change = true;  // False: looking again finds the same.
};

// All of them: NOT_FOUND: there are none, and where that was seen; look elsewhere. UNAUTHENTICATED:
// somebody meant them to be here, and they are not usable. UNAVAILABLE: who gives them did not
// answer well. No message has any part of them.

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
absl::StatusOr<Found> FindInEnvironment(const Environment& environment);

// AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) before AWS_CONFIG_FILE (~/.aws/config). An empty
// `profile`: AWS_PROFILE, or "default", which need not be there.
absl::StatusOr<Found> FindInSharedFiles(const std::string& profile, const Environment& environment);

// AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, with AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE
// or AWS_CONTAINER_AUTHORIZATION_TOKEN. Blocks, until `deadline` of the steady clock at most.
absl::StatusOr<Found> FindInContainer(const Environment& environment, SteadyTime deadline);

// The instance's role, from its metadata, version 2 (never 1). AWS_EC2_METADATA_DISABLED,
// AWS_EC2_METADATA_SERVICE_ENDPOINT, AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE. Blocks likewise.
absl::StatusOr<Found> FindInInstance(const Environment& environment, SteadyTime deadline);

}  // namespace semaphored::dynamodb
