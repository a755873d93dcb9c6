#include "server/guard/client_frames.h"

#include <memory>
#include <string>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/unit/guard/frames.h"

namespace semaphored::guard {
namespace {

// One client that says something; the clock is the test's.
struct Client {
  explicit Client(FrameBounds bounds = {})
      : Client(bounds, std::make_shared<Allowance>(bounds.resets)) {}
  Client(FrameBounds bounds, std::shared_ptr<Allowance> resets)
      : frames(bounds, std::move(resets)) {}

  Breach Say(std::string_view bytes, int64_t streams_max = 1'000'000) {
    const Breach breach = frames.Pass(&bytes, now, streams_max, &passed);
    left = bytes;
    return breach;
  }
  // How many of these it may say; at most `most`.
  int Count(const std::string& bytes, int most) {
    int count = 0;
    while (count < most && Say(bytes) == Breach::kNone) ++count;
    return count;
  }
  Client& Greet() {
    REQUIRE(Say(Greeting()) == Breach::kNone);
    return *this;
  }

  ClientFrames frames;
  SteadyTime now{std::chrono::hours(1)};
  std::string passed;
  std::string left;
};

const std::string kReset = Whole(FrameType::kReset, std::string(4, '\0'), 0, 1);

}  // namespace

TEST_CASE("guard: what a client says passes, in whatever pieces it comes", "[guard]") {
  const size_t piece = GENERATE(1, 2, 7, 9, 10, 64, 10'000);
  const std::string rest = Whole(FrameType::kHeaders, std::string(40, 'h'), 0, 1) +
                           Whole(FrameType::kContinuation, std::string(30, 'c'), kEndHeaders, 1) +
                           Whole(FrameType::kData, std::string(300, 'd'), 1, 1) +
                           Whole(FrameType::kPing, "12345678");
  const std::string said = Greeting() + rest;
  Client client;
  for (size_t i = 0; i < said.size(); i += piece)
    REQUIRE(client.Say(said.substr(i, piece)) == Breach::kNone);
  // The acknowledgement of the daemon's settings is the guard's.
  CHECK(client.passed == Greeting() + SettingsAck() + rest);
}

TEST_CASE("guard: the first acknowledgement of settings is the guard's, the client's is left out",
          "[guard]") {
  Client client;
  client.Greet();
  REQUIRE(client.passed == Greeting() + SettingsAck());
  REQUIRE(client.Say(SettingsAck()) == Breach::kNone);
  CHECK(client.passed == Greeting() + SettingsAck());
  // The daemon may change its settings later.
  REQUIRE(client.Say(SettingsAck()) == Breach::kNone);
  CHECK(client.passed == Greeting() + SettingsAck() + SettingsAck());
}

TEST_CASE("guard: what is not HTTP/2 is noticed at its first wrong byte", "[guard]") {
  CHECK(Client().Say("G") == Breach::kNotHttp2);
  CHECK(Client().Say("PRI * HTTP/1") == Breach::kNotHttp2);
  const std::string preface(kPreface);
  CHECK(Client().Say(preface) == Breach::kNone);
  CHECK(Client().Say(preface + Whole(FrameType::kPing, "12345678")) == Breach::kNotHttp2);
  CHECK(Client().Say(preface + SettingsAck()) == Breach::kNotHttp2);
}

TEST_CASE("guard: a header block has bounds, whichever frames it is made of", "[guard]") {
  const FrameBounds bounds;
  SECTION("one frame that announces too much, before its payload comes") {
    CHECK(Client().Greet().Say(Header(FrameType::kHeaders, bounds.header_block_bytes + 1)) ==
          Breach::kHeaderBlock);
    CHECK(Client().Greet().Say(Header(FrameType::kHeaders, bounds.header_block_bytes)) ==
          Breach::kNone);
  }
  SECTION("many small ones") {
    Client client;
    client.Greet();
    REQUIRE(client.Say(Whole(FrameType::kHeaders, "h", 0, 1)) == Breach::kNone);
    CHECK(client.Count(Whole(FrameType::kContinuation, "c", 0, 1), 1'000) ==
          bounds.header_block_frames - 1);
  }
  SECTION("empty ones") {
    Client client;
    client.Greet();
    REQUIRE(client.Say(Whole(FrameType::kHeaders, "", 0, 1)) == Breach::kNone);
    CHECK(client.Count(Whole(FrameType::kContinuation, "", 0, 1), 1'000) ==
          bounds.header_block_frames - 1);
  }
  SECTION("the next block begins at nothing") {
    Client client;
    client.Greet();
    const std::string block = Whole(FrameType::kHeaders, std::string(40'000, 'h'), kEndHeaders, 1);
    CHECK(client.Count(block, 100) == 100);
  }
  SECTION("nothing comes between its frames") {
    Client client;
    client.Greet();
    REQUIRE(client.Say(Whole(FrameType::kHeaders, "h", 0, 1)) == Breach::kNone);
    CHECK(client.Say(Whole(FrameType::kPing, "12345678")) == Breach::kFrameOrder);
    CHECK(Client().Greet().Say(Whole(FrameType::kContinuation, "c", kEndHeaders, 1)) ==
          Breach::kFrameOrder);
  }
}

TEST_CASE("guard: each kind of frame has a bound of its own", "[guard]") {
  const FrameBounds bounds;
  const auto most = [](const std::string& frame) {
    return Client().Greet().Count(frame, 1'000'000);
  };
  CHECK(most(kReset) == bounds.resets.at_once);
  CHECK(most(Whole(FrameType::kData, "", 1, 1)) == bounds.empty_data.at_once);
  // Padding is nothing.
  CHECK(most(Whole(FrameType::kData, std::string(1, '\0'), Frame::kPadded, 1)) ==
        bounds.empty_data.at_once);
  CHECK(most(Whole(FrameType::kPing, "12345678")) == bounds.pings.at_once);
  CHECK(most(Whole(FrameType::kPing, "12345678", Frame::kAck)) == bounds.pings.at_once);
  CHECK(most(Whole(FrameType::kSettings)) == bounds.settings.at_once - 1);  // The greeting has one.
  CHECK(most(Whole(FrameType::kWindowUpdate, "1234")) == bounds.window_updates.at_once);
  CHECK(most(Whole(FrameType::kPriority, "12345", 0, 1)) == bounds.others.at_once);
  CHECK(most(Whole(static_cast<FrameType>(0x77), "x")) == bounds.others.at_once);
  CHECK(most(Whole(FrameType::kHeaders, "h", kEndHeaders, 1)) == bounds.streams.at_once);
  CHECK(most(Header(FrameType::kPushPromise, 0, 0, 1)) == 0);
  CHECK(most(Header(FrameType::kGoAway, bounds.control_frame_bytes + 1)) == 0);
  CHECK(most(Whole(FrameType::kData, "d", 0, 1)) == 1'000'000);  // gRPC's flow control bounds it.
}

TEST_CASE("guard: what is right at a rate is right for ever", "[guard]") {
  // One connection after the other, from one address.
  const FrameBounds bounds;
  const auto shared = std::make_shared<Allowance>(bounds.resets);
  SteadyTime now{std::chrono::hours(1)};
  const auto count = [&] {
    Client client(bounds, shared);
    client.now = now;
    return client.Greet().Count(kReset, 1'000'000);
  };
  REQUIRE(count() == bounds.resets.at_once);
  for (int second = 0; second < 100; ++second) {
    now += Milliseconds(1'000);
    REQUIRE(count() == bounds.resets.per_second);
  }
  now += std::chrono::hours(24 * 365);
  CHECK(count() == bounds.resets.at_once);
}

TEST_CASE("guard: connections of one address share what they may reset", "[guard]") {
  const FrameBounds bounds;
  const auto shared = std::make_shared<Allowance>(bounds.resets);
  Client one(bounds, shared);
  Client other(bounds, shared);
  CHECK(one.Greet().Count(kReset, 3'000) == 3'000);
  CHECK(other.Greet().Count(kReset, 1'000'000) == bounds.resets.at_once - 3'000);
}

TEST_CASE("guard: a client that is sent much may acknowledge much", "[guard]") {
  FrameBounds bounds;
  bounds.window_updates = {10, 0};
  bounds.empty_data = {10, 0};
  bounds.pings = {10, 0};
  Client client(bounds);
  client.Greet();
  for (int i = 0; i < 1'000; ++i) {
    client.frames.OnSent({100, FrameType::kData, 0, 1});
    client.frames.OnSent({8, FrameType::kPing, 0, 0});
    REQUIRE(client.Count(Whole(FrameType::kWindowUpdate, "1234"), 2) == 2);
    REQUIRE(client.Count(Whole(FrameType::kPing, "12345678", Frame::kAck), 1) == 1);
    // A stream ends with an empty frame.
    REQUIRE(client.Count(
                Whole(FrameType::kHeaders, "h", kEndHeaders, 1) + Whole(FrameType::kData, "", 1, 1),
                1) == 1);
  }
  CHECK(client.Count(Whole(FrameType::kWindowUpdate, "1234"), 100) == 8);
}

TEST_CASE("guard: calls beyond those that may be opened wait, with all that follows them",
          "[guard]") {
  const std::string call =
      Whole(FrameType::kHeaders, "h", kEndHeaders, 1) + Whole(FrameType::kData, "d", 1, 1);
  const std::string ping = Whole(FrameType::kPing, "12345678");
  Client client;
  client.Greet();
  client.passed.clear();
  REQUIRE(client.Say(call + call + call + ping, 2) == Breach::kNone);
  CHECK(client.passed == call + call);
  CHECK(client.frames.opened() == 2);
  // In whatever pieces it goes on.
  client.passed.clear();
  const std::string left = client.left;
  REQUIRE(client.Say(left, 0) == Breach::kNone);
  CHECK(client.passed.empty());
  CHECK(client.left == left);
  REQUIRE(client.Say(left, 1) == Breach::kNone);
  CHECK(client.passed == call + ping);
  CHECK(client.frames.opened() == 3);
  CHECK(client.frames.ended() == 0);
}

TEST_CASE("guard: a stream that the daemon ends and resets has ended once", "[guard]") {
  Client client;
  client.Greet();
  const std::string call = Whole(FrameType::kHeaders, "h", kEndHeaders, 1);
  REQUIRE(client.Count(call, 200) == 200);
  // Half of them go on.
  for (uint32_t stream = 1; stream < 200; stream += 2) {
    client.frames.OnSent({9, FrameType::kHeaders, Frame::kEndStream | Frame::kEndHeaders, stream});
    client.frames.OnSent({4, FrameType::kReset, 0, stream});
  }
  CHECK(client.frames.ended() == 100);
  client.frames.OnSent({4, FrameType::kReset, 0, 201});
  CHECK(client.frames.ended() == 101);
}

TEST_CASE("guard: no more streams have ended than there are, whatever is reset", "[guard]") {
  Client client;
  client.Greet();
  const std::string call = Whole(FrameType::kHeaders, "h", kEndHeaders, 1);
  REQUIRE(client.Count(call, 100) == 100);
  REQUIRE(client.Count(kReset, 300) == 300);
  CHECK(client.frames.ended() == 100);
  REQUIRE(client.Count(call, 50) == 50);
  CHECK(client.frames.opened() - client.frames.ended() == 50);
}

}  // namespace semaphored::guard
