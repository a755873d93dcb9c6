#include "adapters/dynamodb/exchange.h"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "adapters/common/http_target.h"

namespace semaphored::dynamodb {
namespace {

constexpr long kConnectTimeoutMax_ms = 2000;
// The engine closes a connection that is idle for a minute: one is not used again shortly before.
constexpr long kIdleMax_s = 50;
constexpr size_t kAnswerBytesMax = 20'000'000;  // The engine's largest answer has 16 MB.

}  // namespace

static_assert(std::tuple_size_v<std::array<char, 256>> >= CURL_ERROR_SIZE);

void InitHttp() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

Exchange::Exchange(const Url& url) : handle_((InitHttp(), curl_easy_init())) {
  if (handle_ == nullptr) return;
  curl_easy_setopt(handle_, CURLOPT_PRIVATE, this);
  curl_easy_setopt(handle_, CURLOPT_URL, HttpTarget("/").UrlAt(url.base()).c_str());
  curl_easy_setopt(handle_, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle_, CURLOPT_AWS_SIGV4,
                   absl::StrCat("aws:amz:", url.region, ":dynamodb").c_str());
  curl_easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
  // An endpoint that was named is reached as it stands; to the engine's own a proxy of the
  // environment (HTTPS_PROXY, NO_PROXY) may lead.
  if (!url.endpoint.empty()) curl_easy_setopt(handle_, CURLOPT_NOPROXY, "*");
  if (!url.ca_file.empty()) curl_easy_setopt(handle_, CURLOPT_CAINFO, url.ca_file.c_str());
  curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle_, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(handle_, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(handle_, CURLOPT_MAXAGE_CONN, kIdleMax_s);
  curl_easy_setopt(handle_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle_, CURLOPT_POST, 1L);
  curl_easy_setopt(handle_, CURLOPT_ERRORBUFFER, error_.data());
  curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(handle_, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(handle_, CURLOPT_HEADERFUNCTION, TakeHeader);
  curl_easy_setopt(handle_, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(handle_, CURLOPT_PREREQFUNCTION, BeforeSending);
  curl_easy_setopt(handle_, CURLOPT_PREREQDATA, this);
}

Exchange::~Exchange() {
  if (handle_ != nullptr) curl_easy_cleanup(handle_);
  curl_slist_free_all(headers_);
}

size_t Exchange::TakeBody(char* data, size_t size, size_t count, void* self) {
  std::string& answer = static_cast<Exchange*>(self)->answer_;
  if (answer.size() + size * count > kAnswerBytesMax) return 0;
  answer.append(data, size * count);
  return size * count;
}

size_t Exchange::TakeHeader(char* data, size_t size, size_t count, void* self) {
  const absl::string_view line(data, size * count);
  constexpr absl::string_view kSum = "x-amz-crc32:";
  uint32_t sum = 0;
  if (absl::EqualsIgnoreCase(line.substr(0, kSum.size()), kSum) &&
      absl::SimpleAtoi(line.substr(kSum.size()), &sum))
    static_cast<Exchange*>(self)->crc32_ = sum;
  return size * count;
}

// The library sends again on its own when a kept connection was closed before anything was
// answered. Whether the request had arrived by then, it cannot know.
int Exchange::BeforeSending(void* self, char*, char*, int, int) {
  auto* const exchange = static_cast<Exchange*>(self);
  if (exchange->once_ && exchange->times_sent_ > 0) return CURL_PREREQFUNC_ABORT;
  ++exchange->times_sent_;
  exchange->answer_.clear();
  exchange->crc32_.reset();
  return CURL_PREREQFUNC_OK;
}

CURL* Exchange::Prepare(const std::string& operation, const std::string& body,
                        const Credentials& credentials, std::chrono::milliseconds timeout,
                        bool once) {
  if (handle_ == nullptr) return nullptr;
  // All but those that are taken away are signed, with the body and the host.
  curl_slist* list = curl_slist_append(nullptr, "Expect:");
  list = curl_slist_append(list, "Content-Type: application/x-amz-json-1.0");
  list =
      curl_slist_append(list, absl::StrCat("X-Amz-Target: DynamoDB_20120810.", operation).c_str());
  if (!credentials.session_token.empty()) {
    const std::string token = absl::StrCat("X-Amz-Security-Token: ", credentials.session_token);
    list = curl_slist_append(list, token.c_str());
  }
  curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, list);
  curl_slist_free_all(std::exchange(headers_, list));
  curl_easy_setopt(handle_, CURLOPT_USERNAME, credentials.access_key_id.c_str());
  curl_easy_setopt(handle_, CURLOPT_PASSWORD, credentials.secret_access_key.c_str());
  curl_easy_setopt(handle_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(handle_, CURLOPT_POSTFIELDS, body.data());
  const long timeout_ms = std::max<long>(static_cast<long>(timeout.count()), 1);
  curl_easy_setopt(handle_, CURLOPT_TIMEOUT_MS, timeout_ms);
  curl_easy_setopt(handle_, CURLOPT_CONNECTTIMEOUT_MS, std::min(timeout_ms, kConnectTimeoutMax_ms));
  answer_.clear();
  crc32_.reset();
  error_.front() = '\0';
  times_sent_ = 0;
  once_ = once;
  return handle_;
}

Received Exchange::Take(int curl_code) {
  Received received;
  received.curl_code = curl_code;
  received.sent = times_sent_ > 0;
  long http_status = 0;
  curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &http_status);
  received.http_status = static_cast<int>(http_status);
  received.body = std::move(answer_);
  received.crc32 = crc32_;
  received.detail = error_.data();
  if (curl_code == CURLE_ABORTED_BY_CALLBACK)
    received.detail = "the connection ended before the answer came";
  return received;
}

}  // namespace semaphored::dynamodb
