#include "server/guard/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

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
        pair[1], tls == nullptr ? nullptr : tls->Accept(pair[1], Protocol::kHttp2),
        AddressOf(pair[1]), bounds, std::make_shared<Origin>(bounds), false);
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
    FromDaemon(Whole(FrameType::kSettings));
  }
  // The daemon sends until something has to wait for the client.
  void Fill() {
    constexpr int kFramesMax = 1'000;
    const std::string frame = Whole(FrameType::kData, std::string(7'000, 'd'), 0, 1);
    for (int i = 0; i < kFramesMax && !connection_->client_interest().write; ++i) FromDaemon(frame);
    REQUIRE(connection_->client_interest().write);
  }
  // The client reads at most so many bytes. How many there were.
  size_t Take(size_t size) {
    std::string bytes(size, '\0');
    const ssize_t got = recv(client_, bytes.data(), size, 0);
    return got <= 0 ? 0 : static_cast<size_t>(got);
  }
  // What has come to the daemon.
  std::string AtDaemon() {
    const ssize_t got = recv(daemon_, buffer_.data(), buffer_.size(), 0);
    return got <= 0 ? "" : std::string(buffer_.data(), static_cast<size_t>(got));
  }

  SteadyTime now{std::chrono::hours(1)};

 private:
  void FromDaemon(std::string_view bytes) {
    REQUIRE(send(daemon_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    OnDaemon();
  }

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

TEST_CASE("guard: a client that takes next to nothing of what waits for it is closed", "[guard]") {
  const bool with_tls = GENERATE(false, true);
  const FrameBounds bounds;
  const auto tls = Tls::Make(SelfSigned(), ClientCertificates::kNone);
  REQUIRE(tls.ok());
  Relayed relayed(bounds, with_tls ? tls->get() : nullptr);
  Connection& connection = relayed.connection();
  if (with_tls) {
    ShakeHands(&relayed, TlsClient(relayed.client()));
  } else {
    relayed.Join();
  }
  REQUIRE_FALSE(connection.Deadline(relayed.now).has_value());
  relayed.Fill();
  const SteadyTime end = relayed.now + bounds.taken_within;
  REQUIRE(connection.Deadline(relayed.now) == end);
  relayed.now += Milliseconds(1'000);
  REQUIRE(connection.Deadline(relayed.now) == end);
  SECTION("it is slow") {
    REQUIRE(relayed.Take(64 << 10) == 64 << 10);
    relayed.now = end;
    connection.OnDeadline(relayed.now);
    REQUIRE(connection.state() == Connection::State::kRelaying);
    CHECK(connection.Deadline(relayed.now) == end + bounds.taken_within);
    // Nothing waits any more.
    while (relayed.Take(64 << 10) > 0) relayed.OnClient();
    CHECK_FALSE(connection.Deadline(relayed.now).has_value());
  }
  SECTION("it takes a little") {
    REQUIRE(relayed.Take(1'000) > 0);
    relayed.now = end;
    connection.OnDeadline(relayed.now);
    CHECK(connection.state() == Connection::State::kOver);
    CHECK(connection.breach() == Breach::kUnread);
  }
}

}  // namespace semaphored::guard
