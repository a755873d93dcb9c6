#include "server/web/session_routes.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/rpc/status.h"
#include "server/rpc/wire.h"
#include "server/web/checks.h"
#include "server/web/connect.h"

namespace semaphored::web {
namespace {

using nlohmann::json;

constexpr size_t kTokenBytesMax = 4'096;
// Of {"token": "…"}, with each byte as \u00XX. It is read on the server's thread, for callers that are not known yet.
constexpr size_t kSignInBytesMax = 6 * kTokenBytesMax + 64;

std::string CookieText(const Site& site, std::string_view value, int64_t max_age_s) {
  return absl::StrCat(site.cookie_name, "=", absl::string_view(value.data(), value.size()),
                      "; Path=/; HttpOnly; SameSite=Strict", site.by_tls ? "; Secure" : "",
                      "; Max-Age=", max_age_s);
}

void Show(const Site& site, const Visitor& visitor, const http::Reply& reply) {
  const std::shared_ptr<const AccessPolicy> policy = site.policy();
  const bool shows_any = !visitor.authorization.empty() || visitor.certificate != nullptr;
  const Identity* identity = shows_any ? IdentityOf(visitor, policy.get()) : nullptr;
  if (identity != nullptr && identity == policy->anonymous()) identity = nullptr;
  json shown = {{"accessControl", policy != nullptr},
                {"identity", identity == nullptr ? "" : identity->name()},
                {"writes", !site.CheckWrites(visitor).has_value()}};
  reply(JsonResponse(shown.dump(), /*takes_gzip=*/false));
}

Refusal MissingHeader() {
  return {absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied,
          absl::StrCat("the header ", kOwnPageHeader, " is missing"), "",
          absl::StrCat("send `", kOwnPageHeader, ": 1`")};
}

Refusal NoAccessFile() {
  return {absl::StatusCode::kFailedPrecondition, Reason::kNotSupported,
          "this daemon has no access file, so there is nothing to sign in to", "",
          "set access_file"};
}

// The token is tried by a call that every identity may make: so a wrong one is counted, and logged, as any other.
class SignInExchange : public std::enable_shared_from_this<SignInExchange> {
 public:
  SignInExchange(Site* site, Visitor visitor, std::string token, http::Reply reply)
      : site_(site),
        visitor_(std::move(visitor)),
        token_(std::move(token)),
        reply_(std::move(reply)) {}

  void Begin() {
    site_->gateway->Post([self = shared_from_this()] { self->Try(); });
  }

 private:
  void Try() {
    semaphore::v1::AdministerRequest list;
    list.mutable_list()->set_page_size(1);
    visitor_.authorization = {"Bearer " + token_};
    const GatewayCallPtr call = site_->gateway->Call(
        "Administer", visitor_, std::nullopt, Serialize(list),
        [self = shared_from_this()](const grpc::Status& status, const grpc::ByteBuffer&) {
          self->OnAnswer(status);
        });
    if (call == nullptr) reply_(ErrorResponse(ShuttingDown()));
  }

  void OnAnswer(const grpc::Status& status) {
    if (!status.ok()) return reply_(ErrorResponse(StatusOf(status)));
    const std::shared_ptr<const AccessPolicy> policy = site_->policy();
    const Identity* const identity = policy == nullptr ? nullptr : policy->ByToken(token_);
    if (identity == nullptr) return reply_(ErrorResponse(NoAccessFile()));
    const std::string cookie =
        site_->sign_ins.SignIn(token_, identity->name(), site_->clock->Now());
    http::Response response =
        JsonResponse(json{{"identity", identity->name()}}.dump(), /*takes_gzip=*/false);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(SignIns::kLongest);
    response.headers.emplace_back("Set-Cookie", CookieText(*site_, cookie, seconds.count()));
    reply_(std::move(response));
  }

  Site* site_;
  Visitor visitor_;
  const std::string token_;
  http::Reply reply_;
};

// nullopt: the body is not {"token": "…"}.
std::optional<std::string> TokenIn(const std::string& body) {
  if (body.size() > kSignInBytesMax) return std::nullopt;
  const json read = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!read.is_object() || read.size() != 1 || !read.contains("token") ||
      !read["token"].is_string())
    return std::nullopt;
  std::string token = read["token"];
  const bool good = !token.empty() && token.size() <= kTokenBytesMax &&
                    token.find_first_not_of(
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                        "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") == token.npos;
  return good ? std::optional(std::move(token)) : std::nullopt;
}

void SignIn(Site* site, const http::Request& request, Visitor visitor, http::Reply reply) {
  const auto refuse = [&reply](const Refusal& refusal) { reply(ErrorResponse(refusal)); };
  if (request.Count(kOwnPageHeader) == 0) return refuse(MissingHeader());
  if (site->policy() == nullptr) return refuse(NoAccessFile());
  std::optional<std::string> token = TokenIn(request.body);
  if (!token) return refuse(InvalidField("token", "must be a token, in {\"token\": \"…\"}"));
  std::make_shared<SignInExchange>(site, std::move(visitor), *std::move(token), std::move(reply))
      ->Begin();
}

void SignOut(Site* site, const http::Request& request, const http::Reply& reply) {
  if (request.Count(kOwnPageHeader) == 0) return reply(ErrorResponse(MissingHeader()));
  if (const auto cookie = CookieOf(request, site->cookie_name)) site->sign_ins.SignOut(*cookie);
  http::Response response;
  response.status = http::Status::kNoContent;
  response.headers.emplace_back("Set-Cookie", CookieText(*site, "", 0));
  reply(std::move(response));
}

}  // namespace

std::vector<Route> SessionRoutes(Site* site) {
  using Kind = Route::Kind;
  std::vector<Route> routes;
  routes.push_back({"/session", http::kReads, Kind::kReads,
                    [site](const http::Request&, const Visitor& visitor, const http::Reply& reply) {
                      Show(*site, visitor, reply);
                    }});
  routes.push_back({"/session", http::Method::kPost, Kind::kSigns,
                    [site](const http::Request& request, Visitor visitor, http::Reply reply) {
                      SignIn(site, request, std::move(visitor), std::move(reply));
                    }});
  routes.push_back({"/session", http::Method::kDelete, Kind::kSigns,
                    [site](const http::Request& request, const Visitor&, const http::Reply& reply) {
                      SignOut(site, request, reply);
                    }});
  return routes;
}

}  // namespace semaphored::web
