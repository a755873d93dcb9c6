#include "adapters/consul/client.h"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/steady_clock.h"

namespace semaphored::consul {
namespace {

constexpr size_t kMessageBytesMax = 200;  // Of what the agent says of an error.
constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kPauseMax{400};
constexpr int kAttemptsMax = 6;

void InitOnce() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

// True: nothing of the request had been sent.
bool IsBeforeSending(int code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return true;
    default:
      return false;
  }
}

size_t TakeBody(char* data, size_t size, size_t count, void* into) {
  static_cast<std::string*>(into)->append(data, size * count);
  return size * count;
}

size_t TakeHeader(char* data, size_t size, size_t count, void* into) {
  const absl::string_view line(data, size * count);
  constexpr absl::string_view kIndex = "x-consul-index:";
  if (line.size() > kIndex.size() && absl::EqualsIgnoreCase(line.substr(0, kIndex.size()), kIndex))
    (void)absl::SimpleAtoi(line.substr(kIndex.size()), static_cast<uint64_t*>(into));
  return size * count;
}

}  // namespace

static_assert(std::tuple_size_v<ErrorText> >= CURL_ERROR_SIZE);

// The library sends again by itself where a kept connection has ended before anything was answered.
// Whether the request had arrived by then, it cannot know.
int Client::BeforeSending(void* self, char*, char*, int, int) {
  auto* const client = static_cast<Client*>(self);
  if (client->once_ && client->sent_) return CURL_PREREQFUNC_ABORT;
  client->sent_ = true;
  return CURL_PREREQFUNC_OK;
}

Reply JudgeReply(int curl_code, int http_status, std::string body, const std::string& detail) {
  Reply reply;
  reply.http_status = http_status;
  if (curl_code != CURLE_OK) {
    const bool refused = IsBeforeSending(curl_code);
    reply.kind = refused ? Reply::Kind::kRefused : Reply::Kind::kBroken;
    const char* const code = curl_easy_strerror(static_cast<CURLcode>(curl_code));
    const std::string why = absl::StrCat("consul: ", detail.empty() ? code : detail);
    // Asked again it is no better.
    reply.status =
        curl_code == CURLE_URL_MALFORMAT ? absl::InternalError(why) : absl::UnavailableError(why);
    return reply;
  }
  const absl::string_view text = absl::string_view(body).substr(0, kMessageBytesMax);
  const std::string message = absl::StrCat("consul: ", http_status, " ", text);
  reply.kind = Reply::Kind::kRefused;
  switch (http_status) {
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
  reply.body = std::move(body);
  return reply;
}

std::chrono::milliseconds Skewed(std::chrono::milliseconds pause, uint64_t* random) {
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  const int64_t half = pause.count() / 2;
  return std::chrono::milliseconds(
      half + static_cast<int64_t>((*random >> 33) % static_cast<uint64_t>(half + 1)));
}

Client::Client(const Url& url) : url_(url), random_(std::random_device()()) {
  handle_ = NewHandle(url_, &headers_);
  if (handle_ == nullptr) return;
  curl_easy_setopt(handle_, CURLOPT_PREREQFUNCTION, BeforeSending);
  curl_easy_setopt(handle_, CURLOPT_PREREQDATA, this);
}

Client::~Client() { FreeHandle(handle_, headers_); }

CURL* Client::NewHandle(const Url& url, void** headers) {
  InitOnce();
  CURL* handle = curl_easy_init();
  if (handle == nullptr) return nullptr;
  curl_slist* list = curl_slist_append(nullptr, "Expect:");
  list = curl_slist_append(list, "Content-Type: application/json");
  if (!url.token.empty())
    list = curl_slist_append(list, absl::StrCat("X-Consul-Token: ", url.token).c_str());
  *headers = list;
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, list);
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(std::min<int64_t>(url.timeout.count(), 2000)));
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, TakeHeader);
  if (!url.ca_file.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, url.ca_file.c_str());
  if (!url.cert_file.empty()) curl_easy_setopt(handle, CURLOPT_SSLCERT, url.cert_file.c_str());
  if (!url.key_file.empty()) curl_easy_setopt(handle, CURLOPT_SSLKEY, url.key_file.c_str());
  return handle;
}

void Client::FreeHandle(CURL* handle, void* headers) {
  if (handle != nullptr) curl_easy_cleanup(handle);
  curl_slist_free_all(static_cast<curl_slist*>(headers));
}

void Client::Prepare(const Url& url, const HttpTarget& target, CURL* handle, ErrorText* error) {
  HttpTarget there = target;
  if (!url.datacenter.empty()) there.Option("dc", url.datacenter);
  const std::string address =
      there.UrlAt(absl::StrCat(url.tls ? "https" : "http", "://", url.host, ":", url.port));
  curl_easy_setopt(handle, CURLOPT_URL, address.c_str());
  error->front() = '\0';
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, error->data());
}

Reply Client::Send(const HttpTarget& target, const std::string* body, bool once,
                   std::chrono::milliseconds timeout) {
  if (handle_ == nullptr) {
    Reply reply;
    reply.kind = Reply::Kind::kRefused;
    reply.status = absl::ResourceExhaustedError("consul: out of memory");
    return reply;
  }
  Prepare(url_, target, handle_, &error_);
  std::string answer;
  uint64_t index = 0;
  curl_easy_setopt(handle_, CURLOPT_WRITEDATA, &answer);
  curl_easy_setopt(handle_, CURLOPT_HEADERDATA, &index);
  curl_easy_setopt(handle_, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  if (body != nullptr) {
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDS, body->data());
    curl_easy_setopt(handle_, CURLOPT_CUSTOMREQUEST, "PUT");
  } else {
    curl_easy_setopt(handle_, CURLOPT_CUSTOMREQUEST, nullptr);
    curl_easy_setopt(handle_, CURLOPT_HTTPGET, 1L);
  }
  once_ = once;
  sent_ = false;
  CURLcode code = curl_easy_perform(handle_);
  // It was not sent again, or could not be: what was sent may have been carried out.
  if (sent_ && (code == CURLE_ABORTED_BY_CALLBACK || IsBeforeSending(code))) {
    code = CURLE_GOT_NOTHING;
    error_.front() = '\0';
  }
  long http_status = 0;
  curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &http_status);
  Reply reply = JudgeReply(code, static_cast<int>(http_status), std::move(answer), error_.data());
  reply.index = index;
  return reply;
}

Reply Client::Persist(const HttpTarget& target, const std::string* body) {
  const auto deadline = SteadyClock::now() + url_.timeout;
  std::chrono::milliseconds pause = kFirstPause;
  for (int attempt = 1;; ++attempt) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    Reply reply = Send(target, body, /*once=*/false, std::max(left, std::chrono::milliseconds(1)));
    if (reply.answered() || !absl::IsUnavailable(reply.status) || attempt == kAttemptsMax)
      return reply;
    const std::chrono::milliseconds skewed = Skewed(pause, &random_);
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

}  // namespace semaphored::consul
