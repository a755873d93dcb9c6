// A session moves to this daemon while a semaphore of it cannot be read, and the second reading fails too.
#include <memory>
#include <string>
#include <utility>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/damaged_engine.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

constexpr int64_t kUnreadTtl_ms = 60'000;

LeasePtr GrantAt(SessionsWorld& daemon, ClientStream* stream, const std::string& semaphore) {
  AcquireParams params;
  params.semaphore = semaphore;
  params.limit = 2;
  daemon.sessions().AcquireIn(stream->session, std::move(params), 1 + stream->granted.size(), true);
  daemon.Settle();
  return stream->granted.back().lease;
}

void OpenAt(SessionsWorld& daemon, ClientStream* stream, const Id& resume = {}) {
  OpenParams params;
  params.client_id = "client";
  params.ttl_ms = kUnreadTtl_ms;
  params.resume = resume;
  daemon.sessions().Open(std::move(params), stream);
  daemon.Settle();
}

}  // namespace

TEST_CASE("unread: a second reading after a move that fails is made again") {
  DamagedWorld damaged;
  SessionsWorld a({}, std::make_unique<DamagedEngine>(&damaged), "a");
  SessionsWorld b({}, std::make_unique<DamagedEngine>(&damaged), "b");
  ClientStream session;
  OpenAt(a, &session);
  GrantAt(a, &session, "good");
  GrantAt(a, &session, "bad");
  damaged.unreadable = {"bad"};
  ClientStream moved;
  OpenAt(b, &moved, session.session);
  REQUIRE(moved.resumed);
  REQUIRE(moved.held.size() == 1);
  const auto held = [&](const std::string& name) { return damaged.engine.Find(name)->held(); };
  const auto pass = [&](int seconds) {
    for (; seconds > 0; --seconds) {
      b.sessions().TouchSession(session.session);
      b.Pass(Milliseconds(1000));
    }
    b.Hear();
    b.Pass(Milliseconds(100));
  };
  // From now on the semaphore could be read, but the engine answers no reading.
  damaged.unreadable.clear();
  int failed = 0;
  damaged.on_load = [&] {
    ++failed;
    return absl::UnavailableError("the engine does not answer");
  };
  for (int i = 0; i < 12; ++i) {
    b.sessions().TouchSession(session.session);
    b.Pass(Milliseconds(1000));
  }
  CHECK(failed > 1);
  CHECK(held("bad") == 1);
  CHECK(moved.over.empty());
  damaged.on_load = nullptr;
  pass(12);
  CHECK(held("bad") == 0);
  CHECK(held("good") == 1);
  CHECK(moved.ended.empty());
  CHECK(moved.over.empty());
  // It is read, and is not read again.
  const int submitted = b.submitted();
  pass(20);
  CHECK(b.submitted() - submitted < 3);
}

}  // namespace semaphored
