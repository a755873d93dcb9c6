// The places where credentials may be, each by itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/dynamodb/credentials.h"
#include "adapters/dynamodb/fetch.h"
#include "nlohmann/json_fwd.hpp"

namespace semaphored::dynamodb {

using Environment = std::function<std::optional<std::string>(const char* name)>;

// What a search may use.
struct Lookup {
  Environment environment;
  std::string region;   // Of the table: where no other is named, its services are queried.
  SteadyTime deadline;  // Of the steady clock: it ends then at the latest.
};

struct Found {
  Credentials credentials;
  // When they run out, as time from now; nullopt: that is not said. May be past.
  std::optional<std::chrono::seconds> lifetime;
  bool may_change = true;  // False: looking again finds the same.
};

// All of them block until lookup.deadline at most. NOT_FOUND: there are none, and where that was seen; look
// elsewhere. UNAUTHENTICATED: the machine's owner meant them to be here, and they are not usable. UNAVAILABLE:
// what gives them did not answer well. No message has any part of them.

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
absl::StatusOr<Found> FindInEnvironment(const Lookup& lookup);

// AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN, AWS_ROLE_SESSION_NAME: a service account of EKS (IRSA) and the like.
absl::StatusOr<Found> FindByWebIdentity(const Lookup& lookup);

// What a profile of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE (~/.aws/config) leads
// to: keys, a role, a web identity, a session of IAM Identity Center, a process. An empty `profile`: AWS_PROFILE,
// or "default", which need not be there.
absl::StatusOr<Found> FindByProfile(const std::string& profile, const Lookup& lookup);

// AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, with AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE
// or AWS_CONTAINER_AUTHORIZATION_TOKEN.
absl::StatusOr<Found> FindInContainer(const Lookup& lookup);

// The instance's role, from its metadata, version 2 (never 1). AWS_EC2_METADATA_DISABLED,
// AWS_EC2_METADATA_SERVICE_ENDPOINT, AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE.
absl::StatusOr<Found> FindInInstance(const Lookup& lookup);

// ---- What several of them use ----

// The text of this name; empty: there is none. REQUIRES: an object.
std::string JsonText(const nlohmann::json& body, const char* name);

// "dynamodb: no credentials: WHO did not give any: WHY", UNAVAILABLE.
absl::Status NoAnswer(const std::string& who, const std::string& why);

// How long from `now_unix_s` to `expiration`, such as "2020-01-01T13:00:00Z"; nullopt: one of them is not there.
std::optional<std::chrono::seconds> LifetimeUntil(const std::string& expiration,
                                                  std::optional<int64_t> now_unix_s);

}  // namespace semaphored::dynamodb
