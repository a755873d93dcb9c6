#include "adapters/dynamodb/token_exchanges.h"

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/common/http_target.h"
#include "adapters/common/url_options.h"
#include "nlohmann/json.hpp"

namespace semaphored::dynamodb {
namespace {

using boost::property_tree::ptree;
using nlohmann::json;

constexpr char kSts[] = "the Security Token Service";
constexpr char kSso[] = "IAM Identity Center";

absl::Status Refused(absl::string_view who, absl::string_view why) {
  return absl::UnauthenticatedError(
      absl::StrCat("dynamodb: no credentials: ", who, " refused: ", why));
}

// Of China's regions the services have names of their own.
std::string EndpointOf(const Environment& environment, const char* variable,
                       absl::string_view service, absl::string_view region) {
  std::string named = environment(variable).value_or("");
  while (!named.empty() && named.back() == '/') named.pop_back();
  if (!named.empty()) return named;
  return absl::StrCat("https://", service, ".", region, ".amazonaws.com",
                      absl::StartsWith(region, "cn-") ? ".cn" : "");
}

absl::Status CheckEndpoint(const char* variable, const std::string& address) {
  if (MayCarrySecrets(address)) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "dynamodb: no credentials: ", variable, " must begin with https://, or name this machine"));
}

// One line of a file that may be renewed at any time. Empty: there is none.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

// ---- STS ----

std::optional<ptree> ParseXml(const std::string& text) {
  try {
    std::istringstream stream(text);
    ptree tree;
    boost::property_tree::read_xml(stream, tree);
    return tree;
  } catch (const boost::property_tree::xml_parser_error&) {
    return std::nullopt;
  }
}

// "AccessDenied" and the like: what else an error says may show who asked for what.
std::string ErrorCodeOf(const HttpAnswer& fetched) {
  const std::optional<ptree> tree = ParseXml(fetched.body);
  const std::string code = tree ? tree->get("ErrorResponse.Error.Code", "") : "";
  return code.empty() ? absl::StrCat("HTTP ", fetched.http_status)
                      : absl::StrCat(code, " (HTTP ", fetched.http_status, ")");
}

// A clock that is wrong, or too many requests: others may come.
bool IsPassing(const HttpAnswer& fetched) {
  return fetched.http_status >= 500 || fetched.http_status == 429 ||
         absl::StrContains(fetched.body, "Throttling");
}

absl::StatusOr<Found> ReadSts(const std::string& act, const HttpAnswer& fetched) {
  if (fetched.http_status != 200) {
    const std::string why = ErrorCodeOf(fetched);
    return IsPassing(fetched) ? NoAnswer(kSts, why) : Refused(kSts, why);
  }
  const std::optional<ptree> tree = ParseXml(fetched.body);
  if (!tree) return NoAnswer(kSts, "its answer is not XML");
  const std::string place = absl::StrCat(act, "Response.", act, "Result.Credentials.");
  Found found;
  const auto value = [&](const char* name) {
    std::string text = tree->get(absl::StrCat(place, name), "");
    std::erase_if(text, [](unsigned char c) { return absl::ascii_isspace(c); });
    return text;
  };
  found.credentials.access_key_id = value("AccessKeyId");
  found.credentials.secret_access_key = value("SecretAccessKey");
  found.credentials.session_token = value("SessionToken");
  if (found.credentials.access_key_id.empty() || found.credentials.secret_access_key.empty())
    return NoAnswer(kSts, "there are none in its answer");
  found.lifetime = LifetimeUntil(tree->get(absl::StrCat(place, "Expiration"), ""),
                                 UnixTimeOfHttpDate(fetched.header));
  return found;
}

// A form's name and value; empty values are left out.
using Fields = std::vector<std::pair<std::string, std::string>>;

absl::StatusOr<Found> AskSts(const std::string& act, const RoleRequest& role, Fields fields,
                             const Credentials* signer, const Lookup& lookup) {
  const std::string endpoint =
      EndpointOf(lookup.environment, "AWS_ENDPOINT_URL_STS", "sts", role.region);
  if (absl::Status status = CheckEndpoint("AWS_ENDPOINT_URL_STS", endpoint); !status.ok())
    return status;
  fields.insert(fields.begin(),
                {{"Action", act},
                 {"Version", "2011-06-15"},
                 {"RoleArn", role.role_arn},
                 {"RoleSessionName", role.session_name.empty() ? "semaphored" : role.session_name},
                 {"DurationSeconds", role.duration_s}});
  FetchRequest request;
  request.method = "POST";
  request.address = endpoint + "/";
  request.headers = {"Content-Type: application/x-www-form-urlencoded; charset=utf-8"};
  for (const auto& [name, value] : fields) {
    if (!value.empty())
      absl::StrAppend(&request.body, request.body.empty() ? "" : "&", name, "=", Escape(value));
  }
  if (signer != nullptr) request.signer = *signer;
  request.scope = absl::StrCat(role.region, ":sts");
  request.by_proxy = true;
  const absl::StatusOr<HttpAnswer> fetched = Fetch(request, lookup.deadline);
  if (!fetched.ok()) return NoAnswer(kSts, std::string(fetched.status().message()));
  return ReadSts(act, *fetched);
}

// ---- SSO ----

absl::StatusOr<Found> ReadSso(const HttpAnswer& fetched) {
  const json body = json::parse(fetched.body, nullptr, /*allow_exceptions=*/false);
  const json keys = body.is_object() ? body.value("roleCredentials", json()) : json();
  if (!keys.is_object()) return NoAnswer(kSso, "there are none in its answer");
  Found found;
  found.credentials.access_key_id = JsonText(keys, "accessKeyId");
  found.credentials.secret_access_key = JsonText(keys, "secretAccessKey");
  found.credentials.session_token = JsonText(keys, "sessionToken");
  if (found.credentials.access_key_id.empty() || found.credentials.secret_access_key.empty())
    return NoAnswer(kSso, "there are none in its answer");
  const auto expiration = keys.find("expiration");  // Unix time in ms.
  const std::optional<int64_t> now_unix_s = UnixTimeOfHttpDate(fetched.header);
  if (expiration != keys.end() && expiration->is_number_integer() && now_unix_s)
    found.lifetime = std::chrono::seconds(expiration->get<int64_t>() / 1000 - *now_unix_s);
  return found;
}

}  // namespace

absl::StatusOr<Found> AssumeRole(const RoleRequest& request, const Credentials& by,
                                 const Lookup& lookup) {
  return AskSts("AssumeRole", request, {{"ExternalId", request.external_id}}, &by, lookup);
}

absl::StatusOr<Found> AssumeRoleWithWebIdentity(const RoleRequest& request,
                                                const std::string& token_file,
                                                const Lookup& lookup) {
  const std::string token = FirstLine(token_file);
  if (token.empty())
    return absl::UnauthenticatedError(absl::StrCat(
        "dynamodb: no credentials: the web identity token file ", token_file, " cannot be read"));
  return AskSts("AssumeRoleWithWebIdentity", request, {{"WebIdentityToken", token}}, nullptr,
                lookup);
}

absl::StatusOr<Found> FindBySso(const SsoRequest& sso, const Lookup& lookup) {
  std::ifstream file(sso.token_file);
  const json cached = json::parse(file, nullptr, /*allow_exceptions=*/false);
  const std::string token = cached.is_object() ? JsonText(cached, "accessToken") : "";
  if (token.empty() || absl::StrContains(token, '\n'))
    return absl::UnauthenticatedError(
        absl::StrCat("dynamodb: no credentials: there is no token in ", sso.token_file,
                     ": run `aws sso login`"));
  const std::string endpoint =
      EndpointOf(lookup.environment, "AWS_ENDPOINT_URL_SSO", "portal.sso", sso.region);
  if (absl::Status status = CheckEndpoint("AWS_ENDPOINT_URL_SSO", endpoint); !status.ok())
    return status;
  FetchRequest request;
  request.address = HttpTarget("/federation/credentials")
                        .Option("account_id", sso.account_id)
                        .Option("role_name", sso.role_name)
                        .UrlAt(endpoint);
  request.headers = {absl::StrCat("x-amz-sso_bearer_token: ", token)};
  request.by_proxy = true;
  const absl::StatusOr<HttpAnswer> fetched = Fetch(request, lookup.deadline);
  if (!fetched.ok()) return NoAnswer(kSso, std::string(fetched.status().message()));
  if (fetched->http_status == 401)
    return Refused(kSso, "the token is no longer good: run `aws sso login`");
  if (fetched->http_status != 200) {
    const std::string why = absl::StrCat("HTTP ", fetched->http_status);
    return IsPassing(*fetched) ? NoAnswer(kSso, why) : Refused(kSso, why);
  }
  return ReadSso(*fetched);
}

}  // namespace semaphored::dynamodb
