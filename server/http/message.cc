#include "server/http/message.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace semaphored::http {
namespace {

struct StatusText {
  int number;
  const char* text;
};
constexpr std::array<StatusText, kStatuses> kStatusTexts = {{
    {200, "OK"},
    {400, "Bad Request"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {413, "Content Too Large"},
    {431, "Request Header Fields Too Large"},
}};

const StatusText& TextOf(Status status) { return kStatusTexts[static_cast<size_t>(status)]; }

}  // namespace

int StatusNumber(Status status) { return TextOf(status).number; }

Response Refusal(Status status) {
  Response response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::make_shared<std::string>(absl::StrCat(TextOf(status).text, "\n"));
  return response;
}

std::string HeadText(const Response& response, bool keep_alive) {
  const StatusText& status = TextOf(response.status);
  std::string head = absl::StrCat(
      "HTTP/1.1 ", status.number, " ", status.text, "\r\nContent-Type: ", response.content_type,
      "\r\nContent-Length: ", response.body == nullptr ? 0 : response.body->size(),
      "\r\nVary: Accept-Encoding\r\n");
  if (response.gzip) absl::StrAppend(&head, "Content-Encoding: gzip\r\n");
  if (response.status == Status::kMethodNotAllowed) absl::StrAppend(&head, "Allow: GET, HEAD\r\n");
  return absl::StrCat(head, "Connection: ", keep_alive ? "keep-alive" : "close", "\r\n\r\n");
}

}  // namespace semaphored::http
