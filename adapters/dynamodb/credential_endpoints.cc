// Credentials that a container's or an instance's own endpoint gives, for some hours.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/common/http_target.h"
#include "adapters/dynamodb/credential_places.h"
#include "adapters/dynamodb/fetch.h"
#include "adapters/steady_clock.h"
#include "nlohmann/json.hpp"

namespace semaphored::dynamodb {
namespace {

using nlohmann::json;

// Where there is no instance, no service answers: the attempt must not take the whole time.
constexpr std::chrono::milliseconds kPresenceTimeout{1000};

absl::StatusOr<Found> ReadFound(const std::string& who, const HttpAnswer& fetched) {
  const json body = json::parse(fetched.body, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object()) return NoAnswer(who, "its answer is not JSON");
  const std::string code = JsonText(body, "Code");
  if (!code.empty() && code != "Success") return NoAnswer(who, code);
  Found found;
  found.credentials.access_key_id = JsonText(body, "AccessKeyId");
  found.credentials.secret_access_key = JsonText(body, "SecretAccessKey");
  found.credentials.session_token = JsonText(body, "Token");
  if (found.credentials.access_key_id.empty() || found.credentials.secret_access_key.empty())
    return NoAnswer(who, "there are none in its answer");
  found.lifetime = LifetimeUntil(JsonText(body, "Expiration"), UnixTimeOfHttpDate(fetched.header));
  return found;
}

// The token may be renewed in its file at any time. Empty: none is asked for.
absl::StatusOr<std::string> ContainerToken(const Environment& environment) {
  std::string token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or("");
  const std::string path = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").value_or("");
  if (!path.empty()) {
    std::ifstream file(path);
    token.clear();
    if (!file || !std::getline(file, token))
      return absl::UnauthenticatedError(
          absl::StrCat("dynamodb: no credentials: AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE ", path,
                       " cannot be read"));
  }
  token = std::string(absl::StripAsciiWhitespace(token));
  if (token.find_first_of("\r\n") != std::string::npos)
    return absl::UnauthenticatedError(
        "dynamodb: no credentials: AWS_CONTAINER_AUTHORIZATION_TOKEN has more than one line");
  return token;
}

}  // namespace

std::string JsonText(const nlohmann::json& body, const char* name) {
  const auto found = body.find(name);
  return found != body.end() && found->is_string() ? found->get<std::string>() : "";
}

absl::Status NoAnswer(const std::string& who, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("dynamodb: no credentials: ", who, " did not give any: ", why));
}

std::optional<std::chrono::seconds> LifetimeUntil(const std::string& expiration,
                                                  std::optional<int64_t> now_unix_s) {
  std::tm parts{};
  if (!now_unix_s || strptime(expiration.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr)
    return std::nullopt;
  return std::chrono::seconds(timegm(&parts) - *now_unix_s);
}

absl::StatusOr<Found> FindInContainer(const Lookup& lookup) {
  const Environment& environment = lookup.environment;
  const std::string relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").value_or("");
  std::string address = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI").value_or("");
  if (!relative.empty()) address = absl::StrCat("http://169.254.170.2", relative);
  if (address.empty())
    return absl::NotFoundError("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and _FULL_URI are not set");
  if (!MayCarrySecrets(address))
    return absl::UnauthenticatedError(
        "dynamodb: no credentials: AWS_CONTAINER_CREDENTIALS_FULL_URI must begin with https://, or "
        "name this machine or the container's own endpoint");
  const absl::StatusOr<std::string> token = ContainerToken(environment);
  if (!token.ok()) return token.status();
  std::vector<std::string> headers;
  if (!token->empty()) headers.push_back(absl::StrCat("Authorization: ", *token));
  const absl::StatusOr<HttpAnswer> fetched =
      Fetch({.method = "GET", .address = address, .headers = headers, .body = ""}, lookup.deadline);
  if (!fetched.ok())
    return NoAnswer("the container's endpoint", std::string(fetched.status().message()));
  if (fetched->http_status != 200)
    return NoAnswer("the container's endpoint", absl::StrCat("HTTP ", fetched->http_status));
  return ReadFound("the container's endpoint", *fetched);
}

absl::StatusOr<Found> FindInInstance(const Lookup& lookup) {
  const Environment& environment = lookup.environment;
  if (absl::AsciiStrToLower(environment("AWS_EC2_METADATA_DISABLED").value_or("")) == "true")
    return absl::NotFoundError("the instance's metadata: AWS_EC2_METADATA_DISABLED is set");
  std::string base = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or("");
  if (base.empty()) {
    const std::string mode = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").value_or("");
    base =
        absl::EqualsIgnoreCase(mode, "ipv6") ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
  }
  base = std::string(absl::StripSuffix(base, "/"));
  const absl::StatusOr<HttpAnswer> token =
      Fetch({.method = "PUT",
             .address = HttpTarget("/latest/api/token").UrlAt(base),
             .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 300", "Content-Length: 0"},
             .body = ""},
            std::min(lookup.deadline, SteadyClock::now() + kPresenceTimeout));
  if (!token.ok())
    return absl::NotFoundError(
        absl::StrCat("the instance's metadata is not reached: ", token.status().message()));
  if (token->http_status != 200)
    return absl::NotFoundError(absl::StrCat(
        "the instance's metadata, version 2, gives no token: HTTP ", token->http_status));
  const std::vector<std::string> headers = {
      absl::StrCat("X-aws-ec2-metadata-token: ",
                   absl::string_view(token->body).substr(0, token->body.find_first_of("\r\n")))};
  const auto roles = [&base](absl::string_view role) {
    return HttpTarget("/latest/meta-data/iam/security-credentials/", {role.data(), role.size()})
        .UrlAt(base);
  };
  const absl::StatusOr<HttpAnswer> role = Fetch(
      {.method = "GET", .address = roles(""), .headers = headers, .body = ""}, lookup.deadline);
  if (!role.ok()) return NoAnswer("the instance's metadata", std::string(role.status().message()));
  const std::string name(
      absl::StripAsciiWhitespace(absl::string_view(role->body).substr(0, role->body.find('\n'))));
  if (role->http_status == 404 || (role->http_status == 200 && name.empty()))
    return absl::NotFoundError("the instance has no role");
  if (role->http_status != 200)
    return NoAnswer("the instance's metadata", absl::StrCat("HTTP ", role->http_status));
  const absl::StatusOr<HttpAnswer> found = Fetch(
      {.method = "GET", .address = roles(name), .headers = headers, .body = ""}, lookup.deadline);
  if (!found.ok())
    return NoAnswer("the instance's metadata", std::string(found.status().message()));
  if (found->http_status != 200)
    return NoAnswer("the instance's metadata", absl::StrCat("HTTP ", found->http_status));
  return ReadFound("the instance's metadata", *found);
}

}  // namespace semaphored::dynamodb
