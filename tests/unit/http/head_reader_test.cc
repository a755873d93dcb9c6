#include "server/http/head_reader.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "server/http/gzip.h"

namespace semaphored::http {
namespace {

void FeedHeads(HeadReader* reader, std::string_view bytes) {
  const std::span<char> room = reader->Room();
  REQUIRE(room.size() >= bytes.size());
  std::ranges::copy(bytes, room.begin());
  reader->Filled(bytes.size());
}

Head OneHead(const std::string& text) {
  HeadReader reader;
  FeedHeads(&reader, text);
  const auto result = reader.Next();
  REQUIRE(result.has_value());
  REQUIRE(std::holds_alternative<Head>(*result));
  return std::get<Head>(*result);
}

bool IsRefused(const std::string& text, Status status) {
  HeadReader reader;
  FeedHeads(&reader, text);
  const auto result = reader.Next();
  return result && std::holds_alternative<Status>(*result) && std::get<Status>(*result) == status;
}

bool TakesGzipIf(const std::string& accepts) {
  return OneHead("GET / HTTP/1.1\r\nAccept-Encoding: " + accepts + "\r\n\r\n").request.takes_gzip;
}

}  // namespace

TEST_CASE("http: a head comes byte by byte, the next one behind it", "[http]") {
  const std::string text =
      "GET /metrics?a=b HTTP/1.1\r\nHost: h\r\n\r\nHEAD / HTTP/1.0\r\n\r\nPOST /x";
  HeadReader reader;
  std::vector<Head> heads;
  for (const char each : text) {
    FeedHeads(&reader, std::string_view(&each, 1));
    if (auto result = reader.Next()) heads.push_back(std::get<Head>(*result));
  }
  REQUIRE(heads.size() == 2);
  CHECK(heads[0].request.method == Method::kGet);
  CHECK(heads[0].request.path == "/metrics");
  CHECK(heads[0].request.query == "a=b");
  CHECK(heads[0].keep_alive);
  CHECK(heads[1].request.method == Method::kHead);
  CHECK_FALSE(heads[1].keep_alive);
  CHECK(reader.begun());
}

TEST_CASE("http: several heads at once", "[http]") {
  HeadReader reader;
  FeedHeads(&reader, "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nConnection: close\r\n\r\nGET");
  CHECK(std::get<Head>(*reader.Next()).request.path == "/1");
  const Head second = std::get<Head>(*reader.Next());
  CHECK(second.request.path == "/2");
  CHECK_FALSE(second.keep_alive);
  CHECK_FALSE(reader.Next().has_value());
}

TEST_CASE("http: a body is seen", "[http]") {
  CHECK(OneHead("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").has_body());
  CHECK(OneHead("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").has_body());
  CHECK_FALSE(OneHead("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").has_body());
  CHECK(OneHead("BREW / HTTP/1.1\r\n\r\n").request.method == Method::kOther);
}

TEST_CASE("http: what is no head is refused", "[http]") {
  CHECK(IsRefused("\r\n\r\n", Status::kBadRequest));
  CHECK(IsRefused("GET /\r\n\r\n", Status::kBadRequest));
  CHECK(IsRefused("GET / HTTP/2.0\r\n\r\n", Status::kBadRequest));
  CHECK(IsRefused("GET / HTTP/1.1\r\nno colon\r\n\r\n", Status::kBadRequest));
  CHECK(IsRefused(std::string("GET /\0 HTTP/1.1\r\n\r\n", 19), Status::kBadRequest));
  CHECK(IsRefused("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", Status::kBadRequest));
  // Another server before this one might read a body where none is seen here.
  for (const char* coding : {"gzip", "chunked, gzip", "gzip, chunked", "xchunked", "identity", ""})
    CHECK(IsRefused("POST / HTTP/1.1\r\nTransfer-Encoding: " + std::string(coding) + "\r\n\r\n",
                    Status::kBadRequest));
  CHECK(IsRefused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Status::kBadRequest));
  CHECK(IsRefused("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\n",
                  Status::kBadRequest));
  CHECK(IsRefused("\x16\x03\x01\x02\r\n\r\n", Status::kBadRequest));
  CHECK(IsRefused("GET / HTTP/1.1\r\nA: " + std::string(kHeadBytesMax - 19, 'a'),
                  Status::kHeadTooLarge));
}

TEST_CASE("http: gzip is taken if it is accepted", "[http]") {
  CHECK(TakesGzipIf("gzip"));
  CHECK(TakesGzipIf("deflate, gzip;q=0.5, br"));
  CHECK_FALSE(TakesGzipIf("identity"));
  CHECK_FALSE(TakesGzipIf("gzip;q=0"));
  CHECK_FALSE(TakesGzipIf("gzip; q=0.000"));
  CHECK_FALSE(TakesGzipIf(""));
  const std::string text(100'000, 'a');
  const std::string packed = Gzip(text);
  CHECK(packed.size() < 1'000);
  CHECK(packed.starts_with("\x1f\x8b"));
}

}  // namespace semaphored::http
