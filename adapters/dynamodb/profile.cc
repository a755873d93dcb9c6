// What a profile of the shared files leads to. As AWS's own tools do, a profile gives credentials by the first of
// these that it names: another profile, keys, a source of the machine's, a web identity, a session of IAM Identity
// Center, a process. If it names a role too, they assume it.
#include <openssl/sha.h>

#include <array>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/dynamodb/credential_places.h"
#include "adapters/dynamodb/credential_process.h"
#include "adapters/dynamodb/shared_files.h"
#include "adapters/dynamodb/token_exchanges.h"

namespace semaphored::dynamodb {
namespace {

absl::Status Unusable(absl::string_view profile, absl::string_view why) {
  return absl::UnauthenticatedError(
      absl::StrCat("dynamodb: no credentials: the profile '", profile, "' ", why));
}

std::string RegionOf(const Section& section, const Lookup& lookup) {
  for (const std::string& region :
       {TextOf(section, "region"), lookup.environment("AWS_REGION").value_or(""),
        lookup.environment("AWS_DEFAULT_REGION").value_or("")}) {
    if (!region.empty()) return region;
  }
  return lookup.region;
}

RoleRequest RoleOf(const Section& section, const Lookup& lookup) {
  RoleRequest role;
  role.role_arn = TextOf(section, "role_arn");
  role.session_name = TextOf(section, "role_session_name");
  role.external_id = TextOf(section, "external_id");
  role.duration_s = TextOf(section, "duration_seconds");
  role.region = RegionOf(section, lookup);
  return role;
}

// The file that `aws sso login` writes is called after what it logged in to.
std::string SsoTokenFile(const std::string& key, const Lookup& lookup) {
  std::array<unsigned char, SHA_DIGEST_LENGTH> digest{};
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): OpenSSL's bytes.
  SHA1(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  std::string name;
  for (const unsigned char byte : digest) absl::StrAppend(&name, absl::Hex(byte, absl::kZeroPad2));
  return absl::StrCat(lookup.environment("HOME").value_or(""), "/.aws/sso/cache/", name, ".json");
}

class ProfileSearch {
 public:
  explicit ProfileSearch(const Lookup& lookup) : lookup_(lookup), files_(lookup.environment) {}

  // NOT_FOUND: there is no such profile, or it leads nowhere.
  absl::StatusOr<Found> Find(const std::string& name);
  const SharedFiles& files() const { return files_; }

 private:
  absl::StatusOr<Found> FindBase(const std::string& name, const Section& section);
  absl::StatusOr<Found> FindSource(const std::string& name, const std::string& source);
  absl::StatusOr<Found> FindSso(const std::string& name, const Section& section);

  const Lookup& lookup_;
  const SharedFiles files_;
  std::set<std::string> seen_;  // A chain of profiles ends.
};

absl::StatusOr<Found> ProfileSearch::Find(const std::string& name) {
  const std::optional<Section> section = files_.Profile(name);
  if (!section) return absl::NotFoundError(absl::StrCat("is not in ", files_.Names()));
  if (!seen_.insert(name).second) return Unusable(name, "leads back to itself");
  absl::StatusOr<Found> base = FindBase(name, *section);
  const std::string role = TextOf(*section, "role_arn");
  if (absl::IsNotFound(base.status()) && !role.empty())
    return Unusable(name,
                    "says role_arn, and not by whom the role is assumed: source_profile, "
                    "credential_source or web_identity_token_file");
  if (!base.ok() || role.empty() || section->count("web_identity_token_file") > 0) return base;
  if (section->count("mfa_serial") > 0)
    return Unusable(name, "says mfa_serial, which needs a person at each renewal");
  return AssumeRole(RoleOf(*section, lookup_), base->credentials, lookup_);
}

absl::StatusOr<Found> ProfileSearch::FindBase(const std::string& name, const Section& section) {
  const std::string source = TextOf(section, "source_profile");
  if (!source.empty() && source != name) {
    absl::StatusOr<Found> found = Find(source);
    if (!absl::IsNotFound(found.status())) return found;
    return Unusable(
        name, absl::StrCat("says source_profile, and ", source, " ", found.status().message()));
  }
  Found keys;
  keys.credentials.access_key_id = TextOf(section, "aws_access_key_id");
  keys.credentials.secret_access_key = TextOf(section, "aws_secret_access_key");
  keys.credentials.session_token = TextOf(section, "aws_session_token");
  const bool id = !keys.credentials.access_key_id.empty();
  const bool secret = !keys.credentials.secret_access_key.empty();
  if (id != secret)
    return Unusable(name, "has one of aws_access_key_id and aws_secret_access_key alone");
  if (id) return keys;
  if (const std::string from = TextOf(section, "credential_source"); !from.empty())
    return FindSource(name, from);
  const std::string token_file = TextOf(section, "web_identity_token_file");
  if (!token_file.empty()) {
    const RoleRequest role = RoleOf(section, lookup_);
    if (role.role_arn.empty())
      return Unusable(name, "says web_identity_token_file, and no role_arn");
    return AssumeRoleWithWebIdentity(role, token_file, lookup_);
  }
  if (section.count("sso_account_id") > 0 || section.count("sso_session") > 0)
    return FindSso(name, section);
  if (const std::string command = TextOf(section, "credential_process"); !command.empty())
    return FindByProcess(command, lookup_);
  return absl::NotFoundError(absl::StrCat("has no keys in ", files_.Names()));
}

absl::StatusOr<Found> ProfileSearch::FindSource(const std::string& name,
                                                const std::string& source) {
  absl::StatusOr<Found> found = absl::UnknownError("");
  if (source == "Environment") {
    found = FindInEnvironment(lookup_);
  } else if (source == "EcsContainer") {
    found = FindInContainer(lookup_);
  } else if (source == "Ec2InstanceMetadata") {
    found = FindInInstance(lookup_);
  } else {
    return Unusable(name,
                    "has a credential_source that is not Environment, EcsContainer or "
                    "Ec2InstanceMetadata");
  }
  if (!absl::IsNotFound(found.status())) return found;
  return Unusable(name, absl::StrCat("says credential_source, and ", found.status().message()));
}

absl::StatusOr<Found> ProfileSearch::FindSso(const std::string& name, const Section& section) {
  const std::string session = TextOf(section, "sso_session");
  std::optional<Section> place = section;
  if (!session.empty()) place = files_.SsoSession(session);
  if (!place) return Unusable(name, absl::StrCat("says sso_session, and there is no ", session));
  SsoRequest request;
  request.region = TextOf(*place, "sso_region");
  request.account_id = TextOf(section, "sso_account_id");
  request.role_name = TextOf(section, "sso_role_name");
  const std::string key = session.empty() ? TextOf(section, "sso_start_url") : session;
  if (request.region.empty() || request.account_id.empty() || request.role_name.empty() ||
      key.empty())
    return Unusable(name,
                    "lacks one of sso_region, sso_account_id, sso_role_name and "
                    "sso_session or sso_start_url");
  request.token_file = SsoTokenFile(key, lookup_);
  return FindBySso(request, lookup_);
}

}  // namespace

absl::StatusOr<Found> FindByProfile(const std::string& profile, const Lookup& lookup) {
  std::string name = profile.empty() ? lookup.environment("AWS_PROFILE").value_or("") : profile;
  const bool meant = !name.empty();
  if (!meant) name = "default";
  ProfileSearch search(lookup);
  absl::StatusOr<Found> found = search.Find(name);
  if (!absl::IsNotFound(found.status())) return found;
  if (meant) return Unusable(name, found.status().message());
  return absl::NotFoundError(
      absl::StrCat("no profile 'default' with keys in ", search.files().Names()));
}

absl::StatusOr<Found> FindByWebIdentity(const Lookup& lookup) {
  const std::string token_file = lookup.environment("AWS_WEB_IDENTITY_TOKEN_FILE").value_or("");
  RoleRequest role = RoleOf({}, lookup);
  role.role_arn = lookup.environment("AWS_ROLE_ARN").value_or("");
  role.session_name = lookup.environment("AWS_ROLE_SESSION_NAME").value_or("");
  if (token_file.empty()) return absl::NotFoundError("AWS_WEB_IDENTITY_TOKEN_FILE is not set");
  if (role.role_arn.empty())
    return absl::UnauthenticatedError(
        "dynamodb: no credentials: AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not");
  return AssumeRoleWithWebIdentity(role, token_file, lookup);
}

absl::StatusOr<Found> FindInEnvironment(const Lookup& lookup) {
  Found found;
  found.may_change = false;
  found.credentials.access_key_id = lookup.environment("AWS_ACCESS_KEY_ID").value_or("");
  found.credentials.secret_access_key = lookup.environment("AWS_SECRET_ACCESS_KEY").value_or("");
  found.credentials.session_token = lookup.environment("AWS_SESSION_TOKEN").value_or("");
  const bool id = !found.credentials.access_key_id.empty();
  const bool secret = !found.credentials.secret_access_key.empty();
  if (id && secret) return found;
  if (id || secret)
    return absl::UnauthenticatedError(
        "dynamodb: no credentials: one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set, the "
        "other is not");
  return absl::NotFoundError("AWS_ACCESS_KEY_ID is not set");
}

}  // namespace semaphored::dynamodb
