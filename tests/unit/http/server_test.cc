// The HTTP server and clients that are not polite.
#include "server/http/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "absl/strings/match.h"
#include "server/http/head_reader.h"

namespace semaphored::http {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Matches;

constexpr int kHttpBoundMs = 20'000;
constexpr char kGetHello[] = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";

// A client's connection. Owns the descriptor.
class HttpClient {
 public:
  explicit HttpClient(const std::string& address, int receive_bytes = 0)
      : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0)
      setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    REQUIRE(connect(descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  }
  HttpClient(HttpClient&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~HttpClient() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  void Send(std::string_view bytes) const {
    send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // All that comes until `last` has, or the end.
  std::string ReadUntil(std::string_view last) const {
    std::string got;
    std::array<char, 65'536> part{};
    while (last.empty() || !std::string_view(got).ends_with(last)) {
      pollfd file{descriptor_, POLLIN, 0};
      REQUIRE(poll(&file, 1, kHttpBoundMs) == 1);
      const ssize_t count = recv(descriptor_, part.data(), part.size(), 0);
      if (count <= 0) break;
      got.append(part.data(), static_cast<size_t>(count));
    }
    return got;
  }
  std::string ReadAll() const { return ReadUntil(""); }
  std::string Get(std::string_view request = kGetHello) const {
    Send(request);
    return ReadUntil("hello\n");
  }

 private:
  int descriptor_;
};

// A server with /hello, /long (1 MiB) and /never, which keeps its replies.
class HttpServerFixture {
 public:
  explicit HttpServerFixture(ServerOptions options = {}) {
    options.listen = "127.0.0.1:0";
    options.clock = &SystemClock();
    auto server = Server::Start(
        options,
        {{"/hello", Saying("hello\n")},
         {"/long", Saying(std::string(1 << 20, 'x'))},
         {"/never", [this](const Request&, Reply reply) { kept_.push_back(std::move(reply)); }}});
    REQUIRE(server.ok());
    server_ = *std::move(server);
  }

  HttpClient Connect(int receive_bytes = 0) const {
    return HttpClient(server_->address(), receive_bytes);
  }
  Server& server() { return *server_; }
  void WaitFor(const std::function<bool(const ServerFigures&)>& holds) const {
    const SteadyTime end = SystemClock().Now() + Milliseconds(kHttpBoundMs);
    while (!holds(server_->figures())) {
      REQUIRE(SystemClock().Now() < end);
      std::this_thread::sleep_for(Milliseconds(1));
    }
  }
  uint64_t answers(Status status) const {
    return server_->figures().answers[static_cast<size_t>(status)];
  }
  uint64_t closed(Closed reason) const {
    return server_->figures().closed[static_cast<size_t>(reason)];
  }
  std::vector<Reply>& kept() { return kept_; }

 private:
  static Handler Saying(std::string text) {
    auto body = std::make_shared<const std::string>(std::move(text));
    return [body](const Request&, Reply reply) {
      Response response;
      response.content_type = "text/plain";
      response.body = body;
      reply(std::move(response));
    };
  }

  std::vector<Reply> kept_;  // The server's thread's, until it has stopped.
  std::unique_ptr<Server> server_;
};

}  // namespace

TEST_CASE("http: GET, HEAD and what is refused", "[http]") {
  HttpServerFixture fixture;
  CHECK_THAT(fixture.Connect().Get(),
             Matches("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n"
                     "Vary: Accept-Encoding\r\nDate: ..., .. ... .... ..:..:.. GMT\r\n"
                     "Connection: keep-alive\r\n\r\nhello\n"));
  CHECK(DateText(784'111'777) == "Sun, 06 Nov 1994 08:49:37 GMT");
  const HttpClient once = fixture.Connect();
  once.Send("HEAD /hello HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string head = once.ReadAll();
  CHECK_THAT(head, ContainsSubstring("Content-Length: 6\r\n"));
  CHECK(head.ends_with("\r\n\r\n"));
  const std::pair<std::string, std::string> refused[] = {
      {"GET /other HTTP/1.1\r\n\r\n", "404 Not Found\r\n"},
      {"POST /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed\r\n"},
      {"GET /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "413 Content Too Large\r\n"},
      {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "400 Bad Request\r\n"},
      {"GET /" + std::string(kHeadBytesMax * 2, 'a'), "431 Request Header Fields Too Large\r\n"}};
  for (const auto& [request, status] : refused) {
    const HttpClient client = fixture.Connect();
    client.Send(request);
    const std::string answer = client.ReadAll();
    CHECK_THAT(answer, ContainsSubstring("HTTP/1.1 " + status));
    CHECK(absl::StrContains(answer, "Allow: GET, HEAD\r\n") == status.starts_with("405"));
  }
  CHECK(fixture.answers(Status::kOk) == 2);
  CHECK(fixture.answers(Status::kHeadTooLarge) == 1);
}

TEST_CASE("http: requests one behind the other are answered in order", "[http]") {
  HttpServerFixture fixture;
  const HttpClient client = fixture.Connect();
  std::string requests;
  for (int i = 0; i < 1'000; ++i) requests += kGetHello;
  requests += "GET /end HTTP/1.1\r\n\r\n";
  std::thread sender([&] { client.Send(requests); });
  const std::string answers = client.ReadAll();
  sender.join();
  CHECK(answers.ends_with("Not Found\n"));
  CHECK(fixture.answers(Status::kOk) == 1'000);
}

TEST_CASE("http: silent connections are closed for new ones, the longest silent first", "[http]") {
  ServerOptions options;
  options.connections_max = 8;
  HttpServerFixture fixture(options);
  std::vector<HttpClient> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(fixture.Connect());
    fixture.WaitFor([&](const auto& figures) { return figures.connections == i + 1U; });
  }
  CHECK_FALSE(silent[0].Get().empty());
  CHECK_FALSE(fixture.Connect().Get().empty());
  CHECK(silent[1].ReadAll().empty());
  CHECK_FALSE(silent[0].Get().empty());
  CHECK_FALSE(silent[2].Get().empty());
  CHECK(fixture.closed(Closed::kCrowded) == 1);
}

TEST_CASE("http: what takes too long is closed", "[http]") {
  ServerOptions options;
  options.request_timeout = options.stall_timeout = Milliseconds(100);
  options.idle_timeout = Milliseconds(2'000);
  options.answer_timeout = Milliseconds(400);
  HttpServerFixture fixture(options);
  const HttpClient silent = fixture.Connect();
  CHECK(silent.ReadAll().empty());
  const HttpClient half = fixture.Connect();
  half.Send("GET /hel");
  CHECK_THAT(half.ReadAll(), ContainsSubstring("HTTP/1.1 408 Request Timeout\r\n"));
  const HttpClient unread = fixture.Connect(4'096);
  unread.Send("GET /long HTTP/1.1\r\n\r\n");
  fixture.WaitFor([](const auto& figures) { return figures.answers[0] == 1; });
  fixture.WaitFor([](const auto& figures) { return figures.connections == 0; });
  CHECK(fixture.closed(Closed::kSlow) == 3);
  const HttpClient unanswered = fixture.Connect();
  unanswered.Send("GET /never HTTP/1.1\r\n\r\n");
  CHECK(unanswered.ReadAll().empty());
  CHECK(fixture.closed(Closed::kIdle) == 0);
  const HttpClient idle = fixture.Connect();
  idle.Get();
  CHECK(idle.ReadAll().empty());
  CHECK(fixture.closed(Closed::kIdle) == 1);
}

TEST_CASE("http: answers that are not read are bounded together", "[http]") {
  ServerOptions options;
  options.unread_bytes_max = 3 << 20;
  HttpServerFixture fixture(options);
  std::vector<HttpClient> unread;
  for (int i = 0; i < 6; ++i) {
    unread.push_back(fixture.Connect(4'096));
    for (int j = 0; j < 4; ++j) unread.back().Send("GET /long HTTP/1.1\r\n\r\n");
  }
  fixture.WaitFor([](const auto& figures) {
    return figures.closed[static_cast<size_t>(Closed::kCrowded)] == 3;
  });
  CHECK_FALSE(fixture.Connect().Get().empty());
}

TEST_CASE("http: without descriptors it waits, and closes what is silent", "[http]") {
  HttpServerFixture fixture;
  const HttpClient silent = fixture.Connect();
  const HttpClient late = [&] {
    fixture.WaitFor([](const auto& figures) { return figures.connections == 1; });
    const int lowest = dup(0);
    REQUIRE(lowest >= 0);
    close(lowest);
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    // Room for the client's end alone.
    const rlimit few{static_cast<rlim_t>(lowest) + 1, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    HttpClient client = fixture.Connect();
    fixture.WaitFor([](const auto& figures) {
      return figures.closed[static_cast<size_t>(Closed::kCrowded)] == 1;
    });
    setrlimit(RLIMIT_NOFILE, &before);
    return client;
  }();
  CHECK_FALSE(late.Get().empty());
}

TEST_CASE("http: it stops at once, and replies that come later have no effect", "[http]") {
  HttpServerFixture fixture;
  const HttpClient silent = fixture.Connect();
  const HttpClient asking = fixture.Connect();
  asking.Send("GET /never HTTP/1.1\r\n\r\n");
  const HttpClient unread = fixture.Connect(4'096);
  unread.Send("GET /long HTTP/1.1\r\n\r\n");
  fixture.WaitFor(
      [&](const auto& figures) { return figures.connections == 3 && figures.answers[0] == 1; });
  std::this_thread::sleep_for(Milliseconds(20));
  fixture.server().Stop();
  CHECK(silent.ReadAll().empty());
  for (Reply& reply : fixture.kept()) reply({});
  fixture.server().Stop();
}

TEST_CASE("http: a reply from another thread", "[http]") {
  std::vector<std::thread> threads;
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.clock = &SystemClock();
  const auto server =
      Server::Start(options, {{"/hello", [&threads](const Request&, Reply reply) {
                                 threads.emplace_back([reply = std::move(reply)]() mutable {
                                   Response response;
                                   response.body = std::make_shared<std::string>("hello\n");
                                   reply(std::move(response));
                                 });
                               }}});
  REQUIRE(server.ok());
  for (int i = 0; i < 20; ++i) CHECK_FALSE(HttpClient((*server)->address()).Get().empty());
  (*server)->Stop();
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("http: an address that cannot be listened on", "[http]") {
  ServerOptions options;
  options.clock = &SystemClock();
  for (const char* wrong : {"7421", "127.0.0.1:65536", "name:1", "[::1:1", "192.0.2.1:0"}) {
    options.listen = wrong;
    CHECK(absl::IsUnavailable(Server::Start(options, {}).status()));
  }
  options.listen = "[::1]:0";
  const auto server = Server::Start(options, {});
  REQUIRE(server.ok());
  CHECK((*server)->address().starts_with("[::1]:"));
  options.listen = (*server)->address();
  CHECK_THAT(std::string(Server::Start(options, {}).status().message()),
             ContainsSubstring("the address is in use"));
}

}  // namespace semaphored::http
