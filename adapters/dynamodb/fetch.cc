#include "adapters/dynamodb/fetch.h"

#include <curl/curl.h>

#include <array>
#include <chrono>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
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

}  // namespace

absl::StatusOr<Fetched> Fetch(const char* method, const std::string& address,
                              const std::vector<std::string>& headers, SteadyTime deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
  if (left.count() <= 0) return absl::UnavailableError("it took too long");
  InitHttp();
  const std::unique_ptr<void, HandleDeleter> handle(curl_easy_init());
  if (!handle) return absl::UnavailableError("out of memory");
  std::unique_ptr<curl_slist, ListDeleter> list;
  for (const std::string& header : headers) {
    curl_slist* const longer = curl_slist_append(list.get(), header.c_str());
    (void)list.release();
    list.reset(longer);
  }
  Fetched fetched;
  std::array<char, CURL_ERROR_SIZE> error{};
  curl_easy_setopt(handle.get(), CURLOPT_URL, address.c_str());
  curl_easy_setopt(handle.get(), CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle.get(), CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(handle.get(), CURLOPT_HTTPHEADER, list.get());
  curl_easy_setopt(handle.get(), CURLOPT_NOPROXY, "*");
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

}  // namespace semaphored::dynamodb
