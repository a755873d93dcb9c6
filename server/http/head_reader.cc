// The only file that includes Boost.Beast, which takes longer to compile than the rest of the folder.
#include "server/http/head_reader.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

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

Head HeadOf(const Parser& parser) {
  const auto& asked = parser.get();
  const std::string_view target(asked.target().data(), asked.target().size());
  const size_t path_end = target.find('?');
  Head head;
  head.request.path = target.substr(0, path_end);
  if (path_end != target.npos) head.request.query = target.substr(path_end + 1);
  const auto encoding = asked[field::accept_encoding];
  head.request.takes_gzip = TakesGzip({encoding.data(), encoding.size()});
  if (asked.method() == verb::get) head.method = Head::Method::kGet;
  if (asked.method() == verb::head) head.method = Head::Method::kHead;
  head.keep_alive = asked.keep_alive();
  head.has_body = parser.chunked() || parser.content_length().value_or(0) > 0;
  return head;
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
  return HeadOf(parser);
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
  std::copy(buffer_.begin() + static_cast<ptrdiff_t>(size),
            buffer_.begin() + static_cast<ptrdiff_t>(filled_), buffer_.begin());
  filled_ -= size;
  searched_ = 0;
  return result;
}

}  // namespace semaphored::http
