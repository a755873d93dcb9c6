// Who signs: found as every AWS tool finds it. In this order: AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) of the environment; the profile of the shared
// credentials and config files; the container's endpoint; the instance's metadata, version 2.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace semaphored::dynamodb {

struct Credentials {
  std::string access_key_id;
  std::string secret_access_key;
  std::string session_token;  // Empty: none.
};

// Shared by the lanes; any thread. Never logged, never in an error.
class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  // Those that are good now; those that run out are fetched anew before they do, by one thread,
  // while the others go on with what is still good. Blocks for 2 s at most, where something has to
  // be fetched. UNAUTHENTICATED: none were found, and where they were looked for.
  virtual absl::StatusOr<Credentials> Get() = 0;
};

// `profile` may be empty.
std::shared_ptr<CredentialSource> FindCredentials(const std::string& profile);

}  // namespace semaphored::dynamodb
