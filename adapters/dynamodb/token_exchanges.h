// Exchanges with the services of AWS that give credentials for some hours: the Security Token Service (STS), and
// IAM Identity Center (SSO).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "adapters/dynamodb/credential_places.h"

namespace semaphored::dynamodb {

// Each blocks until lookup.deadline at most. UNAUTHENTICATED: the service refused, and its error's code.
// UNAVAILABLE: it did not answer, or not well. AWS_ENDPOINT_URL_STS and AWS_ENDPOINT_URL_SSO are heeded.

struct RoleRequest {
  std::string role_arn;
  std::string session_name;  // Empty: one that names semaphored.
  std::string external_id;   // Empty: none is sent.
  std::string duration_s;    // Empty: the service's own, an hour.
  std::string region;
};

// AssumeRole, signed with `by`.
absl::StatusOr<Found> AssumeRole(const RoleRequest& request, const Credentials& by,
                                 const Lookup& lookup);
// AssumeRoleWithWebIdentity, with the token in the file, which may be renewed at any time.
absl::StatusOr<Found> AssumeRoleWithWebIdentity(const RoleRequest& request,
                                                const std::string& token_file,
                                                const Lookup& lookup);

struct SsoRequest {
  std::string region;
  std::string account_id;
  std::string role_name;
  std::string token_file;  // Of the cache that `aws sso login` writes.
};

// GetRoleCredentials, with the token that `aws sso login` has left. The token is not renewed here.
absl::StatusOr<Found> FindBySso(const SsoRequest& sso, const Lookup& lookup);

}  // namespace semaphored::dynamodb
