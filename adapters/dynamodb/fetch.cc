#include "adapters/dynamodb/fetch.h"

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kAnswerBytesMax = 65'536;

}  // namespace

absl::StatusOr<HttpAnswer> Fetch(const FetchRequest& request, SteadyTime deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
  if (left.count() <= 0) return absl::UnavailableError("it took too long");
  HttpOptions options;
  options.header = "Date";
  options.by_proxy = request.by_proxy;
  options.answer_bytes_max = kAnswerBytesMax;
  options.connect_timeout = left;
  HttpRequest sent;
  sent.method = request.method;
  sent.address = request.address;
  sent.headers = request.headers;
  if (absl::string_view(request.method) == "POST") sent.body = &request.body;
  sent.timeout = left;
  if (request.signer) {
    options.signed_for = request.scope;
    sent.key_id = request.signer->access_key_id;
    sent.secret_key = request.signer->secret_access_key;
    if (!request.signer->session_token.empty())
      sent.headers.push_back(absl::StrCat("X-Amz-Security-Token: ", request.signer->session_token));
  }
  HttpAnswer answer = HttpClient(std::move(options)).Send(sent);
  if (answer.fault != HttpAnswer::Fault::kNone) return absl::UnavailableError(answer.why);
  return answer;
}

bool MayCarrySecrets(const std::string& address) {
  absl::string_view rest = address;
  if (absl::StartsWith(rest, "https://")) return true;
  if (!absl::ConsumePrefix(&rest, "http://")) return false;
  absl::string_view host = rest.substr(0, rest.find_first_of("/?#"));
  if (absl::StrContains(host, '@')) return false;
  host = absl::StartsWith(host, "[") ? host.substr(0, host.find(']') + 1)
                                     : host.substr(0, host.find(':'));
  const bool loopback = host == "localhost" || host == "[::1]" ||
                        (absl::StartsWith(host, "127.") &&
                         host.find_first_not_of("0123456789.") == absl::string_view::npos);
  return loopback || host == "169.254.170.2" || host == "169.254.170.23" ||
         host == "[fd00:ec2::23]";
}

}  // namespace semaphored::dynamodb
