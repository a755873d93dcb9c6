#include "server/http/message.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace semaphored::http {
namespace {

struct StatusText {
  int number;
  const char* text;
};
constexpr std::array<StatusText, kStatuses> kStatusTexts = {{
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
}};

constexpr std::array<std::pair<Method, const char*>, 4> kMethodTexts = {
    {{Method::kGet, "GET"},
     {Method::kHead, "HEAD"},
     {Method::kPost, "POST"},
     {Method::kDelete, "DELETE"}}};

const StatusText& TextOf(Status status) { return kStatusTexts[static_cast<size_t>(status)]; }

// Whether an answer of this status has a body, be it empty.
bool HasBody(Status status) {
  return status != Status::kNoContent && status != Status::kNotModified;
}

}  // namespace

int StatusNumber(Status status) { return TextOf(status).number; }

std::string Methods::Text() const {
  std::string text;
  for (const auto& [method, name] : kMethodTexts) {
    if (Has(method)) absl::StrAppend(&text, text.empty() ? "" : ", ", name);
  }
  return text;
}

std::optional<std::string_view> Request::Header(std::string_view name) const {
  std::optional<std::string_view> found;
  for (const auto& [key, value] : headers) {
    if (key != name) continue;
    if (found) return std::nullopt;
    found = value;
  }
  return found;
}

size_t Request::Count(std::string_view name) const {
  return static_cast<size_t>(
      std::ranges::count_if(headers, [name](const auto& each) { return each.first == name; }));
}

Response Refusal(Status status) {
  Response response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::make_shared<std::string>(absl::StrCat(TextOf(status).text, "\n"));
  return response;
}

std::string DateText(int64_t unix_s) {
  // (Not by strftime, whose names are those of the process's language.)
  constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const time_t seconds = unix_s;
  tm utc{};
  gmtime_r(&seconds, &utc);
  return absl::StrFormat("%s, %02d %s %04d %02d:%02d:%02d GMT", kDays.at(utc.tm_wday), utc.tm_mday,
                         kMonths.at(utc.tm_mon), 1900 + utc.tm_year, utc.tm_hour, utc.tm_min,
                         utc.tm_sec);
}

std::string HeadText(const Response& response, bool keep_alive, Framing framing) {
  const StatusText& status = TextOf(response.status);
  std::string head = absl::StrCat("HTTP/1.1 ", status.number, " ", status.text, "\r\n");
  if (HasBody(response.status))
    absl::StrAppend(&head, "Content-Type: ", response.content_type, "\r\n");
  if (framing == Framing::kChunked) {
    absl::StrAppend(&head, "Transfer-Encoding: chunked\r\n");
  } else if (framing == Framing::kLength && HasBody(response.status)) {
    absl::StrAppend(&head, "Content-Length: ", response.body == nullptr ? 0 : response.body->size(),
                    "\r\n");
  }
  absl::StrAppend(&head, "Vary: Accept-Encoding\r\n");
  if (response.gzip) absl::StrAppend(&head, "Content-Encoding: gzip\r\n");
  for (const auto& [name, value] : response.headers)
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  return absl::StrCat(head, "Connection: ", keep_alive ? "keep-alive" : "close", "\r\n\r\n");
}

}  // namespace semaphored::http
