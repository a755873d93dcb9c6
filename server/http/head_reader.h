// Cuts the bytes of a connection into the heads of requests, and reads those. It knows no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "server/http/message.h"

namespace semaphored::http {

// Of a request's line and its headers; more is refused.
inline constexpr size_t kHeadBytesMax = 8 << 10;

struct Head {
  enum class Method : uint8_t { kGet, kHead, kOther };
  Method method = Method::kOther;
  Request request;
  bool keep_alive = false;  // As the client wants it.
  bool has_body = false;    // Bytes follow that belong to the request.
};

// Used by one thread. Takes kHeadBytesMax of memory.
class HeadReader {
 public:
  HeadReader() : buffer_(kHeadBytesMax, '\0') {}

  // Where bytes that have come are to be written, and how many have been. The room is empty only
  // after Next() has returned a refusal.
  std::span<char> Room() { return std::span(buffer_).subspan(filled_); }
  void Filled(size_t bytes) { filled_ += bytes; }
  // Bytes are there that belong to no head yet.
  bool begun() const { return filled_ > 0; }

  // Takes the next head out of what has come. nullopt: it is not all there. A status: it is too
  // long, or no head of HTTP/1; where the next one begins is then not known.
  using Result = std::variant<Head, Status>;
  std::optional<Result> Next();

 private:
  std::string buffer_;
  size_t filled_ = 0;
  size_t searched_ = 0;  // No head ends before.
};

}  // namespace semaphored::http
