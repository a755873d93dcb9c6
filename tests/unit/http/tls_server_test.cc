// The HTTP server by TLS, and clients that are not polite.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "server/http/server.h"
#include "tests/unit/guard/tls_client.h"

namespace semaphored::http {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr int kTlsBoundS = 20;
constexpr char kAskHello[] = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";
constexpr size_t kLongBytes = 1 << 20;

// A connection that blocks, for at most kTlsBoundS. Owns the descriptor.
class Dialled {
 public:
  explicit Dialled(const std::string& address) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval bound{kTlsBoundS, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    REQUIRE(connect(descriptor_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  }
  ~Dialled() { Close(); }
  Dialled(const Dialled&) = delete;
  Dialled& operator=(const Dialled&) = delete;

  int descriptor() const { return descriptor_; }
  void Close() {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_;
};

// With /hello, /long (1 MiB), /echo, and /wait, which keeps its replies and counts the clients that go.
class TlsHttpServer {
 public:
  explicit TlsHttpServer(ServerOptions options = {}) {
    std::signal(SIGPIPE, SIG_IGN);  // As the daemon does.
    auto tls = guard::Tls::Make(guard::SelfSigned(), guard::ClientCertificates::kNone);
    REQUIRE(tls.ok());
    tls_ = *std::move(tls);
    options.listen = "127.0.0.1:0";
    options.clock = &SystemClock();
    options.tls = tls_.get();
    auto server = Server::Start(
        options, {{"/hello", Saying("hello\n")},
                  {"/long", Saying(std::string(kLongBytes - 1, 'x') + "\n")},
                  {"/echo", Resource(Method::kPost, kLongBytes,
                                     [](Request request, const Reply& reply) {
                                       Response response;
                                       response.body = std::make_shared<std::string>(request.body);
                                       reply(std::move(response));
                                     })},
                  {"/wait", [this](const Request&, const Reply& reply) {
                     ++waits;
                     reply.OnGone([this] { ++gone; });
                     kept_.push_back(reply);
                   }}});
    REQUIRE(server.ok());
    server_ = *std::move(server);
  }

  guard::Tls& tls() { return *tls_; }
  const std::string& address() const { return server_->address(); }
  uint64_t closed(Closed reason) const {
    return server_->figures().closed[static_cast<size_t>(reason)];
  }
  template <typename Holds>
  void WaitFor(Holds holds) const {
    const SteadyTime end = SystemClock().Now() + Milliseconds(kTlsBoundS * 1'000);
    while (!holds()) {
      REQUIRE(SystemClock().Now() < end);
      std::this_thread::sleep_for(Milliseconds(1));
    }
  }

  std::atomic<int> waits = 0;
  std::atomic<int> gone = 0;

 private:
  static Handler Saying(std::string text) {
    auto body = std::make_shared<const std::string>(std::move(text));
    return [body](const Request&, const Reply& reply) {
      Response response;
      response.body = body;
      reply(std::move(response));
    };
  }

  std::unique_ptr<guard::Tls> tls_;
  std::vector<Reply> kept_;  // The server's thread's, until it has stopped.
  std::unique_ptr<Server> server_;
};

struct Client {
  explicit Client(const TlsHttpServer& server, std::string_view protocols = "")
      : socket(server.address()), tls(socket.descriptor()), connected(tls.Connect(protocols)) {}

  Dialled socket;
  guard::TlsClient tls;
  bool connected;
};

}  // namespace

TEST_CASE("http: by TLS, requests one behind the other, in pieces, and long ones", "[http]") {
  const TlsHttpServer server;
  const Client client(server, "\x02h2\x08http/1.1");
  REQUIRE(client.connected);
  client.tls.Send(kAskHello);
  CHECK_THAT(client.tls.ReadUntil("hello\n"), ContainsSubstring("200 OK"));
  // More than one reading takes, in one record.
  client.tls.Send(std::string(kAskHello) + kAskHello +
                  "GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string rest = client.tls.ReadUntil("");
  CHECK(rest.size() > 3 * std::string_view("hello\n").size());
  size_t answers = 0;
  for (size_t at = rest.find("200 OK"); at != rest.npos; at = rest.find("200 OK", at + 1))
    ++answers;
  CHECK(answers == 3);
  CHECK(client.tls.was_ended());

  const Client posting(server);
  const std::string body(kLongBytes - 1, 'b');
  posting.tls.Send("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: " +
                   std::to_string(body.size() + 1) + "\r\n\r\n");
  CHECK_THAT(posting.tls.ReadUntil("\r\n\r\n"), ContainsSubstring("100 Continue"));
  std::string_view left = body;
  for (size_t size = 1; !left.empty(); size *= 3) {
    posting.tls.Send(left.substr(0, size));
    left.remove_prefix(std::min(size, left.size()));
  }
  posting.tls.Send("\n");
  CHECK(posting.tls.ReadUntil("b\n").ends_with(body + "\n"));
  // Its pieces come when the client takes those before.
  posting.tls.Send("GET /long HTTP/1.1\r\n\r\n");
  CHECK(posting.tls.ReadUntil("x\n").size() > kLongBytes);
}

TEST_CASE("http: handshakes that fail, and what is no handshake", "[http]") {
  ServerOptions options;
  options.handshake_timeout = Milliseconds(50);
  const TlsHttpServer server(options);
  CHECK_FALSE(Client(server, "\x02h2").connected);
  const Dialled plain(server.address());
  REQUIRE(send(plain.descriptor(), kAskHello, sizeof kAskHello - 1, 0) > 0);
  char byte = 0;
  CHECK(recv(plain.descriptor(), &byte, 1, 0) <= 0);
  const Dialled silent(server.address());
  CHECK(recv(silent.descriptor(), &byte, 1, 0) == 0);
  server.WaitFor([&] { return server.closed(Closed::kTls) == 3; });
  CHECK(Client(server).connected);
}

TEST_CASE("http: by TLS, clients that go while they wait", "[http]") {
  TlsHttpServer server;
  const auto waiting = [&server] {
    auto client = std::make_unique<Client>(server);
    client->tls.Send("GET /wait HTTP/1.1\r\n\r\n");
    server.WaitFor([&] { return server.waits == 1; });
    return client;
  };
  SECTION("in order") {
    const auto client = waiting();
    client->tls.EndWriting();
    client->socket.Close();
    server.WaitFor([&] { return server.gone == 1; });
  }
  SECTION("cut off") {
    waiting()->socket.Close();
    server.WaitFor([&] { return server.gone == 1; });
  }
  SECTION("one that only sends no more is still there") {
    const auto client = waiting();
    client->tls.EndWriting();
    CHECK(client->tls.ReadUntil("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    CHECK(server.gone == 0);
    client->socket.Close();
    server.WaitFor([&] { return server.gone == 1; });
  }
  SECTION("behind the next request") {
    const auto client = waiting();
    client->tls.Send(kAskHello);
    client->socket.Close();
    server.WaitFor([&] { return server.gone == 1; });
  }
}

TEST_CASE("http: endless key updates end their connection, and a few do not", "[http]") {
  const TlsHttpServer server;
  const Client client(server);
  for (int i = 0; i < 20; ++i) client.tls.UpdateKey();
  client.tls.Send(kAskHello);
  CHECK_THAT(client.tls.ReadUntil("hello\n"), ContainsSubstring("200 OK"));
  // While a call waits, too.
  client.tls.Send("GET /wait HTTP/1.1\r\n\r\n");
  server.WaitFor([&] { return server.waits == 1; });
  for (int i = 0; i < 2'000 && server.gone == 0; ++i) client.tls.TryUpdateKey();
  server.WaitFor([&] { return server.gone == 1; });
}

TEST_CASE("http: a new certificate is for new connections", "[http]") {
  TlsHttpServer server;
  const Client before(server);
  const Certificates renewed = guard::SelfSigned();
  REQUIRE(server.tls().Set(renewed).ok());
  const Client after(server);
  before.tls.Send(kAskHello);
  CHECK_THAT(before.tls.ReadUntil("hello\n"), ContainsSubstring("200 OK"));
  CHECK(before.tls.shown() != after.tls.shown());
  CHECK(after.tls.shown() == renewed.chain);
}

TEST_CASE("http: by TLS, it stops at once, whatever is under way", "[http]") {
  auto server = std::make_unique<TlsHttpServer>();
  const Dialled silent(server->address());
  const Client idle(*server);
  const Client waiting(*server);
  waiting.tls.Send("GET /wait HTTP/1.1\r\n\r\n");
  const Client unread(*server);
  for (int i = 0; i < 4; ++i) unread.tls.Send("GET /long HTTP/1.1\r\n\r\n");
  server->WaitFor([&] { return server->waits == 1; });
  server = nullptr;
  CHECK(idle.tls.ReadUntil("").empty());
}

}  // namespace semaphored::http
