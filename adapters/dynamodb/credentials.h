// Who signs: found as every AWS tool finds it. In this order: AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) of the environment; the web identity that
// AWS_WEB_IDENTITY_TOKEN_FILE names; the profile of the shared credentials and config files; the
// container's endpoint; the instance's metadata, version 2.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"

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
  // Those that are good now. Before they run out, one thread fetches new ones, while the others go
  // on with what is still good. A fetch blocks for 2 s at most; for 10 s where a profile or a web
  // identity leads to it. UNAUTHENTICATED: none were found, and where they were looked for, or
  // those found are not complete. UNAVAILABLE: the service that gives them did not answer.
  virtual absl::StatusOr<Credentials> Get() = 0;
  // The engine did not take these. True: Get() has others, or looks for others. False: they would
  // be the same, or have just been looked for: a daemon whose role was taken away does not flood
  // who gives them.
  virtual bool Refused(const Credentials& /*credentials*/) { return false; }
};

// What the search depends on, so that tests can give their own.
struct CredentialOptions {
  std::string profile;  // Named by the URL: then only that. Empty: AWS_PROFILE, or "default".
  // A variable of the environment; nullopt: not set. Called by any thread. Those that are set but
  // empty count as not set.
  std::function<std::optional<std::string>(const char* name)> environment;
  std::function<SteadyTime()> now;
  std::string region;  // Of the table.
};

// Searches at the first Get().
std::shared_ptr<CredentialSource> MakeCredentials(CredentialOptions options);

// In the environment of this process. `profile` may be empty; `region` is the table's.
std::shared_ptr<CredentialSource> FindCredentials(const std::string& profile,
                                                  const std::string& region);

}  // namespace semaphored::dynamodb
