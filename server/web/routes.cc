#include "server/web/routes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/web/checks.h"
#include "server/web/connect.h"

namespace semaphored::web {
namespace {

using Kind = Route::Kind;
using Routes = std::vector<Route>;

// gRPC takes nothing else in the value of metadata.
bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char each) { return each >= ' ' && each <= '~'; });
}

Visitor VisitorOf(Site* site, const http::Request& request) {
  Visitor visitor;
  visitor.peer = request.peer;
  visitor.certificate = request.certificate;
  for (const auto& [name, value] : request.headers) {
    if (name == "authorization")
      visitor.authorization.push_back(IsPrintable(value) ? value : "malformed");
    if (name == "traceparent" && IsPrintable(value)) visitor.traceparent = value;
  }
  if (!visitor.authorization.empty()) return visitor;
  const std::optional<std::string> cookie = CookieOf(request, site->cookie_name);
  if (!cookie) return visitor;
  const std::shared_ptr<const AccessPolicy> policy = site->policy();
  if (auto token = site->sign_ins.TokenOf(*cookie, policy.get(), site->clock->Now())) {
    visitor.authorization.push_back("Bearer " + *token);
    visitor.cookie = *cookie;
  }
  return visitor;
}

const Route* Find(const Routes& routes, const http::Request& request) {
  const auto found = std::ranges::find_if(routes, [&request](const Route& each) {
    return each.path == request.path && each.methods.Has(request.method);
  });
  return found == routes.end() ? nullptr : &*found;
}

Refusal NoToken() {
  return {
      absl::StatusCode::kUnauthenticated, Reason::kUnauthenticated,
      "this daemon serves only clients that it knows", "",
      "show a token of the access file (header `Authorization: Bearer TOKEN`): the API asks for "
      "a client certificate, which HTTP takes only with http_tls"};
}

Refusal NotOwnPage() {
  return {absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied,
          absl::StrCat("the header ", kOwnPageHeader, " is missing"), "",
          absl::StrCat("send `", kOwnPageHeader,
                       ": 1` with each request that is not GET and is known by a cookie, or by TLS "
                       "is a browser's")};
}

Refusal WrongType(std::string_view type) {
  return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField,
          absl::StrCat("Content-Type: must be application/json, not '",
                       absl::string_view(type.data(), type.size()), "'"),
          "", "send the request as JSON, with `Content-Type: application/json`"};
}

bool IsPlain(const http::Request& request) {
  return request.Count("content-encoding") == 0 ||
         request.Header("content-encoding").value_or("") == "identity";
}

std::optional<Refusal> CheckVisitor(const Site& site, const Route& route, const Visitor& visitor) {
  if (route.kind == Kind::kPage || route.kind == Kind::kSigns) return std::nullopt;
  // Without an access file there are no tokens: what is shown would be believed.
  if (site.needs_token && (visitor.authorization.empty() || site.policy() == nullptr))
    return NoToken();
  if (route.kind != Kind::kWrites || site.IsUnknown(visitor)) return std::nullopt;
  return site.CheckWrites(visitor);
}

// What is refused, and with which status of HTTP where it is not the code's own.
struct Refused {
  Refusal refusal;
  std::optional<http::Status> status;
};

// A browser adds by itself, whatever page has caused the request, what the caller may be known by: a cookie, or with TLS
// a certificate.
bool IsKnownByBrowser(const Site& site, const Visitor& visitor, const http::Request& request) {
  if (!visitor.cookie.empty()) return true;
  return site.by_tls && visitor.authorization.empty() && IsFromBrowser(request);
}

std::optional<Refused> CheckRoute(Site* site, const Route& route, const http::Request& request) {
  if (auto refusal = CheckSite(request, site->hosts, site->by_tls, route.kind == Kind::kPage))
    return Refused{*std::move(refusal), std::nullopt};
  if (route.kind == Kind::kPage) return std::nullopt;
  if (request.method == http::Method::kPost) {
    // Neither a form nor a script of another site may send these without leave.
    const std::string type = MediaTypeOf(request);
    if (type != "application/json" && type != "application/proto")
      return Refused{WrongType(type), http::Status::kUnsupportedMediaType};
    if (!IsPlain(request))
      return Refused{{absl::StatusCode::kUnimplemented, Reason::kNotSupported,
                      "Content-Encoding: the body must not be compressed", "", ""},
                     http::Status::kUnsupportedMediaType};
  }
  if (route.kind == Kind::kSigns) return std::nullopt;  // Its handlers want the own page's header.
  const Visitor visitor = VisitorOf(site, request);
  if (!http::kReads.Has(request.method) && request.Count(kOwnPageHeader) == 0 &&
      IsKnownByBrowser(*site, visitor, request))
    return Refused{NotOwnPage(), std::nullopt};
  if (auto refusal = CheckVisitor(*site, route, visitor))
    return Refused{*std::move(refusal), std::nullopt};
  return std::nullopt;
}

// Of the access file. Whether the token is one of it, the API finds out.
bool IsOfAccessFile(const Visitor& visitor, const AccessPolicy* policy) {
  if (policy == nullptr) return false;
  if (!visitor.authorization.empty()) return true;
  return visitor.certificate != nullptr && policy->ByCertificate(*visitor.certificate) != nullptr;
}

}  // namespace

std::optional<Refusal> Site::CheckWrites(const Visitor& visitor) const {
  switch (writes.load()) {
    case Writes::kOn:
      return std::nullopt;
    case Writes::kToken:
      if (IsOfAccessFile(visitor, policy().get())) return std::nullopt;
      return Refusal{
          absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied,
          "http_writes: by HTTP, callers that show neither a token nor a client certificate of "
          "the access file may only read",
          "",
          "show a token (header `Authorization: Bearer TOKEN`), or start the daemon with "
          "--http-writes on"};
    case Writes::kOff:
      break;
  }
  return Refusal{absl::StatusCode::kPermissionDenied, Reason::kPermissionDenied,
                 "http_writes is off: by HTTP, this daemon only shows what there is", "",
                 "use gRPC, or set http_writes"};
}

bool Site::IsSignedOut(const Visitor& visitor) {
  if (visitor.cookie.empty()) return false;
  const std::shared_ptr<const AccessPolicy> access = policy();
  return !sign_ins.TokenOf(visitor.cookie, access.get(), clock->Now()).has_value();
}

bool Site::IsUnknown(const Visitor& visitor) const {
  const std::shared_ptr<const AccessPolicy> access = policy();
  return access != nullptr && IdentityOf(visitor, access.get()) == nullptr;
}

const Identity* IdentityOf(const Visitor& visitor, const AccessPolicy* policy) {
  if (policy == nullptr) return nullptr;
  if (visitor.authorization.empty()) {
    const Identity* const certified =
        visitor.certificate == nullptr ? nullptr : policy->ByCertificate(*visitor.certificate);
    return certified == nullptr ? policy->anonymous() : certified;
  }
  constexpr std::string_view kScheme = "bearer ";
  const std::string& shown = visitor.authorization.front();
  if (visitor.authorization.size() != 1 ||
      !absl::StartsWithIgnoreCase(shown, {kScheme.data(), kScheme.size()}))
    return nullptr;
  return policy->ByToken(shown.substr(kScheme.size()));
}

http::Resources MakeResources(Site* site, Routes routes) {
  std::map<std::string, Routes> by_path;
  for (Route& route : routes) by_path[route.path].push_back(std::move(route));
  http::Resources resources;
  for (auto& [path, of_path] : by_path) {
    http::Methods methods;
    for (const Route& route : of_path) methods = methods | route.methods;
    auto handler = [site, of_path = std::move(of_path)](http::Request request, http::Reply reply) {
      const Route* const route = Find(of_path, request);
      Visitor visitor =
          route->kind == Kind::kPage ? Visitor{request.peer} : VisitorOf(site, request);
      // The body may have taken seconds, in which a cookie can have ended: without it the caller is another.
      if (const auto refusal = CheckVisitor(*site, *route, visitor))
        return reply(ErrorResponse(*refusal));
      route->handler(std::move(request), std::move(visitor), std::move(reply));
    };
    resources.emplace(path, http::Resource(methods, site->body_bytes_max, std::move(handler)));
  }
  return resources;
}

std::function<std::optional<http::Response>(const http::Request&)> MakeCheck(Site* site,
                                                                             const Routes& routes) {
  return [site, routes](const http::Request& request) -> std::optional<http::Response> {
    const Route* const route = Find(routes, request);
    if (route == nullptr) return EarlyRefusal(http::Status::kNotFound, site->body_bytes_max);
    std::optional<Refused> refused = CheckRoute(site, *route, request);
    if (!refused) return std::nullopt;
    return ErrorResponse(refused->refusal, refused->status);
  };
}

}  // namespace semaphored::web
