// Bodies of requests, answers without an end, and clients that go.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <deque>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "server/http/head_reader.h"
#include "server/http/server.h"

namespace semaphored::http {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr int kRequestsBoundMs = 20'000;
constexpr size_t kBodyMax = 100'000;

// One that speaks to the server byte by byte. Owns the descriptor.
class ByteClient {
 public:
  explicit ByteClient(const std::string& address)
      : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int receive_bytes = 4'096;
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    REQUIRE(connect(descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  }
  ByteClient(const ByteClient&) = delete;
  ByteClient& operator=(const ByteClient&) = delete;
  ~ByteClient() { Close(); }

  void Close() {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  }
  void EndSending() const { shutdown(descriptor_, SHUT_WR); }
  void Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // All that comes until `last` has, or the end.
  std::string ReadUntil(std::string_view last) const {
    std::string got;
    std::array<char, 65'536> part{};
    while (last.empty() || got.find(last) == got.npos) {
      pollfd file{descriptor_, POLLIN, 0};
      REQUIRE(poll(&file, 1, kRequestsBoundMs) == 1);
      const ssize_t count = recv(descriptor_, part.data(), part.size(), 0);
      if (count <= 0) break;
      got.append(part.data(), static_cast<size_t>(count));
    }
    return got;
  }
  std::string ReadAll() const { return ReadUntil(""); }

 private:
  int descriptor_;
};

// /echo answers with the body's length and beginning; /wait keeps its replies; /events keeps its streams.
class RequestsFixture {
 public:
  explicit RequestsFixture(ServerOptions options = {}) {
    options.listen = "127.0.0.1:0";
    options.clock = &SystemClock();
    Resources resources;
    resources.emplace("/echo", Resource(Method::kPost, kBodyMax, [](Request request, Reply reply) {
                        Response response;
                        response.content_type = "text/plain";
                        response.body =
                            std::make_shared<std::string>(std::to_string(request.body.size()) +
                                                          ":" + request.body.substr(0, 10) + "\n");
                        reply(std::move(response));
                      }));
    resources.emplace("/wait", [this](const Request&, Reply reply) {
      reply.OnGone([this] { ++gone_; });
      const std::lock_guard lock(mutex_);
      replies_.push_back(std::move(reply));
      ++asked_;
    });
    resources.emplace("/drop", Resource(Method::kPost, kBodyMax, [this](Request, Reply reply) {
                        reply.DropBody();
                        const std::lock_guard lock(mutex_);
                        replies_.push_back(std::move(reply));
                        ++asked_;
                      }));
    resources.emplace("/events", [this](const Request&, const Reply& reply) {
      Stream::Events events;
      events.on_drained = [this] { ++drained_; };
      events.on_gone = [this] { ++gone_; };
      const std::lock_guard lock(mutex_);
      streams_.push_back(reply.Begin({}, std::move(events)));
      ++asked_;
    });
    auto server = Server::Start(options, std::move(resources));
    REQUIRE(server.ok());
    server_ = *std::move(server);
  }

  Server& server() { return *server_; }
  const std::string& address() const { return server_->address(); }
  void WaitFor(const std::function<bool()>& holds) const {
    const SteadyTime end = SystemClock().Now() + Milliseconds(kRequestsBoundMs);
    while (!holds()) {
      REQUIRE(SystemClock().Now() < end);
      std::this_thread::sleep_for(Milliseconds(1));
    }
  }
  void WaitForAsked(int count) const {
    WaitFor([&] { return asked_ == count; });
  }
  StreamPtr stream(size_t index = 0) {
    const std::lock_guard lock(mutex_);
    return streams_.at(index);
  }
  Reply reply(size_t index = 0) {
    const std::lock_guard lock(mutex_);
    return replies_.at(index);
  }
  std::string Ask(std::string_view bytes) const {
    const ByteClient client(address());
    client.Send(bytes);
    return client.ReadAll();
  }
  int gone() const { return gone_; }
  int drained() const { return drained_; }
  uint64_t closed(Closed reason) const {
    return server_->figures().closed[static_cast<size_t>(reason)];
  }

 private:
  std::atomic<int> asked_ = 0;
  std::atomic<int> gone_ = 0;
  std::atomic<int> drained_ = 0;
  std::mutex mutex_;
  std::vector<Reply> replies_;      // Guarded by mutex_.
  std::vector<StreamPtr> streams_;  // Guarded by mutex_.
  std::unique_ptr<Server> server_;
};

// Whether the system asks the silent client of the server's only connection for a sign of life.
bool ProbesSilentClient(const std::string& address) {
  std::array<char, 32> own{};
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  std::snprintf(own.data(), own.size(), "0100007F:%04X", static_cast<unsigned>(port));
  std::ifstream file("/proc/self/net/tcp");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string number;
    std::string local;
    std::string remote;
    std::string state;
    std::string queues;
    std::string timer;
    words >> number >> local >> remote >> state >> queues >> timer;
    if (local == own.data() && state == "01") return timer.starts_with("02:");
  }
  return false;
}

constexpr char kEvents[] = "GET /events HTTP/1.1\r\nHost: h\r\n\r\n";
constexpr char kWait[] = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";
constexpr char kGoOn[] = "HTTP/1.1 100 Continue\r\n\r\n";

Response Done() {
  Response response;
  response.content_type = "text/plain";
  response.body = std::make_shared<std::string>("done\n");
  return response;
}

}  // namespace

TEST_CASE("http: a body by its length, in chunks, and byte by byte", "[http]") {
  const RequestsFixture fixture;
  CHECK_THAT(
      fixture.Ask("POST /echo HTTP/1.1\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"),
      ContainsSubstring("5:hello\n"));
  CHECK_THAT(fixture.Ask("POST /echo HTTP/1.1\r\nConnection: close\r\n\r\n"),
             ContainsSubstring("0:\n"));
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
      "2\r\nhe\r\n3;name=value\r\nllo\r\n0\r\n\r\n";
  CHECK_THAT(fixture.Ask(chunked), ContainsSubstring("5:hello\n"));
  const ByteClient slow(fixture.address());
  for (const char each : chunked) slow.Send(std::string_view(&each, 1));
  CHECK_THAT(slow.ReadAll(), ContainsSubstring("5:hello\n"));
}

TEST_CASE("http: requests with bodies, one behind the other", "[http]") {
  const RequestsFixture fixture;
  const std::string large(kBodyMax, 'x');
  const std::string request =
      "POST /echo HTTP/1.1\r\nContent-Length: " + std::to_string(large.size()) + "\r\n\r\n" + large;
  const ByteClient client(fixture.address());
  std::thread sender([&] {
    client.Send(request + "POST /echo HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi" + request);
  });
  // Three answers, of which a read may bring more than one.
  const std::string large_answer = "100000:xxxxxxxxxx\n";
  std::string answers;
  while (answers.find(large_answer) == answers.rfind(large_answer))
    answers += client.ReadUntil("\n");
  sender.join();
  CHECK_THAT(answers, ContainsSubstring(" 200 OK") && ContainsSubstring("2:hi\n"));
}

TEST_CASE("http: bodies that are refused", "[http]") {
  const RequestsFixture fixture;
  const std::pair<std::string, std::string> refused[] = {
      {"POST /echo HTTP/1.1\r\nContent-Length: 100001\r\n\r\n", " 413 "},
      {"POST /echo HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n", " 413 "},
      {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n186a1\r\n", " 413 "},
      {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", " 400 "},
      {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", " 400 "},
      {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(9'000, 'x'),
       " 400 "},
      {"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", " 400 "},
      {"GET /wait HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", " 413 "},
      {"GET /echo HTTP/1.1\r\n\r\n", " 405 "},
  };
  for (const auto& [request, status] : refused) {
    CAPTURE(request.substr(0, 80));
    CHECK_THAT(fixture.Ask(request), ContainsSubstring(status));
  }
}

TEST_CASE("http: a body that takes too long, and bodies that are too much together", "[http]") {
  ServerOptions options;
  options.body_timeout = Milliseconds(300);
  options.bodies_bytes_max = kBodyMax + kBodyMax / 2;
  const RequestsFixture fixture(options);
  const std::string head =
      "POST /echo HTTP/1.1\r\nContent-Length: " + std::to_string(kBodyMax) + "\r\n\r\n";
  CHECK_THAT(fixture.Ask(head + "x"), ContainsSubstring("HTTP/1.1 408 Request Timeout\r\n"));
  CHECK_THAT(fixture.Ask(head), ContainsSubstring("HTTP/1.1 408 Request Timeout\r\n"));
  CHECK(fixture.closed(Closed::kSlow) == 2);
  const ByteClient first(fixture.address());
  first.Send(head + std::string(kBodyMax - 1, 'x'));
  const ByteClient second(fixture.address());
  second.Send(head + std::string(kBodyMax - 1, 'x'));
  fixture.WaitFor([&] { return fixture.closed(Closed::kCrowded) >= 1; });
}

TEST_CASE("http: a body that its handler keeps no more takes no room from others", "[http]") {
  ServerOptions options;
  options.bodies_bytes_max = kBodyMax + kBodyMax / 2;
  const RequestsFixture fixture(options);
  const std::string request =
      "POST /drop HTTP/1.1\r\nContent-Length: " + std::to_string(kBodyMax) + "\r\n\r\n";
  std::deque<ByteClient> clients;
  for (int asked = 1; asked <= 4; ++asked) {
    clients.emplace_back(fixture.address()).Send(request + std::string(kBodyMax, 'x'));
    fixture.WaitForAsked(asked);
  }
  CHECK(fixture.closed(Closed::kCrowded) == 0);
}

TEST_CASE("http: a request is checked before its body is read", "[http]") {
  ServerOptions options;
  options.headers = {{"X-Of-All", "yes"}};
  options.check = [](const Request& request) -> std::optional<Response> {
    if (request.Header("x-good")) return std::nullopt;
    return Refusal(Status::kForbidden);
  };
  const RequestsFixture fixture(options);
  const std::string answer = fixture.Ask("POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n");
  CHECK_THAT(answer, ContainsSubstring(" 403 Forbidden\r\n"));
  CHECK_THAT(answer, ContainsSubstring("X-Of-All: yes\r\n"));
  CHECK_THAT(fixture.Ask("POST /echo HTTP/1.1\r\nX-Good: 1\r\nConnection: close\r\n\r\n"),
             ContainsSubstring(" 200 "));
}

TEST_CASE("http: what it refuses by itself has the form that its owner gives", "[http]") {
  ServerOptions options;
  options.refusal = [](Status status) {
    Response response;
    response.status = status;
    response.content_type = "application/json";
    response.body = std::make_shared<std::string>("{}");
    return response;
  };
  const RequestsFixture fixture(options);
  for (const char* const request :
       {"nonsense\r\n\r\n", "GET /none HTTP/1.1\r\n\r\n", "GET /echo HTTP/1.1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 100001\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    CAPTURE(request);
    const std::string answer = fixture.Ask(request);
    CHECK_THAT(answer, ContainsSubstring("Content-Type: application/json\r\n"));
    CHECK(answer.ends_with("\r\n\r\n{}"));
  }
}

TEST_CASE("http: a handler learns that its client has gone", "[http]") {
  RequestsFixture fixture;
  ByteClient goes(fixture.address());
  goes.Send(kWait);
  fixture.WaitForAsked(1);
  CHECK(fixture.gone() == 0);
  goes.Close();
  fixture.WaitFor([&] { return fixture.gone() == 1; });
  fixture.reply()({});  // Without effect.

  const ByteClient stays(fixture.address());
  stays.Send(kWait);
  fixture.WaitForAsked(2);
  fixture.reply(1)(Done());
  fixture.reply(1)(Done());  // Only the first counts.
  CHECK_THAT(stays.ReadUntil("done\n"), ContainsSubstring(" 200 OK"));
  stays.Send(kWait);
  fixture.WaitForAsked(3);
  fixture.reply(2)(Done());
  CHECK_THAT(stays.ReadUntil("done\n"), ContainsSubstring(" 200 OK"));
  CHECK(fixture.gone() == 1);
}

TEST_CASE("http: a client that sends no more is answered, and noticed when it goes", "[http]") {
  ServerOptions options;
  options.silence_timeout = Milliseconds(100);
  RequestsFixture fixture(options);
  const ByteClient half(fixture.address());
  half.Send(std::string(kWait) + kWait);
  half.EndSending();
  half.ReadUntil(kGoOn);
  fixture.reply(0)(Done());
  CHECK_THAT(half.ReadUntil("done\n"), ContainsSubstring(" 200 OK"));
  half.ReadUntil(kGoOn);
  fixture.reply(1)(Done());
  CHECK_THAT(half.ReadAll(), ContainsSubstring(" 200 OK"));
  CHECK(fixture.gone() == 0);

  ByteClient goes(fixture.address());
  goes.Send(kWait);
  goes.EndSending();
  goes.ReadUntil(kGoOn);
  goes.Close();
  fixture.WaitFor([&] { return fixture.gone() == 1; });

  // For a stream its end is its end.
  const ByteClient streams(fixture.address());
  streams.Send(kWait);
  streams.EndSending();
  streams.ReadUntil(kGoOn);
  std::atomic<bool> gone = false;
  Stream::Events events;
  events.on_gone = [&gone] { gone = true; };
  fixture.reply(3).Begin({}, std::move(events));
  fixture.WaitFor([&] { return gone && fixture.server().figures().connections == 0; });
}

TEST_CASE("http: a client goes that has sent some of its next request", "[http]") {
  RequestsFixture fixture;
  ByteClient goes(fixture.address());
  goes.Send(kWait);
  fixture.WaitForAsked(1);
  goes.Send("GET /wait HTTP/1.1");
  goes.Close();
  fixture.WaitFor([&] { return fixture.gone() == 1; });
  fixture.WaitFor([&] { return fixture.server().figures().connections == 0; });
}

TEST_CASE("http: a machine that vanishes is noticed while a handler waits", "[http]") {
  RequestsFixture fixture;
  const ByteClient client(fixture.address());
  client.Send(kWait);
  fixture.WaitForAsked(1);
  CHECK(ProbesSilentClient(fixture.address()));
}

TEST_CASE("http: events are sent as they come, until the end", "[http]") {
  RequestsFixture fixture;
  const ByteClient client(fixture.address());
  client.Send(kEvents);
  fixture.WaitForAsked(1);
  const std::string head = client.ReadUntil("\r\n\r\n");
  CHECK_THAT(head, ContainsSubstring("Content-Type: text/event-stream\r\n"));
  CHECK_THAT(head, ContainsSubstring("Transfer-Encoding: chunked\r\n"));
  CHECK(fixture.stream()->Send("one", "1"));
  CHECK_THAT(client.ReadUntil("data: 1\n\n\r\n"), ContainsSubstring("event: one\n"));
  fixture.WaitFor([&] { return fixture.drained() == 1; });
  CHECK(fixture.stream()->Send("", "a\nb"));
  CHECK_THAT(client.ReadUntil("data: b\n\n\r\n"), ContainsSubstring("data: a\n"));
  CHECK(fixture.stream()->Send("last", "x"));
  fixture.stream()->End();
  CHECK_FALSE(fixture.stream()->Send("late", "x"));
  const std::string rest = client.ReadAll();
  CHECK_THAT(rest, ContainsSubstring("event: last\ndata: x\n\n"));
  CHECK(rest.ends_with("0\r\n\r\n"));
  CHECK(fixture.gone() == 0);

  const ByteClient old(fixture.address());
  old.Send("GET /events HTTP/1.0\r\n\r\n");
  fixture.WaitForAsked(2);
  CHECK(fixture.stream(1)->Send("one", "1"));
  fixture.stream(1)->End();
  CHECK(old.ReadAll().ends_with("\r\n\r\nevent: one\ndata: 1\n\n"));
}

TEST_CASE("http: HEAD of a stream has its head alone", "[http]") {
  RequestsFixture fixture;
  const std::string answer = fixture.Ask("HEAD /events HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK_THAT(answer, ContainsSubstring(" 200 OK") && ContainsSubstring("text/event-stream\r\n"));
  CHECK(answer.find("Content-Length") == answer.npos);
  CHECK(answer.ends_with("Connection: close\r\n\r\n"));
  fixture.WaitFor([&] { return fixture.gone() == 1; });
  CHECK_FALSE(fixture.stream()->Send("one", "1"));
}

TEST_CASE("http: a stream whose client goes, or does not read, or that is silent", "[http]") {
  ServerOptions options;
  options.stream_bytes_max = 10'000;
  options.silence_timeout = Milliseconds(100);
  RequestsFixture fixture(options);
  ByteClient goes(fixture.address());
  goes.Send(kEvents);
  fixture.WaitForAsked(1);
  CHECK_THAT(goes.ReadUntil(":\n\n"), ContainsSubstring(" 200 OK"));  // Something in the silence.
  goes.Close();
  fixture.WaitFor([&] { return fixture.gone() == 1; });
  CHECK_FALSE(fixture.stream()->Send("one", "1"));

  const ByteClient lazy(fixture.address());
  lazy.Send(kEvents);
  fixture.WaitForAsked(2);
  const std::string event(1'000, 'x');
  fixture.WaitFor([&] { return !fixture.stream(1)->Send("one", event); });
  fixture.WaitFor([&] { return fixture.gone() == 2; });
  CHECK(fixture.closed(Closed::kSlow) == 1);
}

TEST_CASE("http: what is busy stays, and a new connection is refused", "[http]") {
  ServerOptions options;
  options.connections_max = 4;  // Of one address at most three.
  options.keeps_busy = true;
  RequestsFixture fixture(options);
  const ByteClient waits(fixture.address());
  waits.Send(kWait);
  const ByteClient streams(fixture.address());
  streams.Send(kEvents);
  fixture.WaitForAsked(2);
  ByteClient idle(fixture.address());
  fixture.WaitFor([&] { return fixture.server().figures().connections == 3; });
  // The idle one goes for a new one.
  const ByteClient another(fixture.address());
  another.Send(kWait);
  fixture.WaitForAsked(3);
  CHECK(idle.ReadAll().empty());
  const ByteClient refused(fixture.address());
  CHECK_THAT(refused.ReadAll(), ContainsSubstring(" 503 Service Unavailable"));
  CHECK(fixture.gone() == 0);
}

TEST_CASE("http: it stops when what it has begun is done, or its time is over", "[http]") {
  RequestsFixture fixture;
  const ByteClient waits(fixture.address());
  waits.Send(kWait);
  const ByteClient streams(fixture.address());
  streams.Send(kEvents);
  fixture.WaitForAsked(2);
  std::thread stopping([&] { fixture.server().Stop(Milliseconds(kRequestsBoundMs)); });
  Response response;
  response.content_type = "text/plain";
  response.body = std::make_shared<std::string>("done\n");
  fixture.reply()(std::move(response));
  CHECK(fixture.stream()->Send("last", "x"));
  fixture.stream()->End();
  CHECK_THAT(waits.ReadAll(), ContainsSubstring("done\n"));
  CHECK_THAT(streams.ReadAll(), ContainsSubstring("event: last"));
  stopping.join();  // At once: both have gone, or go within the second that the server lingers.
}

}  // namespace semaphored::http
