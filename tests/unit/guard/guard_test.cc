#include "server/guard/guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/unit/guard/frames.h"

namespace semaphored::guard {
namespace {

constexpr int kBoundMs = 20'000;

// One end of a connection, as a program has it. Owns the descriptor.
class End {
 public:
  explicit End(int descriptor) : descriptor_(descriptor) {}
  End(End&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~End() { Close(); }

  int descriptor() const { return descriptor_; }
  void Close() {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  }
  void EndWriting() const { shutdown(descriptor_, SHUT_WR); }
  // How many of the bytes are taken at once.
  size_t Offer(std::string_view bytes) const {
    const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 ? 0 : static_cast<size_t>(sent);
  }
  void Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      pollfd file{descriptor_, POLLOUT, 0};
      REQUIRE(poll(&file, 1, kBoundMs) == 1);
      bytes.remove_prefix(Offer(bytes));
    }
  }
  // Reads so many bytes; fewer if the end comes first.
  std::string Read(size_t size) const {
    std::string got;
    std::array<char, 65'536> part{};
    while (got.size() < size) {
      pollfd file{descriptor_, POLLIN, 0};
      REQUIRE(poll(&file, 1, kBoundMs) == 1);
      const ssize_t count =
          recv(descriptor_, part.data(), std::min(part.size(), size - got.size()), MSG_DONTWAIT);
      if (count <= 0) break;
      got.append(part.data(), static_cast<size_t>(count));
    }
    return got;
  }
  // What is there now, or comes in a moment.
  std::string ReadSome() const {
    pollfd file{descriptor_, POLLIN, 0};
    std::array<char, 65'536> part{};
    if (poll(&file, 1, 10) != 1) return "";
    const ssize_t count = recv(descriptor_, part.data(), part.size(), MSG_DONTWAIT);
    return count <= 0 ? "" : std::string(part.data(), static_cast<size_t>(count));
  }
  std::string ReadAll() const { return Read(std::string::npos); }
  // As gRPC calls the other end.
  std::string PeerName() const {
    sockaddr_un name{};
    socklen_t length = sizeof name;
    REQUIRE(getpeername(descriptor_, reinterpret_cast<sockaddr*>(&name), &length) == 0);
    const size_t size = length - offsetof(sockaddr_un, sun_path);
    return size < 2 ? "unix:" : "unix-abstract:" + std::string(name.sun_path + 1, size - 1);
  }

 private:
  int descriptor_;
};

// The system's, and whatever the test lets pass beside it.
class JumpingClock final : public Clock {
 public:
  SteadyTime Now() const override { return SystemClock().Now() + Milliseconds(jumped_ms_); }
  int64_t NowUnixMs() const override { return SystemClock().NowUnixMs(); }
  void Jump(Milliseconds time) { jumped_ms_ += time.count(); }

 private:
  std::atomic<int64_t> jumped_ms_ = 0;
};

class World {
 public:
  explicit World(const FrameBounds& bounds = {}, int64_t connections_max = 100'000)
      : guard_(OptionsOf(bounds, connections_max), [this](int descriptor) {
          const std::lock_guard lock(mutex_);
          joined_.emplace_back(descriptor);
          changed_.notify_all();
        }) {}

  Guard& guard() { return guard_; }
  JumpingClock& clock() { return clock_; }
  // A client connects; the other end of it is the daemon's.
  std::pair<End, End> Connect() {
    End client = Knock();
    return {std::move(client), LetIn()};
  }
  // A client connects, and may have to wait: LetIn() is the daemon's end of whichever is let in next.
  End Knock() {
    std::array<int, 2> pair{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) == 0);
    guard_.Take(pair[1]);
    return End(pair[0]);
  }
  // The same over loopback, from this address of it.
  End KnockFrom(const char* address) {
    const End listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    End client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here{};
    socklen_t length = sizeof here;
    here.sin_family = AF_INET;
    REQUIRE(inet_pton(AF_INET, address, &here.sin_addr) == 1);
    auto* const name = reinterpret_cast<sockaddr*>(&here);
    REQUIRE(bind(client.descriptor(), name, length) == 0);
    REQUIRE(bind(listener.descriptor(), name, length) == 0);
    REQUIRE(listen(listener.descriptor(), 1) == 0);
    REQUIRE(getsockname(listener.descriptor(), name, &length) == 0);
    REQUIRE(connect(client.descriptor(), name, length) == 0);
    guard_.Take(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return client;
  }
  End LetIn() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, Milliseconds(kBoundMs), [this] { return !joined_.empty(); }));
    End daemon = std::move(joined_.front());
    joined_.pop_front();
    return daemon;
  }
  size_t joined() {
    const std::lock_guard lock(mutex_);
    return joined_.size();
  }
  // And both have said their first words.
  std::pair<End, End> Meet() {
    auto ends = Connect();
    ends.second.Send(Whole(FrameType::kSettings));
    ends.first.Send(Greeting());
    REQUIRE(ends.second.Read(Welcome().size()) == Welcome());
    REQUIRE(ends.first.Read(kFrameHeaderBytes) == Whole(FrameType::kSettings));
    return ends;
  }
  static std::string Welcome() { return Greeting() + SettingsAck(); }
  void WaitNoConnections() {
    for (int i = 0; i < kBoundMs && guard_.figures().connections > 0; ++i) poll(nullptr, 0, 1);
    REQUIRE(guard_.figures().connections == 0);
  }

 private:
  DoorOptions OptionsOf(const FrameBounds& bounds, int64_t connections_max) const {
    DoorOptions options;
    options.clock = &clock_;
    options.connections_max = connections_max;
    options.bounds = bounds;
    return options;
  }

  JumpingClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<End> joined_;  // Guarded by mutex_.
  Guard guard_;
};

uint64_t ClosedFor(const Guard& guard, std::string_view reason) {
  for (const auto& [name, count] : guard.figures().closed)
    if (name == reason) return count;
  return 0;
}

}  // namespace

TEST_CASE("guard: what the two ends say reaches the other, once the daemon has spoken", "[guard]") {
  World world;
  auto [client, daemon] = world.Connect();
  client.Send(Greeting());
  // Its settings come first, so that they hold from the first request on.
  pollfd file{daemon.descriptor(), POLLIN, 0};
  CHECK(poll(&file, 1, 50) == 0);
  daemon.Send(Whole(FrameType::kSettings));
  CHECK(daemon.Read(World::Welcome().size()) == World::Welcome());
  CHECK(client.Read(kFrameHeaderBytes) == Whole(FrameType::kSettings));
  const std::string data = Whole(FrameType::kData, std::string(100'000, 'd'), 0, 1);
  client.Send(data);
  CHECK(daemon.Read(data.size()) == data);
  daemon.Send(data);
  CHECK(client.Read(data.size()) == data);
}

TEST_CASE("guard: a connection is known by the name of its socket, and never by another's",
          "[guard]") {
  World world;
  std::string former;
  {
    auto [client, daemon] = world.Meet();
    auto [client2, daemon2] = world.Meet();
    former = daemon.PeerName();
    CHECK(former != daemon2.PeerName());
    REQUIRE(world.guard().peers().Find(former) != nullptr);
    CHECK(world.guard().peers().Find(former)->address == "unix:");
    CHECK(world.guard().peers().Find(former)->certificate == CertificateNames());
  }
  world.WaitNoConnections();
  CHECK(world.guard().peers().Find(former) == nullptr);
  CHECK(world.guard().peers().Find("ipv4:127.0.0.1:1") == nullptr);
  CHECK(world.guard().peers().Find("unix-abstract:other") == nullptr);
  for (int i = 0; i < 100; ++i) CHECK(world.Meet().second.PeerName() != former);
}

TEST_CASE("guard: each user of a Unix socket is an address of its own", "[guard]") {
  std::array<int, 2> pair{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
  const End one(pair[0]);
  const End other(pair[1]);
  CHECK(AddressOf(one.descriptor()).text == "unix:");
  CHECK(AddressOf(one.descriptor()).origin == "unix:" + std::to_string(geteuid()));
}

TEST_CASE("guard: a breach ends the connection on both sides, with a GOAWAY", "[guard]") {
  FrameBounds bounds;
  bounds.resets = {3, 0};
  World world(bounds);
  auto [client, daemon] = world.Meet();
  const std::string reset = Whole(FrameType::kReset, "1234", 0, 1);
  for (int i = 0; i < 4; ++i) client.Send(reset);
  CHECK(client.ReadAll() == GoAway(Http2Error::kEnhanceYourCalm));
  CHECK(daemon.ReadAll().size() <= 3 * reset.size());
  client.Close();
  world.WaitNoConnections();
  CHECK(ClosedFor(world.guard(), "resets") == 1);
  // It is the address that has used up what it may.
  auto [client2, daemon2] = world.Meet();
  client2.Send(reset);
  CHECK(client2.ReadAll() == GoAway(Http2Error::kEnhanceYourCalm));
}

TEST_CASE("guard: a client that goes on after a breach is not listened to for long", "[guard]") {
  World world;
  auto [client, daemon] = world.Meet();
  client.Send(Header(FrameType::kHeaders, 1 << 20));
  CHECK(daemon.ReadAll().empty());
  const std::string junk(1 << 20, 'x');
  for (int i = 0; i < kBoundMs && world.guard().figures().connections > 0; ++i) {
    client.Offer(junk);
    poll(nullptr, 0, 1);
  }
  world.WaitNoConnections();
  CHECK(ClosedFor(world.guard(), "header_block") == 1);
}

TEST_CASE("guard: calls that the daemon has not begun hold up those of the same address",
          "[guard]") {
  FrameBounds bounds;
  bounds.calls_pending = 20;
  World world(bounds);
  auto [client, daemon] = world.Meet();
  const std::string call = Whole(FrameType::kHeaders, "h", kEndHeaders, 1);
  std::string calls;
  for (int i = 0; i < 50; ++i) calls += call;
  client.Send(calls);
  CHECK(daemon.Read(20 * call.size()).size() == 20 * call.size());
  CHECK(daemon.ReadSome().empty());
  // Another connection waits, too, and both go on as calls begin.
  auto [client2, daemon2] = world.Meet();
  client2.Send(call);
  CHECK(daemon2.ReadSome().empty());
  for (int i = 0; i < 20; ++i) world.guard().peers().OnBegin(daemon.PeerName());
  CHECK(daemon2.Read(call.size()) == call);
  const std::string more = daemon.Read(19 * call.size());
  CHECK(more.size() == 19 * call.size());
  CHECK(daemon.ReadSome().empty());
  // What ends without having begun makes room as well.
  std::string ends;
  for (int i = 0; i < 50; ++i)
    ends += Whole(FrameType::kHeaders, "h", kEndHeaders | Frame::kEndStream, 1);
  daemon.Send(ends);
  CHECK(daemon.Read(11 * call.size()).size() == 11 * call.size());
}

TEST_CASE("guard: calls that were refused hide none of those that come", "[guard]") {
  FrameBounds bounds;
  bounds.calls_pending = 20;
  World world(bounds);
  auto [client, daemon] = world.Meet();
  std::string calls;
  std::string refusals;
  for (uint32_t stream = 1; stream <= 40; stream += 2) {
    calls += Whole(FrameType::kHeaders, "h", kEndHeaders, stream);
    refusals += Whole(FrameType::kHeaders, "h", kEndHeaders | Frame::kEndStream, stream);
    refusals += Whole(FrameType::kReset, std::string(4, '\0'), 0, stream);
  }
  client.Send(calls);
  REQUIRE(daemon.Read(calls.size()) == calls);
  for (int i = 0; i < 20; ++i) world.guard().peers().OnBegin(daemon.PeerName());
  daemon.Send(refusals);
  REQUIRE(client.Read(refusals.size()) == refusals);
  client.Send(calls + calls);
  CHECK(daemon.Read(calls.size()) == calls);
  CHECK(daemon.ReadSome().empty());
}

TEST_CASE("guard: calls that never begin hold up nothing for ever", "[guard]") {
  FrameBounds bounds;
  bounds.calls_pending = 20;
  World world(bounds);
  auto [client, daemon] = world.Meet();
  const std::string call = Whole(FrameType::kHeaders, "h", kEndHeaders, 1);
  std::string calls;
  for (int i = 0; i < 30; ++i) calls += call;
  client.Send(calls);
  REQUIRE(daemon.Read(20 * call.size()).size() == 20 * call.size());
  REQUIRE(daemon.ReadSome().empty());
  // Since when they have been open is known by a minute that has begun after they came.
  world.clock().Jump(std::chrono::minutes(1));
  CHECK(daemon.ReadSome().empty());
  world.clock().Jump(std::chrono::minutes(1));
  CHECK(daemon.Read(10 * call.size()).size() == 10 * call.size());
}

TEST_CASE("guard: refused calls that have not left hold up their connection, and no other",
          "[guard]") {
  FrameBounds bounds;
  bounds.calls_refused = 20;
  World world(bounds);
  auto [client, daemon] = world.Meet();
  const auto peer = world.guard().peers().Find(daemon.PeerName());
  REQUIRE(peer != nullptr);
  peer->refused = 20;
  const std::string call = Whole(FrameType::kHeaders, "h", kEndHeaders, 1);
  client.Send(call + call);
  CHECK(daemon.ReadSome().empty());
  auto [client2, daemon2] = world.Meet();
  client2.Send(call);
  CHECK(daemon2.Read(call.size()) == call);
  peer->refused = 0;
  CHECK(daemon.Read(2 * call.size()) == call + call);
}

TEST_CASE("guard: calls that have not begun when their connection ends are resets", "[guard]") {
  FrameBounds bounds;
  bounds.resets = {10, 0};
  World world(bounds);
  const std::string call = Whole(FrameType::kHeaders, "h", kEndHeaders, 1);
  {
    auto [client, daemon] = world.Meet();
    for (int i = 0; i < 10; ++i) client.Send(call);
    REQUIRE(daemon.Read(10 * call.size()).size() == 10 * call.size());
  }
  world.WaitNoConnections();
  auto [client, daemon] = world.Meet();
  client.Send(Whole(FrameType::kReset, "1234", 0, 1));
  CHECK(client.ReadAll() == GoAway(Http2Error::kEnhanceYourCalm));
}

TEST_CASE("guard: an address that connects too often waits, in order", "[guard]") {
  FrameBounds bounds;
  bounds.connections = {3, 1};
  bounds.connections_waiting = 3;
  World world(bounds);
  for (int i = 0; i < 3; ++i) world.Meet();
  const End first = world.Knock();
  End gone = world.Knock();
  const End second = world.Knock();
  // Beyond so many that wait there is no room.
  CHECK(world.Knock().ReadAll().empty());
  CHECK(ClosedFor(world.guard(), "connections") == 1);
  gone.Close();
  first.Send("1");
  second.Send("2");
  CHECK(world.joined() == 0);
  world.clock().Jump(Milliseconds(1'000));
  const End daemon_of_first = world.LetIn();
  CHECK(world.joined() == 0);
  world.clock().Jump(Milliseconds(1'000));
  const End daemon_of_second = world.LetIn();
  for (const End* const daemon : {&daemon_of_first, &daemon_of_second})
    daemon->Send(Whole(FrameType::kSettings));
  CHECK(first.Read(kFrameHeaderBytes) == Whole(FrameType::kSettings));
  CHECK(second.Read(kFrameHeaderBytes) == Whole(FrameType::kSettings));
}

TEST_CASE("guard: one that waits to be let in for too long is closed", "[guard]") {
  FrameBounds bounds;
  bounds.connections = {1, 0};
  World world(bounds);
  world.Meet();
  const End late = world.Knock();
  // From when the guard's thread has seen it.
  for (int i = 0; i < kBoundMs && ClosedFor(world.guard(), "connections") == 0; ++i) {
    world.clock().Jump(Milliseconds(1'000));
    poll(nullptr, 0, 1);
  }
  CHECK(late.ReadAll().empty());
  CHECK(ClosedFor(world.guard(), "connections") == 1);
}

TEST_CASE("guard: one address does not have all connections", "[guard]") {
  World world({}, 8);
  std::vector<End> ends;
  const auto come_in = [&](const char* address) {
    ends.push_back(world.KnockFrom(address));
    ends.push_back(world.LetIn());
  };
  for (int i = 0; i < 6; ++i) come_in("127.0.0.2");
  CHECK(world.KnockFrom("127.0.0.2").ReadAll().empty());
  CHECK(ClosedFor(world.guard(), "connections_share") == 1);
  for (int i = 0; i < 2; ++i) come_in("127.0.0.3");
  CHECK(world.guard().figures().connections == 8);
  ends.clear();
  world.WaitNoConnections();
  for (int i = 0; i < 6; ++i) come_in("127.0.0.2");
  CHECK(ClosedFor(world.guard(), "connections_share") == 1);
}

TEST_CASE("guard: each breach makes new connections of its address wait, for some seconds at most",
          "[guard]") {
  FrameBounds bounds;
  bounds.connections = {100, 10};
  World world(bounds);
  for (int i = 0; i < 20; ++i) {
    auto [client, daemon] = world.Connect();
    daemon.Send(Whole(FrameType::kSettings));
    client.Send(std::string(100, 'x'));
    client.ReadAll();
    client.Close();
    world.WaitNoConnections();
    if (ClosedFor(world.guard(), "not_http2") == 5) break;
  }
  REQUIRE(ClosedFor(world.guard(), "not_http2") == 5);
  const End honest = world.Knock();
  CHECK(world.joined() == 0);
  world.clock().Jump(Milliseconds(2'000));
  const End daemon = world.LetIn();
}

TEST_CASE("guard: nothing is said in the middle of a frame", "[guard]") {
  World world;
  auto [client, daemon] = world.Meet();
  const std::string part = Header(FrameType::kData, 100, 0, 1) + "part";
  daemon.Send(part);
  REQUIRE(client.Read(part.size()) == part);
  client.Send(Header(FrameType::kHeaders, 1 << 20));
  CHECK(client.ReadAll().empty());
}

TEST_CASE("guard: an end that does not read stops the other, and nothing is lost", "[guard]") {
  World world;
  auto ends = world.Meet();
  const bool upwards = GENERATE(true, false);
  const End& from = upwards ? ends.first : ends.second;
  const End& to = upwards ? ends.second : ends.first;
  const std::string frame = Whole(FrameType::kData, std::string(16'000, 'd'), 0, 1);
  std::string said;
  // It is full when nothing more has gone for a while.
  for (int idle = 0; idle < 100;) {
    const size_t place = said.size() % frame.size();
    const size_t sent = from.Offer(std::string_view(frame).substr(place));
    said.append(frame, place, sent);
    idle = sent == 0 ? idle + 1 : 0;
    if (sent == 0) poll(nullptr, 0, 1);
    REQUIRE(said.size() < (8 << 20));
  }
  const std::string rest = frame.substr(said.size() % frame.size());
  std::string got = to.Read(said.size());
  from.Send(rest);
  got += to.Read(rest.size());
  CHECK(got == said + rest);
}

TEST_CASE("guard: an end that has said its last is still answered", "[guard]") {
  World world;
  auto [client, daemon] = world.Meet();
  const std::string data = Whole(FrameType::kData, std::string(500'000, 'd'), 0, 1);
  client.EndWriting();
  CHECK(daemon.ReadAll().empty());
  std::string got;
  std::string_view left = data;
  while (!left.empty()) {
    left.remove_prefix(daemon.Offer(left));
    got += client.ReadSome();
  }
  daemon.Close();
  got += client.ReadAll();
  CHECK(got == data);
  world.WaitNoConnections();
}

TEST_CASE("guard: a client that does not read keeps no connection that the daemon has closed",
          "[guard]") {
  World world;
  auto [client, daemon] = world.Meet();
  const std::string frame = Whole(FrameType::kData, std::string(16'000, 'd'), 0, 1);
  size_t sent = 0;
  for (int idle = 0; idle < 100;) {
    const size_t taken = daemon.Offer(std::string_view(frame).substr(sent % frame.size()));
    sent += taken;
    idle = taken == 0 ? idle + 1 : 0;
    if (taken == 0) poll(nullptr, 0, 1);
  }
  daemon.Close();
  // What was sent may still be taken for a while, and is.
  std::string got;
  for (int i = 0; i < 10; ++i) got += client.ReadSome();
  CHECK_FALSE(got.empty());
  for (int i = 0; i < kBoundMs / 100 && world.guard().figures().connections > 0; ++i) {
    world.clock().Jump(Connection::kLastWords);
    poll(nullptr, 0, 100);
  }
  CHECK(world.guard().figures().connections == 0);
}

TEST_CASE("guard: a client that does not read is closed in time", "[guard]") {
  World world;
  auto [client, daemon] = world.Meet();
  const std::string frame = Whole(FrameType::kData, std::string(16'000, 'd'), 0, 1);
  size_t sent = 0;
  for (int i = 0; i < kBoundMs / 100 && ClosedFor(world.guard(), "unread") == 0; ++i) {
    for (size_t taken = 1; taken > 0; sent += taken)
      taken = daemon.Offer(std::string_view(frame).substr(sent % frame.size()));
    poll(nullptr, 0, 100);
    world.clock().Jump(FrameBounds().taken_within);
  }
  CHECK(ClosedFor(world.guard(), "unread") == 1);
  CHECK(daemon.ReadAll().empty());
}

TEST_CASE("guard: the end waits for what the daemon has said last", "[guard]") {
  World world;
  auto [client, daemon] = world.Meet();
  const std::string last = Whole(FrameType::kData, std::string(150'000, 'd'), 0, 1);
  daemon.Send(last);
  daemon.Close();
  std::string got;
  std::thread reader([&client = client, &got] { got = client.ReadAll(); });
  world.guard().TakeNoMore();
  world.guard().Stop(Milliseconds(kBoundMs));
  reader.join();
  CHECK(got == last);
  CHECK(world.guard().figures().connections == 0);
}

TEST_CASE("guard: connections that come after the end are closed", "[guard]") {
  World world;
  auto [client, daemon] = world.Meet();
  world.guard().TakeNoMore();
  world.guard().Stop(Milliseconds(0));
  CHECK(client.ReadAll().empty());
  CHECK(daemon.ReadAll().empty());
  auto [late, late_daemon] = world.Connect();
  CHECK(late.ReadAll().empty());
}

}  // namespace semaphored::guard
