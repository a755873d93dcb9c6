#include "adapters/consul/client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/common/random.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {
namespace {

constexpr size_t kMessageBytesMax = 200;  // Of what the agent says of an error.
constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kPauseMax{400};
constexpr int kAttemptsMax = 6;
constexpr int kHttpNone = 404;

}  // namespace

Reply JudgeReply(HttpAnswer answer) {
  Reply reply;
  reply.http_status = answer.http_status;
  (void)absl::SimpleAtoi(answer.header, &reply.index);
  if (answer.fault != HttpAnswer::Fault::kNone) {
    reply.kind = answer.times_sent == 0 ? Reply::Kind::kRefused : Reply::Kind::kBroken;
    const std::string why = absl::StrCat("consul: ", answer.why);
    // Asked again it is no better.
    reply.status = answer.fault == HttpAnswer::Fault::kAddress ? absl::InternalError(why)
                                                               : absl::UnavailableError(why);
    return reply;
  }
  const absl::string_view text = absl::string_view(answer.body).substr(0, kMessageBytesMax);
  const std::string message = absl::StrCat("consul: ", answer.http_status, " ", text);
  reply.kind = Reply::Kind::kRefused;
  switch (answer.http_status) {
    case 200:
    case 404:
    case 409:
      reply.kind = Reply::Kind::kAnswered;
      break;
    case 413:
      reply.status = absl::OutOfRangeError(message);
      break;
    case 401:
    case 403:
      reply.status = absl::PermissionDeniedError(message);
      break;
    case 400:
      reply.status = absl::InternalError(message);
      break;
    case 429:
      reply.status = absl::UnavailableError(message);
      break;
    default:
      // "No cluster leader" and the like: a write may have reached a leader that then was none.
      reply.kind = Reply::Kind::kBroken;
      reply.status = absl::UnavailableError(message);
      // An agent answers 500 for what the token may not do inside of a transaction.
      if (absl::StrContains(text, "Permission denied")) {
        reply.kind = Reply::Kind::kRefused;
        reply.status = absl::PermissionDeniedError(message);
      }
  }
  reply.body = std::move(answer.body);
  return reply;
}

HttpOptions OptionsOf(const Url& url) {
  HttpOptions options;
  options.ca_file = url.ca_file;
  options.cert_file = url.cert_file;
  options.key_file = url.key_file;
  options.header = "X-Consul-Index";
  options.connect_timeout = std::min(options.connect_timeout, url.timeout);
  return options;
}

HttpRequest RequestTo(const Url& url, const HttpTarget& target) {
  HttpTarget there = target;
  if (!url.datacenter.empty()) there.Option("dc", url.datacenter);
  HttpRequest request;
  request.address =
      there.UrlAt(absl::StrCat(url.tls ? "https" : "http", "://", url.host, ":", url.port));
  request.headers = {"Content-Type: application/json"};
  if (!url.token.empty()) request.headers.push_back(absl::StrCat("X-Consul-Token: ", url.token));
  return request;
}

Reply Client::Send(const HttpTarget& target, const std::string* body, bool once,
                   std::chrono::milliseconds timeout) {
  HttpRequest request = RequestTo(url_, target);
  if (body != nullptr) request.method = "PUT";
  request.body = body;
  request.once = once;
  request.timeout = timeout;
  return JudgeReply(http_.Send(request));
}

Reply Client::Persist(const HttpTarget& target, const std::string* body) {
  const auto deadline = SteadyClock::now() + url_.timeout;
  std::chrono::milliseconds pause = kFirstPause;
  for (int attempt = 1;; ++attempt) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    Reply reply = Send(target, body, /*once=*/false, std::max(left, std::chrono::milliseconds(1)));
    if (reply.answered() || !absl::IsUnavailable(reply.status) || attempt == kAttemptsMax)
      return reply;
    const std::chrono::milliseconds skewed = Skewed(pause);
    if (SteadyClock::now() + skewed >= deadline) return reply;
    std::this_thread::sleep_for(skewed);
    pause = std::min(pause * 2, kPauseMax);
  }
}

Reply Client::Get(const HttpTarget& target) { return Persist(target, nullptr); }

Reply Client::Ask(const HttpTarget& target, const std::string& body) {
  return Persist(target, &body);
}

Reply Client::Put(const HttpTarget& target, const std::string& body) {
  return Send(target, &body, /*once=*/true, url_.timeout);
}

absl::StatusOr<std::vector<Entry>> Client::Read(const TransactionRequest& request) {
  const Reply reply = Ask("/v1/txn?consistent", request.Body());
  if (!reply.answered()) return reply.status;
  absl::StatusOr<TransactionAnswer> answer = ReadTransactionAnswer(reply.body);
  if (!answer.ok()) return answer.status();
  if (!answer->done)
    return absl::PermissionDeniedError(absl::StrCat("consul: ", answer->refusals.front().why));
  return std::move(answer->entries);
}

absl::StatusOr<std::vector<Entry>> Client::ReadTree(const std::string& key) {
  const Reply reply = Get(HttpTarget("/v1/kv/", key).Option("recurse").Option("consistent"));
  if (!reply.answered()) return reply.status;
  return ReadEntries(reply.http_status == kHttpNone ? "" : reply.body);
}

absl::StatusOr<std::vector<std::string>> Client::ListKeys(const std::string& under,
                                                          const std::string& separator) {
  HttpTarget target("/v1/kv/", under);
  target.Option("keys").Option("consistent");
  if (!separator.empty()) target.Option("separator", separator);
  const Reply reply = Get(target);
  if (!reply.answered()) return reply.status;
  std::vector<std::string> keys;
  const auto json = nlohmann::json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return keys;
  for (const auto& each : json) {
    if (each.is_string()) keys.push_back(each.get<std::string>());
  }
  return keys;
}

absl::StatusOr<TransactionAnswer> Client::Write(const TransactionRequest& request) {
  const Reply reply = Put("/v1/txn", request.Body());
  if (!reply.answered()) return reply.status;
  absl::StatusOr<TransactionAnswer> answer = ReadTransactionAnswer(reply.body);
  if (!answer.ok()) return answer;
  if (absl::Status status = answer->WhyForbidden(); !status.ok()) return status;
  return answer;
}

}  // namespace semaphored::consul
