#include "server/guard/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/guard/frames.h"
#include "tests/unit/guard/tls_client.h"

namespace semaphored::guard {
namespace {

// A connection whose two other ends, loop and clock are the test's.
class Relayed {
 public:
  explicit Relayed(const FrameBounds& bounds, const Tls* tls = nullptr) : buffer_(64 << 10) {
    std::array<int, 2> pair{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) == 0);
    client_ = pair[0];
    connection_ = std::make_unique<Connection>(
        pair[1], tls == nullptr ? nullptr : tls->Accept(pair[1]), AddressOf(pair[1]), bounds,
        std::make_shared<Origin>(bounds), false);
  }
  ~Relayed() {
    close(client_);
    if (daemon_ >= 0) close(daemon_);
  }
  Relayed(const Relayed&) = delete;
  Relayed& operator=(const Relayed&) = delete;

  Connection& connection() { return *connection_; }
  int client() const { return client_; }

  void OnClient() { connection_->OnClient(now, buffer_); }
  void OnDaemon() { connection_->OnDaemon(now, buffer_); }
  // The daemon has it now, and has sent its settings.
  void Join() {
    REQUIRE(connection_->state() == Connection::State::kReady);
    const std::string key = peers_.NewKey();
    daemon_ = connection_->Join(key, peers_.Add(key, "unix:", {}));
    REQUIRE(daemon_ >= 0);
    const std::string settings = Whole(FrameType::kSettings);
    REQUIRE(send(daemon_, settings.data(), settings.size(), 0) ==
            static_cast<ssize_t>(settings.size()));
    OnDaemon();
  }
  // What has come to the daemon.
  std::string AtDaemon() {
    const ssize_t got = recv(daemon_, buffer_.data(), buffer_.size(), 0);
    return got <= 0 ? "" : std::string(buffer_.data(), static_cast<size_t>(got));
  }

  SteadyTime now{std::chrono::hours(1)};

 private:
  std::vector<char> buffer_;
  Peers peers_;
  int client_ = -1;
  int daemon_ = -1;
  std::unique_ptr<Connection> connection_;
};

void ShakeHands(Relayed* relayed, const TlsClient& client) {
  constexpr int kTurnsMax = 10;
  for (int i = 0; i < kTurnsMax && !client.ShakeHands(); ++i) relayed->OnClient();
  for (int i = 0; i < kTurnsMax && relayed->connection().state() == Connection::State::kHandshake;
       ++i)
    relayed->OnClient();
  relayed->Join();
}

}  // namespace

TEST_CASE("guard: a turn takes one key update of TLS, and there is a bound to them", "[guard]") {
  FrameBounds bounds;
  bounds.others = {10, 0};
  const auto tls = Tls::Make(SelfSigned(), ClientCertificates::kNone);
  REQUIRE(tls.ok());
  Relayed relayed(bounds, tls->get());
  const TlsClient client(relayed.client());
  ShakeHands(&relayed, client);
  SECTION("what follows them is not lost") {
    for (int i = 0; i < 10; ++i) client.UpdateKey();
    client.Send(Greeting());
    for (int i = 0; i < 10; ++i) {
      relayed.OnClient();
      REQUIRE(relayed.AtDaemon().empty());
    }
    relayed.OnClient();
    CHECK(relayed.AtDaemon() == Greeting() + SettingsAck());
  }
  SECTION("too many") {
    for (int i = 0; i < 50; ++i) client.UpdateKey();
    int turns = 0;
    for (; turns < 50 && relayed.connection().state() == Connection::State::kRelaying; ++turns)
      relayed.OnClient();
    CHECK(turns == 11);
    CHECK(relayed.connection().breach() == Breach::kOtherFrames);
  }
}

}  // namespace semaphored::guard
