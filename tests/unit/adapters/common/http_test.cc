// Requests over HTTP, before a server that answers as the test says.
#include "adapters/common/http.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/loopback_http.h"

namespace semaphored {
namespace {

using Fault = HttpAnswer::Fault;
using HttpSaid = LoopbackHttp::Answer;

constexpr std::chrono::milliseconds kHttpBound{20'000};

HttpRequest RequestAt(const std::string& address) {
  HttpRequest request;
  request.address = address;
  request.timeout = kHttpBound;
  return request;
}

TEST_CASE("http: an answer, and the one header of it that is kept") {
  LoopbackHttp server([](const LoopbackHttp::Request&, int) {
    return HttpSaid{404, "text", {"x-other: 1", "x-INDEX:  7 "}, false};
  });
  HttpOptions options;
  options.header = "X-Index";
  HttpClient client(options);
  const std::string body = "sent";
  HttpRequest request = RequestAt(server.address() + "/a");
  request.method = "PUT";
  request.headers = {"X-Mine: yes"};
  request.body = &body;
  const HttpAnswer answer = client.Send(request);
  CHECK(answer.fault == Fault::kNone);
  CHECK(answer.http_status == 404);
  CHECK(answer.body == "text");
  CHECK(answer.header == "7");
  CHECK(answer.times_sent == 1);
  request.method = "GET";
  request.body = nullptr;
  CHECK(client.Send(request).http_status == 404);
  const std::vector<LoopbackHttp::Request> seen = server.requests();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].method == "PUT");
  CHECK(seen[0].path == "/a");
  CHECK(seen[0].header("x-mine") == "yes");
  CHECK(seen[0].header("expect").empty());
  CHECK(seen[0].body == "sent");
  CHECK(seen[1].method == "GET");
  CHECK(seen[1].body.empty());
  CHECK(seen[1].connection == 1);
}

TEST_CASE("http: what is no address of http is not sent") {
  HttpClient client({});
  for (const char* address : {"", "ftp://127.0.0.1/", "file:///etc/passwd"}) {
    INFO(address);
    const HttpAnswer answer = client.Send(RequestAt(address));
    CHECK(answer.fault == Fault::kAddress);
    CHECK(answer.times_sent == 0);
    CHECK_FALSE(answer.why.empty());
  }
}

// Run by hanging_resolver.py, where no name is resolved.
TEST_CASE("http: a resolver that hangs holds up no request beyond its time",
          "[.hanging-resolver]") {
  HttpRequest request = RequestAt("http://nothing.example:1/");
  request.timeout = std::chrono::milliseconds(500);
  const auto begun = SteadyClock::now();
  HttpClient client({});
  CHECK(client.Send(request).fault == Fault::kTimeOut);
  HttpPool pool;
  HttpClient of_pool({});
  Fault fault = Fault::kNone;
  REQUIRE(pool.Start(&of_pool, request, [&](const HttpAnswer& answer) { fault = answer.fault; }));
  while (!pool.Turn()) pool.Wait(std::chrono::milliseconds(100));
  CHECK(fault == Fault::kTimeOut);
  // glibc's resolver gives up after 5 s at the earliest.
  CHECK(SteadyClock::now() - begun < std::chrono::seconds(4));
}

TEST_CASE("http: an answer that is longer than it may be is none") {
  LoopbackHttp server([](const LoopbackHttp::Request&, int number) {
    return HttpSaid{200, std::string(number == 1 ? 10 : 11, 'a'), {}, false};
  });
  HttpOptions options;
  options.answer_bytes_max = 10;
  HttpClient client(options);
  CHECK(client.Send(RequestAt(server.address())).body.size() == 10);
  const HttpAnswer answer = client.Send(RequestAt(server.address()));
  CHECK(answer.fault == Fault::kOther);
  CHECK(answer.times_sent == 1);
}

TEST_CASE("http: a kept connection that ends without an answer") {
  LoopbackHttp server([](const LoopbackHttp::Request&, int number) {
    return HttpSaid{200, "", {}, /*lose=*/number == 2};
  });
  HttpClient client({});
  HttpRequest request = RequestAt(server.address());
  REQUIRE(client.Send(request).fault == Fault::kNone);
  SECTION("it may be sent again") {
    const HttpAnswer answer = client.Send(request);
    CHECK(answer.fault == Fault::kNone);
    CHECK(answer.times_sent == 2);
    CHECK(server.requests().size() == 3);
  }
  SECTION("it is sent once") {
    request.once = true;
    const HttpAnswer answer = client.Send(request);
    CHECK(answer.fault == Fault::kOther);
    CHECK(answer.why == "the connection ended before the answer came");
    CHECK(answer.times_sent == 1);
    CHECK(server.requests().size() == 2);
  }
}

TEST_CASE("http: in a pool a request may follow from an answer, and be given up") {
  std::atomic<bool> answers{false};
  LoopbackHttp server([&](const LoopbackHttp::Request& request, int) {
    while (request.path == "/never" && !answers) std::this_thread::yield();
    return HttpSaid{200, request.path, {}, false};
  });
  HttpPool pool;
  HttpClient client({});
  auto waiting = std::make_unique<HttpClient>(HttpOptions());
  std::vector<std::string> heard;
  bool heard_never = false;
  REQUIRE(pool.Start(waiting.get(), RequestAt(server.address() + "/never"),
                     [&](const HttpAnswer&) { heard_never = true; }));
  REQUIRE(pool.Start(&client, RequestAt(server.address() + "/one"), [&](const HttpAnswer& one) {
    heard.push_back(one.body);
    CHECK_FALSE(client.under_way());
    CHECK(pool.Start(&client, RequestAt(server.address() + "/two"),
                     [&](const HttpAnswer& two) { heard.push_back(two.body); }));
  }));
  while (heard.size() < 2) {
    if (!pool.Turn()) pool.Wait(kHttpBound);
  }
  CHECK(heard == std::vector<std::string>{"/one", "/two"});
  CHECK_FALSE(client.under_way());
  CHECK(waiting->under_way());
  waiting.reset();
  answers = true;
  CHECK_FALSE(pool.Turn());
  CHECK_FALSE(heard_never);
  // It is not slept through.
  pool.Wake();
  pool.Wait(kHttpBound);
}

TEST_CASE("http: a Date as Unix time") {
  CHECK(UnixTimeOfHttpDate("Thu, 01 Jan 1970 00:01:00 GMT") == 60);
  CHECK(UnixTimeOfHttpDate("") == std::nullopt);
}

}  // namespace
}  // namespace semaphored
