// A request and its answer, as values, and the answer's head as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace semaphored::http {

enum class Status : uint8_t {
  kOk,
  kBadRequest,
  kNotFound,
  kMethodNotAllowed,
  kContentTooLarge,
  kHeadTooLarge,
  kCount  // The number of them.
};
inline constexpr auto kStatuses = static_cast<size_t>(Status::kCount);
// 200, …
int StatusNumber(Status status);

struct Request {
  std::string path;   // As it was sent, not decoded: "/metrics".
  std::string query;  // What follows the question mark.
  bool takes_gzip = false;
};

struct Response {
  Status status = Status::kOk;
  std::string content_type;
  bool gzip = false;                        // The body is compressed; for a Request that takes it.
  std::shared_ptr<const std::string> body;  // May be shared by many answers. Null: empty.
};

// In words, without a compressed body: what went wrong.
Response Refusal(Status status);

// The status line and the headers, with the empty line behind them.
std::string HeadText(const Response& response, bool keep_alive);

}  // namespace semaphored::http
