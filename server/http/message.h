// A request and its answer, as values, and the answer's head as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace semaphored {
struct CertificateNames;
}

namespace semaphored::http {

enum class Status : uint8_t {
  kOk,
  kNoContent,
  kNotModified,
  kBadRequest,
  kUnauthorized,
  kForbidden,
  kNotFound,
  kMethodNotAllowed,
  kRequestTimeout,
  kConflict,
  kContentTooLarge,
  kUnsupportedMediaType,
  kTooManyRequests,
  kHeadTooLarge,
  kClientClosed,
  kInternal,
  kNotImplemented,
  kUnavailable,
  kGatewayTimeout,
  kCount  // The number of them.
};
inline constexpr auto kStatuses = static_cast<size_t>(Status::kCount);
// 200, …
int StatusNumber(Status status);

enum class Method : uint8_t { kGet, kHead, kPost, kDelete, kOther };

// A set of methods.
class Methods {
 public:
  constexpr Methods() = default;
  constexpr Methods(Method method) : bits_(Bit(method)) {}  // NOLINT: a method is a set.
  constexpr bool Has(Method method) const { return (bits_ & Bit(method)) != 0; }
  constexpr Methods operator|(Methods other) const {
    Methods both;
    both.bits_ = bits_ | other.bits_;
    return both;
  }
  // "GET, HEAD".
  std::string Text() const;

 private:
  static constexpr uint8_t Bit(Method method) {
    return static_cast<uint8_t>(1U << static_cast<unsigned>(method));
  }
  uint8_t bits_ = 0;
};
inline constexpr Methods kReads = Methods(Method::kGet) | Method::kHead;

struct Request {
  Method method = Method::kGet;
  std::string path;   // As it was sent, not decoded: "/metrics".
  std::string query;  // What follows the question mark.
  bool takes_gzip = false;
  bool is_1_1 = true;  // HTTP/1.1; else 1.0, which has no chunks.
  // Names in lower case. As many as fit into a head.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string peer;  // "ipv4:192.0.2.1:4711", "ipv6:[2001:db8::1]:4711".
  // Of the connection's client, as TLS has verified it; null: it has shown none.
  std::shared_ptr<const CertificateNames> certificate;

  // The header's value; nullopt: there is none, or more than one.
  std::optional<std::string_view> Header(std::string_view name) const;
  size_t Count(std::string_view name) const;
};

struct Response {
  Status status = Status::kOk;
  std::string content_type;
  bool gzip = false;                        // The body is compressed; for a Request that takes it.
  std::shared_ptr<const std::string> body;  // May be shared by many answers. Null: empty.
  // Further ones; neither name nor value has a line's end.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// In words, without a compressed body: what went wrong.
Response Refusal(Status status);

// As the header `Date` has it: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string DateText(int64_t unix_s);

// How the body of an answer ends.
enum class Framing : uint8_t { kLength, kChunked, kClose };
// The status line and the headers, with the empty line behind them.
std::string HeadText(const Response& response, bool keep_alive, Framing framing = Framing::kLength);

}  // namespace semaphored::http
