#include "adapters/common/http.h"

#include <curl/curl.h>

#include <ctime>
#include <mutex>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace semaphored {
namespace {

// Engines close a connection that is idle for a minute: one is not used again shortly before.
constexpr long kIdleMax_s = 50;

void InitOnce() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

HttpAnswer::Fault FaultOf(int code) {
  switch (code) {
    case CURLE_OK:
      return HttpAnswer::Fault::kNone;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return HttpAnswer::Fault::kAddress;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return HttpAnswer::Fault::kTrust;
    case CURLE_OPERATION_TIMEDOUT:
      return HttpAnswer::Fault::kTimeOut;
    default:
      return HttpAnswer::Fault::kOther;
  }
}

}  // namespace

HttpClient::HttpClient(HttpOptions options)
    : options_(std::move(options)), handle_((InitOnce(), curl_easy_init())) {
  static_assert(std::tuple_size_v<decltype(error_)> >= CURL_ERROR_SIZE);
  if (handle_ == nullptr) return;
  curl_easy_setopt(handle_, CURLOPT_PRIVATE, this);
  curl_easy_setopt(handle_, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
  // A request whose time is over does not wait for a resolver that hangs, which takes 10 s and more: the thread that
  // resolves is left alone, and frees what it has when it ends.
  curl_easy_setopt(handle_, CURLOPT_QUICK_EXIT, 1L);
  curl_easy_setopt(handle_, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(handle_, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(handle_, CURLOPT_MAXAGE_CONN, kIdleMax_s);
  curl_easy_setopt(handle_, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options_.connect_timeout.count()));
  if (!options_.by_proxy) curl_easy_setopt(handle_, CURLOPT_NOPROXY, "*");
  if (!options_.signed_for.empty())
    curl_easy_setopt(handle_, CURLOPT_AWS_SIGV4,
                     absl::StrCat("aws:amz:", options_.signed_for).c_str());
  for (const auto& [option, file] : {std::pair(CURLOPT_CAINFO, &options_.ca_file),
                                     std::pair(CURLOPT_SSLCERT, &options_.cert_file),
                                     std::pair(CURLOPT_SSLKEY, &options_.key_file)}) {
    if (!file->empty()) curl_easy_setopt(handle_, option, file->c_str());
  }
  curl_easy_setopt(handle_, CURLOPT_ERRORBUFFER, error_.data());
  curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(handle_, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(handle_, CURLOPT_HEADERFUNCTION, TakeHeader);
  curl_easy_setopt(handle_, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(handle_, CURLOPT_PREREQFUNCTION, BeforeSending);
  curl_easy_setopt(handle_, CURLOPT_PREREQDATA, this);
}

HttpClient::~HttpClient() {
  LeavePool();
  curl_easy_cleanup(handle_);
  curl_slist_free_all(headers_);
}

size_t HttpClient::TakeBody(char* data, size_t size, size_t count, void* self) {
  auto* const client = static_cast<HttpClient*>(self);
  std::string& body = client->answer_.body;
  if (size * count > client->options_.answer_bytes_max - body.size()) return 0;
  body.append(data, size * count);
  return size * count;
}

size_t HttpClient::TakeHeader(char* data, size_t size, size_t count, void* self) {
  auto* const client = static_cast<HttpClient*>(self);
  const absl::string_view line(data, size * count);
  const size_t colon = line.find(':');
  if (colon != absl::string_view::npos &&
      absl::EqualsIgnoreCase(line.substr(0, colon), client->options_.header))
    client->answer_.header = std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  return size * count;
}

// The library sends again by itself where a kept connection has ended before anything was answered.
// Whether the request had arrived by then, it cannot know.
int HttpClient::BeforeSending(void* self, char*, char*, int, int) {
  auto* const client = static_cast<HttpClient*>(self);
  const int times_sent = client->answer_.times_sent;
  if (client->once_ && times_sent > 0) return CURL_PREREQFUNC_ABORT;
  client->answer_ = {};
  client->answer_.times_sent = times_sent + 1;
  return CURL_PREREQFUNC_OK;
}

void HttpClient::Prepare(const HttpRequest& request) {
  curl_easy_setopt(handle_, CURLOPT_URL, request.address.c_str());
  curl_slist* list = curl_slist_append(nullptr, "Expect:");
  for (const std::string& header : request.headers) list = curl_slist_append(list, header.c_str());
  curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, list);
  curl_slist_free_all(std::exchange(headers_, list));
  if (request.body != nullptr) {
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body->size()));
    curl_easy_setopt(handle_, CURLOPT_POSTFIELDS, request.body->data());
  } else {
    curl_easy_setopt(handle_, CURLOPT_HTTPGET, 1L);
  }
  curl_easy_setopt(handle_, CURLOPT_CUSTOMREQUEST, request.method);
  if (!options_.signed_for.empty()) {
    curl_easy_setopt(handle_, CURLOPT_USERNAME, request.key_id.c_str());
    curl_easy_setopt(handle_, CURLOPT_PASSWORD, request.secret_key.c_str());
  }
  curl_easy_setopt(handle_, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
  error_.front() = '\0';
  answer_ = {};
  once_ = request.once;
}

HttpAnswer HttpClient::Take(int code) {
  HttpAnswer answer = std::exchange(answer_, {});
  long http_status = 0;
  curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &http_status);
  answer.http_status = static_cast<int>(http_status);
  answer.fault = FaultOf(code);
  if (code == CURLE_ABORTED_BY_CALLBACK) {
    answer.why = "the connection ended before the answer came";
  } else if (code != CURLE_OK) {
    answer.why =
        error_.front() != '\0' ? error_.data() : curl_easy_strerror(static_cast<CURLcode>(code));
  }
  return answer;
}

HttpAnswer HttpClient::Send(const HttpRequest& request) {
  if (handle_ == nullptr) return {.fault = HttpAnswer::Fault::kOther, .why = "out of memory"};
  Prepare(request);
  return Take(curl_easy_perform(handle_));
}

void HttpClient::LeavePool() {
  if (multi_ != nullptr) curl_multi_remove_handle(std::exchange(multi_, nullptr), handle_);
}

HttpPool::HttpPool(int connections_max) : multi_((InitOnce(), curl_multi_init())) {
  if (multi_ == nullptr || connections_max == 0) return;
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(connections_max));
  curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, static_cast<long>(connections_max));
}

HttpPool::~HttpPool() { curl_multi_cleanup(multi_); }

bool HttpPool::Start(HttpClient* client, const HttpRequest& request,
                     std::function<void(HttpAnswer)> done) {
  if (client->handle_ == nullptr || multi_ == nullptr) return false;
  client->Prepare(request);
  if (curl_multi_add_handle(multi_, client->handle_) != CURLM_OK) return false;
  client->multi_ = multi_;
  client->done_ = std::move(done);
  return true;
}

bool HttpPool::Turn() {
  int running = 0;
  curl_multi_perform(multi_, &running);
  bool ended = false;
  int queued = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &queued)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    HttpClient* client = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &client);
    client->LeavePool();
    ended = true;
    // It may be started again, or gone, before this returns.
    std::exchange(client->done_, nullptr)(client->Take(code));
  }
  return ended;
}

void HttpPool::Wait(std::chrono::milliseconds timeout) {
  curl_multi_poll(multi_, nullptr, 0, static_cast<int>(timeout.count()), nullptr);
}

void HttpPool::Wake() { curl_multi_wakeup(multi_); }

std::optional<int64_t> UnixTimeOfHttpDate(const std::string& date) {
  const time_t time = curl_getdate(date.c_str(), nullptr);
  return time < 0 ? std::nullopt : std::optional<int64_t>(time);
}

}  // namespace semaphored
