// The only file that includes Boost.Beast, which takes longer to compile than the rest of the folder.
#include "server/http/head_reader.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace semaphored::http {
namespace {

using Parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;
using boost::beast::http::field;
using boost::beast::http::verb;

constexpr std::string_view kEnd = "\r\n\r\n";

// Takes what stands before the first `mark` off the text, and the mark with it.
std::string_view TakeUntil(char mark, std::string_view* text) {
  const size_t end = std::min(text->find(mark), text->size());
  std::string_view piece = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  while (piece.starts_with(' ')) piece.remove_prefix(1);
  while (piece.ends_with(' ')) piece.remove_suffix(1);
  return piece;
}

// A weight of zero is a refusal: "gzip;q=0".
bool TakesGzip(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    std::string_view coding = TakeUntil(',', &accept_encoding);
    if (TakeUntil(';', &coding) != "gzip") continue;
    const std::string_view weight = TakeUntil(';', &coding);
    return !weight.starts_with("q=0") || weight.find_first_of("123456789") != weight.npos;
  }
  return false;
}

Method MethodOf(verb method) {
  switch (method) {
    case verb::get:
      return Method::kGet;
    case verb::head:
      return Method::kHead;
    case verb::post:
      return Method::kPost;
    case verb::delete_:
      return Method::kDelete;
    default:  // Beast knows many more.
      return Method::kOther;
  }
}

Head HeadOf(const Parser& parser) {
  const auto& asked = parser.get();
  const std::string_view target(asked.target().data(), asked.target().size());
  const size_t path_end = target.find('?');
  Head head;
  Request& request = head.request;
  request.path = target.substr(0, path_end);
  if (path_end != target.npos) request.query = target.substr(path_end + 1);
  const auto encoding = asked[field::accept_encoding];
  request.takes_gzip = TakesGzip({encoding.data(), encoding.size()});
  request.method = MethodOf(asked.method());
  request.is_1_1 = asked.version() >= 11;
  for (const auto& each : asked) {
    request.headers.emplace_back(
        absl::AsciiStrToLower({each.name_string().data(), each.name_string().size()}),
        std::string(each.value().data(), each.value().size()));
  }
  head.keep_alive = asked.keep_alive();
  head.chunked = parser.chunked();
  head.content_length = parser.content_length().value_or(0);
  return head;
}

// Whether it is certain where the body ends: not by a coding that is not known here, which Beast takes for none, and
// whose body would be read as the next request.
bool HasKnownFraming(const Head& head) {
  const Request& request = head.request;
  if (request.Count("transfer-encoding") == 0) return true;
  const std::string_view coding = request.Header("transfer-encoding").value_or("");
  return request.is_1_1 && absl::EqualsIgnoreCase({coding.data(), coding.size()}, "chunked");
}

HeadReader::Result Read(std::string_view text) {
  Parser parser;
  parser.header_limit(kHeadBytesMax);
  // Nothing but the head is looked at. (Without a limit, 1.74 takes no body at all.)
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  boost::system::error_code wrong;
  parser.put(boost::asio::buffer(text.data(), text.size()), wrong);
  using boost::beast::http::error;
  // It may want the body as well, or say that it wants none.
  const bool sound = !wrong || wrong == error::need_more || wrong == error::unexpected_body;
  if (!sound || !parser.is_header_done()) return Status::kBadRequest;
  Head head = HeadOf(parser);
  if (!HasKnownFraming(head)) return Status::kBadRequest;
  return head;
}

}  // namespace

std::optional<HeadReader::Result> HeadReader::Next() {
  const std::string_view text(buffer_.data(), filled_);
  const size_t end = text.find(kEnd, searched_);
  if (end == text.npos) {
    if (filled_ == buffer_.size()) return Status::kHeadTooLarge;
    searched_ = filled_ - std::min(filled_, kEnd.size() - 1);
    return std::nullopt;
  }
  const size_t size = end + kEnd.size();
  Result result = Read(text.substr(0, size));
  Drop(size);
  return result;
}

void HeadReader::Drop(size_t bytes) {
  std::copy(buffer_.begin() + static_cast<ptrdiff_t>(bytes),
            buffer_.begin() + static_cast<ptrdiff_t>(filled_), buffer_.begin());
  filled_ -= bytes;
  searched_ = 0;
}

// ---- bodies ----

struct BodyReader::Parser {
  boost::beast::http::request_parser<boost::beast::http::string_body> beast;
};

BodyReader::BodyReader(const Head& head, size_t bytes_max) : parser_(std::make_unique<Parser>()) {
  if (head.content_length > bytes_max) {
    status_ = Status::kContentTooLarge;
    return;
  }
  parser_->beast.body_limit(bytes_max);
  parser_->beast.eager(true);
  // Of the head the parser needs no more than how the body ends.
  const std::string framing =
      head.chunked
          ? "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
          : absl::StrCat("POST / HTTP/1.1\r\nContent-Length: ", head.content_length, "\r\n\r\n");
  boost::system::error_code ignored;  // It wants more.
  parser_->beast.put(boost::asio::buffer(framing), ignored);
}

BodyReader::~BodyReader() = default;
BodyReader::BodyReader(BodyReader&&) noexcept = default;
BodyReader& BodyReader::operator=(BodyReader&&) noexcept = default;

size_t BodyReader::Read(std::string_view bytes) {
  size_t read = 0;
  while (status_ == Status::kOk && !done() && read < bytes.size()) {
    boost::system::error_code wrong;
    const size_t more =
        parser_->beast.put(boost::asio::buffer(bytes.data() + read, bytes.size() - read), wrong);
    using boost::beast::http::error;
    read += more;
    if (wrong == error::need_more) break;
    if (wrong == error::body_limit) status_ = Status::kContentTooLarge;
    if (wrong && wrong != error::body_limit) status_ = Status::kBadRequest;
    if (!wrong && more == 0) break;
  }
  return read;
}

bool BodyReader::done() const { return parser_->beast.is_done(); }

size_t BodyReader::bytes() const { return parser_->beast.get().body().size(); }

std::string BodyReader::Take() { return std::move(parser_->beast.get().body()); }

}  // namespace semaphored::http
