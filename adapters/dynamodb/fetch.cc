#include "adapters/dynamodb/fetch.h"

#include <curl/curl.h>

#include <array>
#include <chrono>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "adapters/dynamodb/exchange.h"
#include "adapters/steady_clock.h"

namespace semaphored::dynamodb {
namespace {

constexpr size_t kAnswerBytesMax = 65'536;

struct HandleDeleter {
  void operator()(void* handle) const { curl_easy_cleanup(handle); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

size_t TakeBody(char* data, size_t size, size_t count, void* into) {
  std::string& body = static_cast<Fetched*>(into)->body;
  if (body.size() + size * count > kAnswerBytesMax) return 0;
  body.append(data, size * count);
  return size * count;
}

size_t TakeHeader(char* data, size_t size, size_t count, void* into) {
  const absl::string_view line(data, size * count);
  constexpr absl::string_view kDate = "date:";
  if (absl::EqualsIgnoreCase(line.substr(0, kDate.size()), kDate))
    static_cast<Fetched*>(into)->date =
        std::string(absl::StripAsciiWhitespace(line.substr(kDate.size())));
  return size * count;
}

// The handle keeps none of it beyond the exchange.
void SetRequest(CURL* handle, const FetchRequest& request) {
  curl_easy_setopt(handle, CURLOPT_URL, request.address.c_str());
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method);
  if (absl::string_view(request.method) == "POST") {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  if (request.signer) {
    curl_easy_setopt(handle, CURLOPT_AWS_SIGV4, absl::StrCat("aws:amz:", request.scope).c_str());
    curl_easy_setopt(handle, CURLOPT_USERNAME, request.signer->access_key_id.c_str());
    curl_easy_setopt(handle, CURLOPT_PASSWORD, request.signer->secret_access_key.c_str());
  }
  if (!request.by_proxy) curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
}

using HeaderList = std::unique_ptr<curl_slist, ListDeleter>;

void Append(const std::string& header, HeaderList* list) {
  curl_slist* const longer = curl_slist_append(list->get(), header.c_str());
  if (longer == nullptr) return;
  (void)list->release();
  list->reset(longer);
}

HeaderList HeadersOf(const FetchRequest& request) {
  HeaderList list;
  for (const std::string& header : request.headers) Append(header, &list);
  if (request.signer && !request.signer->session_token.empty())
    Append(absl::StrCat("X-Amz-Security-Token: ", request.signer->session_token), &list);
  return list;
}

}  // namespace

absl::StatusOr<Fetched> Fetch(const FetchRequest& request, SteadyTime deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
  if (left.count() <= 0) return absl::UnavailableError("it took too long");
  InitHttp();
  const std::unique_ptr<void, HandleDeleter> handle(curl_easy_init());
  if (!handle) return absl::UnavailableError("out of memory");
  const HeaderList list = HeadersOf(request);
  Fetched fetched;
  std::array<char, CURL_ERROR_SIZE> error{};
  SetRequest(handle.get(), request);
  curl_easy_setopt(handle.get(), CURLOPT_HTTPHEADER, list.get());
  curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(left.count()));
  curl_easy_setopt(handle.get(), CURLOPT_ERRORBUFFER, error.data());
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &fetched);
  curl_easy_setopt(handle.get(), CURLOPT_HEADERFUNCTION, TakeHeader);
  curl_easy_setopt(handle.get(), CURLOPT_HEADERDATA, &fetched);
  const CURLcode code = curl_easy_perform(handle.get());
  if (code != CURLE_OK)
    return absl::UnavailableError(error.front() != '\0' ? error.data() : curl_easy_strerror(code));
  long http_status = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &http_status);
  fetched.http_status = static_cast<int>(http_status);
  return fetched;
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
