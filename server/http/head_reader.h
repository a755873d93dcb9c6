// Cuts the bytes of a connection into the heads of requests and their bodies, and reads those. It
// knows no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "server/http/message.h"

namespace semaphored::http {

// Of a request's line and its headers; more is refused.
inline constexpr size_t kHeadBytesMax = 8 << 10;

struct Head {
  Request request;          // Without its body.
  bool keep_alive = false;  // As the client wants it.
  // Bytes follow that belong to the request: so many, or in chunks.
  bool chunked = false;
  uint64_t content_length = 0;
  bool has_body() const { return chunked || content_length > 0; }
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

  // What has come behind the last head, and that so much of it has been read.
  std::string_view rest() const { return {buffer_.data(), filled_}; }
  void Drop(size_t bytes);

 private:
  std::string buffer_;
  size_t filled_ = 0;
  size_t searched_ = 0;  // No head ends before.
};

// Reads the body of one request. Takes as much memory as has come of it.
class BodyReader {
 public:
  // Of the request with this head; REQUIRES: it has a body.
  BodyReader(const Head& head, size_t bytes_max);
  ~BodyReader();
  BodyReader(BodyReader&&) noexcept;
  BodyReader& operator=(BodyReader&&) noexcept;

  // Reads on: `bytes` begin where the last call stopped. Returns how many it has read; the others are
  // to come again, with more behind them.
  size_t Read(std::string_view bytes);
  // kOk: so far it is good. Else the request is to be refused; where the next one begins is not known.
  Status status() const { return status_; }
  bool done() const;
  size_t bytes() const;  // So far.
  std::string Take();    // REQUIRES: done().

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
  Status status_ = Status::kOk;
};

}  // namespace semaphored::http
