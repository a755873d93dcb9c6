// The words of HTTP: which sites may ask, cookies, signs-in, parameters, and Connect's errors.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "absl/strings/escaping.h"
#include "nlohmann/json.hpp"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/access/access.h"
#include "server/rpc/inside_peer.h"
#include "server/rpc/status.h"
#include "server/web/checks.h"
#include "server/web/connect.h"
#include "server/web/page_routes.h"
#include "server/web/query.h"
#include "server/web/sign_ins.h"

namespace semaphored::web {
namespace {

using Catch::Matchers::ContainsSubstring;
using Headers = std::vector<std::pair<std::string, std::string>>;

http::Request WithHeaders(Headers headers) {
  http::Request request;
  request.headers = std::move(headers);
  return request;
}

bool Passes(Headers headers, bool opens_page = false, bool by_tls = false) {
  return !CheckSite(WithHeaders(std::move(headers)), {"sem.example"}, by_tls, opens_page)
              .has_value();
}

std::shared_ptr<const AccessPolicy> PolicyOf(const std::string& token) {
  const AccessPolicy::Digest digest = Sha256(token);
  const std::string hex = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
  auto policy = AccessPolicy::Parse("[identities.ops]\ntokens = [\"sha256:" + hex +
                                    "\"]\nrules = [{ prefixes = [\"\"], verbs = [\"verify\"] }]\n");
  INFO(std::string(policy.status().message()));
  REQUIRE(policy.ok());
  return *policy;
}

}  // namespace

TEST_CASE("web: the names of the daemon") {
  for (const char* own : {"localhost", "127.0.0.1", "10.0.0.1", "[::1]", "[2001:db8::1]"})
    CHECK(IsOwnHost(HostOf(own)));
  for (const char* other : {"", "evil.example", "127.0.0.1.evil.example", "localhost.evil", "::1",
                            "[::1", "[]", "1", "0x7f000001", "127.1"})
    CHECK_FALSE(IsOwnHost(HostOf(other)));
  CHECK(HostOf("LocalHost:7422") == "localhost");
  CHECK(HostOf("[::1]:7422") == "[::1]");
  CHECK(HostOf("localhost:80x").empty());
  CHECK(HostOf("user@localhost").empty());
  CHECK(HostOf("localhost:1@evil").empty());
}

TEST_CASE("web: requests that other sites cause are refused") {
  CHECK(Passes({{"host", "127.0.0.1:7422"}}));
  CHECK(Passes({{"host", "sem.example"}, {"origin", "https://sem.example"}}));
  CHECK(Passes({{"host", "127.0.0.1:1"}, {"sec-fetch-site", "none"}}));
  CHECK_FALSE(Passes({}));
  CHECK_FALSE(Passes({{"host", "localhost"}, {"host", "localhost"}}));
  CHECK_FALSE(Passes({{"host", "evil.example"}}));
  CHECK_FALSE(Passes({{"host", "localhost"}, {"origin", "null"}}));
  CHECK_FALSE(Passes({{"host", "localhost"}, {"origin", "http://localhost:1"}}));
  CHECK_FALSE(
      Passes({{"host", "localhost"}, {"origin", "http://localhost"}, {"origin", "http://e"}}));
  CHECK_FALSE(Passes({{"host", "localhost"}, {"sec-fetch-site", "same-site"}}));
  const Headers link = {
      {"host", "localhost"}, {"sec-fetch-site", "cross-site"}, {"sec-fetch-mode", "navigate"}};
  CHECK_FALSE(Passes(link));
  CHECK(Passes(link, /*opens_page=*/true));
}

TEST_CASE("web: by TLS, a page without TLS is another site") {
  const auto passes = [](const char* origin, bool by_tls) {
    return Passes({{"host", "sem.example"}, {"origin", origin}}, /*opens_page=*/false, by_tls);
  };
  CHECK(passes("https://sem.example", true));
  CHECK_FALSE(passes("http://sem.example", true));
  CHECK_FALSE(passes("https://evil.example", true));
  CHECK_FALSE(passes("sem.example", true));
  // A proxy may have TLS before it, or none.
  CHECK(passes("https://sem.example", false));
  CHECK(passes("http://sem.example", false));
}

TEST_CASE("web: what a browser adds to a request") {
  CHECK(IsFromBrowser(WithHeaders({{"origin", "https://sem.example"}})));
  CHECK(IsFromBrowser(WithHeaders({{"sec-fetch-site", "same-origin"}})));
  CHECK_FALSE(IsFromBrowser(WithHeaders({{"host", "sem.example"}, {"user-agent", "curl/8"}})));
}

TEST_CASE("web: names of a certificate pass through as they are") {
  const std::string zero("a\0b c", 5);
  const CertificateNames names{zero, {"", "d a", "\xff"}, {"spiffe://x/a"}, {"a@b", "c"}};
  const std::string text = InsidePeerText("ipv6:[::1]:1", &names);
  CHECK(std::ranges::all_of(text, [](char each) { return each >= ' ' && each <= '~'; }));
  CHECK(ParseInsidePeer(text) == InsidePeer{"ipv6:[::1]:1", names});
  CHECK(ParseInsidePeer(InsidePeerText("ipv4:192.0.2.1:1", nullptr)) ==
        InsidePeer{"ipv4:192.0.2.1:1", {}});
}

TEST_CASE("web: cookies and types of content") {
  const http::Request request = WithHeaders({{"cookie", "a=1; semaphored_1=x=y;b"},
                                             {"cookie", "c=3"},
                                             {"content-type", "Application/JSON ; q"}});
  CHECK(CookieOf(request, "semaphored_1") == "x=y");
  CHECK(CookieOf(request, "c") == "3");
  CHECK_FALSE(CookieOf(request, "b").has_value());
  CHECK_FALSE(CookieOf(request, "semaphored").has_value());
  CHECK(MediaTypeOf(request) == "application/json");
  CHECK(MediaTypeOf(WithHeaders({})).empty());
}

TEST_CASE("web: a cookie stands for its token until it ends") {
  const auto policy = PolicyOf("secret");
  const SteadyTime now{};
  SignIns all;
  const std::string cookie = all.SignIn("secret", "ops", now);
  CHECK(cookie.size() == 64);
  CHECK(all.TokenOf(cookie, policy.get(), now) == "secret");
  CHECK_FALSE(all.TokenOf(cookie + "0", policy.get(), now).has_value());
  CHECK_FALSE(all.TokenOf("", policy.get(), now).has_value());
  const std::string second = all.SignIn("secret", "ops", now);
  CHECK(second != cookie);
  all.SignOut(cookie);
  all.SignOut("none");
  CHECK_FALSE(all.TokenOf(cookie, policy.get(), now).has_value());
  CHECK(all.TokenOf(second, policy.get(), now + SignIns::kLongest - Milliseconds(1)).has_value());
  CHECK_FALSE(all.TokenOf(second, policy.get(), now + SignIns::kLongest).has_value());
  CHECK(all.size() == 0);
  // The token is no identity's any more, or another's, or there is no access file.
  const std::string third = all.SignIn("secret", "ops", now);
  CHECK_FALSE(all.TokenOf(third, PolicyOf("other").get(), now).has_value());
  CHECK(all.size() == 0);
  const std::string fourth = all.SignIn("secret", "renamed", now);
  CHECK_FALSE(all.TokenOf(fourth, policy.get(), now).has_value());
  const std::string fifth = all.SignIn("secret", "ops", now);
  CHECK_FALSE(all.TokenOf(fifth, nullptr, now).has_value());
}

TEST_CASE("web: signs-in are bounded, of one identity and of all") {
  const auto policy = PolicyOf("secret");
  const SteadyTime now{};
  SignIns all;
  const std::string first = all.SignIn("secret", "ops", now);
  const std::string second = all.SignIn("secret", "ops", now);
  for (size_t i = 0; i < SignIns::kMaxOfIdentity - 1; ++i) all.SignIn("secret", "ops", now);
  CHECK(all.size() == SignIns::kMaxOfIdentity);
  CHECK_FALSE(all.TokenOf(first, policy.get(), now).has_value());
  CHECK(all.TokenOf(second, policy.get(), now).has_value());
  for (size_t i = 0; i < 2 * SignIns::kMax; ++i) all.SignIn("secret", std::to_string(i), now);
  CHECK(all.size() == SignIns::kMax);
}

TEST_CASE("web: the parameters of a path") {
  std::vector<std::string> found;
  const auto take = [&found](const std::string& name, std::string value) -> std::optional<Refusal> {
    if (name == "bad") return InvalidField(name, "is bad");
    found.push_back(name + "=" + value);
    return std::nullopt;
  };
  CHECK_FALSE(ForEachParameter("a=b%2Fc+d&&e&f==", take).has_value());
  CHECK(found == std::vector<std::string>{"a=b/c d", "e=", "f=="});
  for (const char* wrong : {"a=%", "a=%2", "a=%zz", "%=1", "bad=1", "a=%+1"})
    CHECK(ForEachParameter(wrong, take).has_value());
}

TEST_CASE("web: errors as Connect has them") {
  Refusal refusal = InvalidField("limit", "must be more than 0");
  const http::Response response = ErrorResponse(refusal);
  CHECK(response.status == http::Status::kBadRequest);
  const auto error = nlohmann::json::parse(*response.body);
  CHECK(error["code"] == "invalid_argument");
  CHECK(error["message"] == "limit: must be more than 0");
  const auto& info = error["details"][0];
  CHECK(info["type"] == "google.rpc.ErrorInfo");
  CHECK(info["debug"]["reason"] == "INVALID_FIELD");
  CHECK(info["value"].get<std::string>().find('=') == std::string::npos);
  CHECK(error["details"][1]["type"] == "google.rpc.BadRequest");

  refusal.message = "not \xff UTF-8";
  CHECK(nlohmann::json::accept(*ErrorResponse(refusal).body));
  const grpc::Status bare(grpc::StatusCode::UNAVAILABLE, "gone");
  CHECK(ErrorJson(StatusOf(bare)) == R"({"code":"unavailable","message":"gone"})");
  for (int code = 0; code <= 20; ++code)
    CHECK_FALSE(CodeName(static_cast<grpc::StatusCode>(code)).empty());
}

TEST_CASE("web: what is refused before its route is known is an error, too") {
  using http::Status;
  const std::tuple<Status, const char*, const char*, bool> early[] = {
      {Status::kBadRequest, "invalid_argument", "INVALID_FIELD", false},
      {Status::kNotFound, "unimplemented", "NOT_SUPPORTED", false},
      {Status::kMethodNotAllowed, "unimplemented", "NOT_SUPPORTED", false},
      {Status::kRequestTimeout, "deadline_exceeded", "LIMIT_REACHED", true},
      {Status::kContentTooLarge, "resource_exhausted", "LIMIT_REACHED", false},
      {Status::kHeadTooLarge, "resource_exhausted", "LIMIT_REACHED", false},
      {Status::kUnavailable, "unavailable", "LIMIT_REACHED", true}};
  for (const auto& [status, code, reason, passes] : early) {
    CAPTURE(code);
    const http::Response response = EarlyRefusal(status, 4'096);
    CHECK(response.status == status);
    CHECK(response.content_type == "application/json");
    const auto error = nlohmann::json::parse(*response.body);
    CHECK(error["code"] == code);
    CHECK(error["details"][0]["debug"]["reason"] == reason);
    // The same again helps or does not.
    CHECK((error["details"].size() == 2) == passes);
  }
  CHECK_THAT(*EarlyRefusal(Status::kContentTooLarge, 4'096).body,
             ContainsSubstring("message_bytes_max (4096 bytes)"));
}

TEST_CASE("web: JSON of messages") {
  semaphore::v1::AcquireRequest request;
  CHECK_FALSE(FromJson(R"({"semaphore":"a","wait_ms":1,"ttlMs":"2"})", &request).has_value());
  CHECK(request.wait_ms() == 1);
  CHECK(request.ttl_ms() == 2);
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"limt":1})", "limt"},
      {R"({"limit":"x"})", "limit"},
      {R"({"requestId":{"numbered":{"sequence":"x"}}})", "sequence"}};
  for (const auto& [json, field] : wrong) {
    const auto refused = FromJson(json, &request);
    REQUIRE(refused.has_value());
    CHECK_THAT(refused->field, ContainsSubstring(field));
  }
  for (const char* bad : {"", "{", "[]", "1", "null x", "{}{}"}) {
    INFO(bad);
    CHECK(FromJson(bad, &request).has_value());
  }
  CHECK(FromJson(std::string(100'000, '['), &request).has_value());
  CHECK_THAT(ToJson(semaphore::v1::VerifyResponse()), ContainsSubstring("\"held\":false"));
}

TEST_CASE("web: the version of Connect's protocol") {
  CHECK_FALSE(CheckVersion(WithHeaders({})).has_value());
  CHECK_FALSE(CheckVersion(WithHeaders({{"connect-protocol-version", "1"}})).has_value());
  for (const char* wrong : {"", "2", "1.0", "01"})
    CHECK(CheckVersion(WithHeaders({{"connect-protocol-version", wrong}})).has_value());
  CHECK(CheckVersion(
            WithHeaders({{"connect-protocol-version", "1"}, {"connect-protocol-version", "1"}}))
            .has_value());
}

TEST_CASE("web: a time limit") {
  std::optional<Milliseconds> timeout;
  CHECK_FALSE(TimeoutOf(WithHeaders({}), &timeout).has_value());
  CHECK_FALSE(timeout.has_value());
  CHECK_FALSE(TimeoutOf(WithHeaders({{"connect-timeout-ms", "9999999999"}}), &timeout).has_value());
  CHECK(timeout == Milliseconds(9'999'999'999));
  for (const char* wrong : {"", "-1", "+1", "1.5", "0x1", "12345678901"})
    CHECK(TimeoutOf(WithHeaders({{"connect-timeout-ms", wrong}}), &timeout).has_value());
}

TEST_CASE("web: the page runs nothing but its own elements") {
  const std::string policy =
      PagePolicy("<style>a{}</style><script type=\"module\">1</script><script>2</script>");
  CHECK_THAT(policy, ContainsSubstring("default-src 'none'"));
  // Of "1" and "2".
  CHECK_THAT(policy,
             ContainsSubstring("script-src 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s=' "
                               "'sha256-1HNeOiZeFu7gP1lxi5tdAwGcB9i2xR+Q2jpmbuwTqzU='"));
  CHECK_THAT(policy, ContainsSubstring("style-src 'sha256-"));
  CHECK_THAT(PagePolicy("<p>"), ContainsSubstring("script-src 'none'"));
  const std::string_view page = EmbeddedFile("page.html");
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(EmbeddedFile("openapi.json").starts_with("{"));
  CHECK(EmbeddedFile("none").empty());
}

}  // namespace semaphored::web
