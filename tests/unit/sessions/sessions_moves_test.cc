// A client repeats a request in another session, or outside of any. The claim moves there, and no
// two sessions have a grant of it at the same time.
#include <memory>
#include <string>

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "tests/contract/shared_engine.h"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

constexpr int64_t kTtlMs = 10'000;

SessionsOptions Options() {
  SessionsOptions options;
  options.node_ttl_ms = 4'000;
  options.sweep_interval_ms = 2'000;
  return options;
}
// For how long another daemon may vouch for a lease without knowing that it has moved.
constexpr Milliseconds kElsewhere{4'000 + 2'000};

// One client, and a daemon or two. "s" has one permit.
struct Moves {
  static constexpr char kName[] = "s";

  // `shared`: on an engine that daemons share.
  explicit Moves(bool shared = true)
      : fixture(shared ? contract::MakeSharedFixture(false) : nullptr),
        one(std::make_unique<SessionsWorld>(Options(), Engine(), "one")) {}

  std::unique_ptr<semaphored::Engine> Engine() const {
    return fixture ? fixture->Open().value() : nullptr;
  }
  SessionsWorld& Two() {
    if (!two) two = std::make_unique<SessionsWorld>(Options(), Engine(), "two");
    return *two;
  }
  void Pass(Milliseconds time) {
    one->Pass(time);
    if (two) two->Pass(time);
  }
  // While the client of this stream shows that it is alive.
  void PassAlive(const ClientStream& stream, Milliseconds time) {
    for (; time > Milliseconds(0); time -= Milliseconds(1'000)) {
      Pass(std::min(time, Milliseconds(1'000)));
      one->sessions().TouchSession(stream.session);
    }
  }
  void Hear() {
    one->Hear();
    if (two) two->Hear();
  }
  static void Open(SessionsWorld& at, ClientStream* stream, const Id& resume = {},
                   int64_t ttl_ms = kTtlMs) {
    OpenParams params;
    params.client_id = "client";
    params.ttl_ms = ttl_ms;
    params.resume = resume;
    params.holder = "holder";
    at.sessions().Open(std::move(params), stream);
    at.Settle();
  }
  static AcquireParams Request(uint64_t sequence) {
    AcquireParams params;
    params.requester = {"client", sequence};
    params.semaphore = kName;
    params.limit = 1;
    params.wait_ms = -1;
    params.ttl_ms = kTtlMs;
    return params;
  }
  static void Submit(SessionsWorld& at, const ClientStream& stream, uint64_t sequence = 1) {
    at.sessions().AcquireIn(stream.session, Request(sequence), sequence, true);
  }
  static void Ask(SessionsWorld& at, const ClientStream& stream, uint64_t sequence = 1) {
    Submit(at, stream, sequence);
    at.Settle();
  }
  // As a unary call, or a Hold.
  static Id Call(SessionsWorld& at, ClientStream* stream, uint64_t sequence = 1) {
    AcquireParams params = Request(sequence);
    params.holder = "client";
    params.holder_is_default = true;
    const Id claim = at.sessions().Acquire(std::move(params), stream, sequence);
    at.Settle();
    return claim;
  }
  static ReleaseAnswer Release(SessionsWorld& at, const Id& claim, const Id& session) {
    ReleaseCommand release;
    release.semaphore = kName;
    release.claim = claim;
    release.session = session;
    ReleaseAnswer answer;
    at.sessions().Release(std::move(release), [&](Result<ReleaseAnswer> result) {
      REQUIRE(result.ok());
      answer = result.value;
    });
    at.Settle();
    return answer;
  }
  static VerifyAnswer Verify(SessionsWorld& at, VerifyCommand verify) {
    verify.semaphore = kName;
    VerifyAnswer answer;
    at.sessions().Verify(std::move(verify), [&](Result<VerifyAnswer> result) {
      REQUIRE(result.ok());
      answer = std::move(result.value);
    });
    at.Settle();
    return answer;
  }
  static Reason Renew(SessionsWorld& at, const Id& claim) {
    Reason reason = Reason::kUnspecified;
    at.sessions().Renew({{kName, claim}}, [&](Result<RenewAnswer> result) {
      if (!result.ok()) reason = result.refusal->reason;
    });
    at.Settle();
    return reason;
  }
  uint32_t Held() { return one->Describe(kName)->held; }

  std::unique_ptr<contract::Fixture> fixture;
  std::unique_ptr<SessionsWorld> one;
  std::unique_ptr<SessionsWorld> two;
  ClientStream first;
  ClientStream second;
};

const Id& ClaimOf(const ClientStream& stream) { return stream.granted.at(0).lease->id; }

TEST_CASE(
    "moves: a lease goes to the session that repeats the request, and not before it is over") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  REQUIRE(moves.first.granted.size() == 1);
  moves.Pass(Milliseconds(1'000));
  CHECK(one.sessions().TouchSession(moves.first.session).valid_for_ms == kTtlMs);
  moves.Pass(Milliseconds(2'000));  // What was reported last is good for eight seconds more.

  Moves::Open(one, &moves.second);
  Moves::Ask(one, moves.second);
  CHECK(moves.second.granted.empty());
  CHECK(moves.second.reason() == Reason::kMoving);
  CHECK(moves.second.refused[0].first == 1);
  CHECK(moves.second.refused[0].second.code == absl::StatusCode::kUnavailable);
  CHECK(moves.second.refused[0].second.message.find("in 8000 ms") != std::string::npos);
  CHECK(moves.first.ended == std::vector{std::pair(ClaimOf(moves.first), EndCause::kMoved)});

  // The former session goes on: what is vouched for it from now on is not for this lease.
  moves.Pass(Milliseconds(7'900));
  one.sessions().TouchSession(moves.first.session);
  one.sessions().TouchSession(moves.second.session);
  Moves::Ask(one, moves.second);
  CHECK(moves.second.granted.empty());
  moves.Pass(Milliseconds(100));
  Moves::Ask(one, moves.second);
  REQUIRE(moves.second.granted.size() == 1);
  CHECK(moves.second.granted[0].vouch.valid_for_ms > 0);
  CHECK(ClaimOf(moves.second) == ClaimOf(moves.first));
  CHECK(moves.second.granted[0].lease->token == moves.first.granted[0].lease->token);
  CHECK(moves.second.granted[0].lease->session == moves.second.session);

  // The former session ends: it is not its lease any more.
  one.sessions().DetachSession(&moves.first);
  for (int i = 0; i < 12; ++i) {
    moves.Pass(Milliseconds(1'000));
    one.sessions().TouchSession(moves.second.session);
  }
  CHECK(moves.Held() == 1);
  CHECK(moves.second.ended.empty());
  // Repeated once more it is answered at once.
  Moves::Ask(one, moves.second);
  CHECK(moves.second.granted.size() == 2);
}

TEST_CASE("moves: a lease that another daemon hosts") {
  Moves moves;
  SessionsWorld& one = *moves.one;
  SessionsWorld& two = moves.Two();
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  REQUIRE(moves.first.granted.size() == 1);
  Moves::Open(two, &moves.second);
  Moves::Ask(two, moves.second);
  CHECK(moves.second.reason() == Reason::kMoving);
  // The former daemon does not know it, and goes on for a while.
  CHECK(one.sessions().TouchSession(moves.first.session).valid_for_ms > 0);
  moves.Pass(kElsewhere - Milliseconds(50));
  Moves::Ask(two, moves.second);
  CHECK(moves.second.granted.empty());
  moves.Hear();
  CHECK(moves.first.ended == std::vector{std::pair(ClaimOf(moves.first), EndCause::kMoved)});
  moves.Pass(Milliseconds(50));
  Moves::Ask(two, moves.second);
  REQUIRE(moves.second.granted.size() == 1);
  one.sessions().DetachSession(&moves.first);
  moves.Pass(Milliseconds(1'000));
  for (int i = 0; i < 12; ++i) {
    moves.Pass(Milliseconds(1'000));
    two.sessions().TouchSession(moves.second.session);
  }
  CHECK(moves.Held() == 1);
  CHECK(moves.second.ended.empty());
}

TEST_CASE("moves: the expiry of a session at a daemon that knows nothing of the move") {
  Moves moves;
  SessionsWorld& one = *moves.one;
  SessionsWorld& two = moves.Two();
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  Moves::Open(two, &moves.second);
  Moves::Ask(two, moves.second);
  CHECK(moves.second.reason() == Reason::kMoving);
  // Both sessions are in their first epoch.
  one.sessions().DetachSession(&moves.first);
  const bool closes = GENERATE(true, false);
  if (closes) {
    one.sessions().CloseSession(moves.first.session, [] {});
    one.Settle();
  } else {
    one.Pass(Milliseconds(kTtlMs + 100));
  }
  CHECK(two.Describe(Moves::kName)->held == 1);
  two.Pass(kElsewhere);
  two.sessions().TouchSession(moves.second.session);
  Moves::Ask(two, moves.second);
  CHECK(moves.second.granted.size() == 1);
}

TEST_CASE("moves: a wait goes on in the session that repeats it") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  ClientStream holder;
  Moves::Open(one, &holder);
  Moves::Ask(one, holder, 7);
  REQUIRE(holder.granted.size() == 1);
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  REQUIRE(moves.first.queued.size() == 1);
  const bool first_is_gone = GENERATE(true, false);
  if (first_is_gone) one.sessions().DetachSession(&moves.first);
  Moves::Open(one, &moves.second);
  Moves::Ask(one, moves.second);
  CHECK(moves.second.queued.size() == 1);
  CHECK(moves.first.refused.size() == (first_is_gone ? 0 : 1));
  // The former session's grace ends, then the session itself.
  if (!first_is_gone) one.sessions().DetachSession(&moves.first);
  for (int i = 0; i < 12; ++i) {
    moves.Pass(Milliseconds(1'000));
    one.sessions().TouchSession(moves.second.session);
    one.sessions().TouchSession(holder.session);
  }
  CHECK(one.Describe(Moves::kName)->waiting == 1);
  CHECK(Moves::Release(one, ClaimOf(holder), {}).released == 1);
  REQUIRE(moves.second.granted.size() == 1);
  CHECK(moves.second.granted[0].tag == 1);
  CHECK(moves.first.granted.empty());
}

TEST_CASE(
    "moves: a wait goes on in the call that repeats it, and in the session that repeats the "
    "call's") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  ClientStream holder;
  Moves::Open(one, &holder);
  Moves::Ask(one, holder, 7);
  REQUIRE(holder.granted.size() == 1);
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  REQUIRE(moves.first.queued.size() == 1);
  ClientStream call;
  Moves::Call(one, &call);
  CHECK(call.refused.empty());
  REQUIRE(moves.first.refused.size() == 1);
  CHECK(moves.first.refused[0].second.code == absl::StatusCode::kUnavailable);
  const bool goes_back = GENERATE(true, false);
  if (goes_back) {
    Moves::Open(one, &moves.second);
    Moves::Ask(one, moves.second);
    CHECK(moves.second.queued.size() == 1);
    REQUIRE(call.refused.size() == 1);
    CHECK(call.refused[0].second.code == absl::StatusCode::kUnavailable);
  }
  // The end of the session that it has left does not end it.
  one.sessions().CloseSession(moves.first.session, [] {});
  one.Settle();
  CHECK(one.Describe(Moves::kName)->waiting == 1);
  CHECK(Moves::Release(one, ClaimOf(holder), {}).released == 1);
  CHECK(moves.first.granted.empty());
  CHECK(call.granted.size() == (goes_back ? 0 : 1));
  CHECK(moves.second.granted.size() == (goes_back ? 1 : 0));
  CHECK(moves.Held() == 1);
  CHECK(one.Describe(Moves::kName)->waiting == 0);
}

TEST_CASE("moves: a session's wait goes on in a call at another daemon") {
  Moves moves;
  SessionsWorld& one = *moves.one;
  SessionsWorld& two = moves.Two();
  ClientStream holder;
  Moves::Open(two, &holder);
  Moves::Ask(two, holder, 7);
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  REQUIRE(moves.first.queued.size() == 1);
  ClientStream call;
  Moves::Call(two, &call);
  CHECK(call.refused.empty());
  if (GENERATE(true, false)) {
    one.Hear();
    CHECK(moves.first.refused.size() == 1);
  }
  one.sessions().DetachSession(&moves.first);
  one.Pass(Milliseconds(1'100));  // The grace.
  CHECK(two.Describe(Moves::kName)->waiting == 1);
  CHECK(Moves::Release(two, ClaimOf(holder), {}).released == 1);
  two.Settle();
  CHECK(call.granted.size() == 1);
  one.Hear();
  CHECK(moves.first.granted.empty());
  CHECK(moves.Held() == 1);
}

TEST_CASE("moves: a wait that goes on at another daemon") {
  Moves moves;
  SessionsWorld& one = *moves.one;
  SessionsWorld& two = moves.Two();
  ClientStream holder;
  Moves::Open(two, &holder);
  Moves::Ask(two, holder, 7);
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  REQUIRE(moves.first.queued.size() == 1);
  Moves::Open(two, &moves.second);
  Moves::Ask(two, moves.second);
  REQUIRE(moves.second.queued.size() == 1);
  const bool hears_first = GENERATE(true, false);
  if (hears_first) {
    one.Hear();
    CHECK(moves.first.refused.size() == 1);
  }
  one.sessions().DetachSession(&moves.first);
  one.Pass(Milliseconds(1'100));  // The grace.
  CHECK(two.Describe(Moves::kName)->waiting == 1);
  // Granted before the former daemon has heard of anything.
  CHECK(Moves::Release(two, ClaimOf(holder), {}).released == 1);
  two.Settle();
  REQUIRE(moves.second.granted.size() == 1);
  one.Hear();
  CHECK(moves.first.granted.empty());
  CHECK(one.sessions().counts().leases == 0);
  CHECK(one.sessions().counts().waiters == 0);
}

TEST_CASE("moves: a late release by the former session changes nothing") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  const Id claim = ClaimOf(moves.first);
  Moves::Open(one, &moves.second);
  Moves::Ask(one, moves.second);
  ReleaseAnswer late = Moves::Release(one, claim, moves.first.session);
  CHECK(late.released == 0);
  CHECK(late.ended == EndCause::kMoved);
  CHECK(moves.Held() == 1);
  moves.PassAlive(moves.second, Milliseconds(kTtlMs));
  Moves::Ask(one, moves.second);
  REQUIRE(moves.second.granted.size() == 1);
  CHECK(Moves::Release(one, claim, moves.first.session).released == 0);
  CHECK(Moves::Release(one, claim, moves.second.session).released == 1);
  CHECK(moves.Held() == 0);
}

TEST_CASE("moves: a unary call beside the session takes its lease") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  const Id claim = ClaimOf(moves.first);
  Moves::Call(one, &moves.second);
  CHECK(moves.second.reason() ==
        Reason::kMoving);  // And not REQUEST_ID_REUSED: it names no holder.
  CHECK(moves.first.ended.size() == 1);
  CHECK(Moves::Renew(one, claim) == Reason::kMoving);
  moves.Pass(Milliseconds(kTtlMs + 5'000));  // The call comes when it can.
  Moves::Call(one, &moves.second);
  REQUIRE(moves.second.granted.size() == 1);
  CHECK(ClaimOf(moves.second) == claim);
  CHECK(moves.second.granted[0].lease->detached());
  // The session ends, and the lease lives by Renew.
  one.sessions().CloseSession(moves.first.session, [] {});
  moves.Pass(Milliseconds(kTtlMs - 100));
  CHECK(Moves::Renew(one, claim) == Reason::kUnspecified);
  moves.Pass(Milliseconds(kTtlMs - 100));
  CHECK(moves.Held() == 1);
  moves.Pass(Milliseconds(200));
  CHECK(moves.Held() == 0);
}

TEST_CASE("moves: a call that takes a session's lease and does not come back") {
  Moves moves(/*shared=*/true);
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  Moves::Call(one, &moves.second);
  REQUIRE(moves.second.reason() == Reason::kMoving);
  moves.Pass(Milliseconds(2 * kTtlMs + 100));  // The move, and the TTL.
  CHECK(moves.Held() == 0);
}

TEST_CASE("moves: a session takes the lease of a call") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  const Id call = Moves::Call(one, &moves.first);
  REQUIRE(moves.first.granted.size() == 1);
  const Id claim = ClaimOf(moves.first);
  CHECK(call == claim);
  moves.Pass(Milliseconds(4'000));
  CHECK(one.sessions().Touch(claim).valid_for_ms == kTtlMs);  // A beat, as of a Hold.
  Moves::Open(one, &moves.second);
  Moves::Ask(one, moves.second);
  CHECK(moves.second.reason() == Reason::kMoving);
  CHECK(moves.first.ended.size() == 1);
  CHECK(one.sessions().Touch(claim).valid_for_ms == 0);
  CHECK(Moves::Renew(one, claim) == Reason::kBelongsToSession);
  moves.Pass(Milliseconds(kTtlMs - 50));
  one.sessions().TouchSession(moves.second.session);
  Moves::Ask(one, moves.second);
  CHECK(moves.second.granted.empty());
  moves.Pass(Milliseconds(50));
  Moves::Ask(one, moves.second);
  REQUIRE(moves.second.granted.size() == 1);
  CHECK(ClaimOf(moves.second) == claim);
  moves.Pass(Milliseconds(5'000));
  CHECK(moves.Held() == 1);  // The TTL of the call's own lease has passed.
}

TEST_CASE("moves: to a third session, and back") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  ClientStream third;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  Moves::Open(one, &moves.second);
  Moves::Open(one, &third);
  Moves::Ask(one, moves.second);
  moves.Pass(Milliseconds(3'000));
  Moves::Ask(one, third);
  CHECK(third.reason() == Reason::kMoving);
  CHECK(moves.second.ended.empty());  // It never had a grant.
  Moves::Ask(one, moves.first);
  CHECK(moves.first.reason() == Reason::kMoving);
  for (const ClientStream* each : {&moves.first, &moves.second, &third})
    one.sessions().TouchSession(each->session);
  // The first holder counts from the last validity that it received, whatever has happened since.
  moves.Pass(Milliseconds(kTtlMs - 3'000 - 50));
  Moves::Ask(one, third);
  CHECK(third.granted.empty());
  moves.Pass(Milliseconds(50));
  Moves::Ask(one, third);
  REQUIRE(third.granted.size() == 1);
  CHECK(moves.first.granted.size() == 1);
  CHECK(moves.second.granted.empty());
}

TEST_CASE("moves: two sessions repeat a request in one batch") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  ClientStream third;
  Moves::Open(one, &moves.first);
  Moves::Open(one, &moves.second);
  Moves::Open(one, &third);
  SECTION("a lease") {
    Moves::Ask(one, moves.first);
    Moves::Submit(one, moves.second);
    Moves::Submit(one, third);
    Moves::Submit(one, moves.first);
    one.Settle();
    CHECK(moves.first.ended.size() == 1);
    CHECK(moves.first.granted.size() == 1);
    for (const ClientStream* each : {&moves.first, &moves.second, &third})
      CHECK(each->reason() == Reason::kMoving);
    moves.PassAlive(moves.first, Milliseconds(kTtlMs));
    Moves::Ask(one, moves.first);
    CHECK(moves.first.granted.size() == 2);
  }
  SECTION("a request that is granted in the same batch") {
    Moves::Submit(one, moves.first);
    Moves::Submit(one, moves.second);
    one.Settle();
    CHECK(moves.first.granted.size() == 1);
    CHECK(moves.first.ended.size() == 1);
    CHECK(moves.second.granted.empty());
    CHECK(moves.second.reason() == Reason::kMoving);
  }
  SECTION("a waiter that is let in by the batch in which it moves") {
    Moves::Ask(one, third, 7);
    Moves::Ask(one, moves.first);
    REQUIRE(moves.first.queued.size() == 1);
    ReleaseCommand release;
    release.semaphore = Moves::kName;
    release.claim = ClaimOf(third);
    const bool moves_first = GENERATE(true, false);
    if (moves_first) Moves::Submit(one, moves.second);
    one.sessions().Release(std::move(release), [](const Result<ReleaseAnswer>&) {});
    if (!moves_first) Moves::Submit(one, moves.second);
    one.Settle();
    CHECK(moves.first.granted.empty());
    CHECK(moves.first.refused.size() == 1);
    if (moves_first) {
      REQUIRE(moves.second.granted.size() == 1);
      CHECK(moves.second.granted[0].lease->session == moves.second.session);
    } else {
      CHECK(moves.second.reason() == Reason::kMoving);
    }
  }
  CHECK(moves.Held() == 1);
}

TEST_CASE("moves: a session that is closed meanwhile frees nothing that may be counted on") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  Moves::Open(one, &moves.second);
  Moves::Ask(one, moves.second);
  // It has another lease too, which is free at once.
  AcquireParams other = Moves::Request(2);
  other.semaphore = "other";
  one.sessions().AcquireIn(moves.second.session, std::move(other), 2, true);
  one.Settle();
  REQUIRE(moves.second.granted.size() == 1);
  bool done = false;
  one.sessions().CloseSession(moves.second.session, [&] { done = true; });
  one.Settle();
  CHECK(done);
  CHECK(one.Describe("other")->held == 0);
  CHECK(moves.Held() == 1);
  // It is not to be resumed.
  ClientStream again;
  Moves::Open(one, &again, moves.second.session);
  REQUIRE(again.over.size() == 1);
  CHECK(again.over[0].reason == Reason::kSessionLost);
  moves.Pass(Milliseconds(kTtlMs - 50));
  CHECK(moves.Held() == 1);
  moves.Pass(Milliseconds(50));
  CHECK(moves.Held() == 0);
}

TEST_CASE("moves: a session that is closed before the answer to its request") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  Moves::Open(one, &moves.second);
  Moves::Submit(one, moves.second);
  bool done = false;
  one.sessions().CloseSession(moves.second.session, [&] { done = true; });
  one.Settle();
  CHECK(done);
  CHECK(moves.first.ended.size() == 1);
  moves.Pass(Milliseconds(kTtlMs - 50));
  CHECK(moves.Held() == 1);
  moves.Pass(Milliseconds(50));
  CHECK(moves.Held() == 0);
}

TEST_CASE("moves: a session that goes away meanwhile") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  Moves::Open(one, &moves.second, {}, /*ttl_ms=*/2'000);
  Moves::Ask(one, moves.second);
  one.sessions().DetachSession(&moves.second);
  // Its own TTL is shorter than that of the former holder.
  moves.Pass(Milliseconds(kTtlMs - 50));
  CHECK(moves.Held() == 1);
  moves.Pass(Milliseconds(100));
  CHECK(moves.Held() == 0);
}

TEST_CASE("moves: a lease that moves is not listed on resume, and not vouched for") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  const Lease lease = *moves.first.granted[0].lease;
  Moves::Open(one, &moves.second);
  Moves::Ask(one, moves.second);
  ClientStream again;
  Moves::Open(one, &again, moves.second.session);
  REQUIRE(again.resumed);
  CHECK(again.held.empty());
  CHECK(one.sessions().counts().leases == 0);
  ClientStream former;
  Moves::Open(one, &former, moves.first.session);
  REQUIRE(former.resumed);
  CHECK(former.held.empty());
  const VerifyAnswer by_holder = Moves::Verify(one, {"", lease.id, 0, 0});
  CHECK_FALSE(by_holder.held);
  CHECK(by_holder.ended == EndCause::kMoved);
  const VerifyAnswer by_slot = Moves::Verify(one, {"", {}, lease.slots.front(), lease.token});
  CHECK(by_slot.held);
  CHECK(by_slot.vouch.valid_for_ms == 0);
  moves.PassAlive(again, Milliseconds(kTtlMs));
  Moves::Ask(one, again);
  REQUIRE(again.granted.size() == 1);
  CHECK(Moves::Verify(one, {"", lease.id, 0, 0}).vouch.valid_for_ms > 0);
}

TEST_CASE("moves: a daemon that knows only the row starts the time again") {
  Moves moves;
  SessionsWorld& two = moves.Two();
  Moves::Open(two, &moves.first);
  Moves::Ask(two, moves.first);
  Moves::Open(*moves.one, &moves.second);
  Moves::Ask(*moves.one, moves.second);
  CHECK(moves.second.reason() == Reason::kMoving);
  ClientStream again;
  SECTION("after a restart") {
    moves.one = std::make_unique<SessionsWorld>(Options(), moves.Engine(), "one");
    Moves::Open(*moves.one, &again, moves.second.session);
  }
  SECTION("after the session has gone to another daemon") {
    moves.one = std::make_unique<SessionsWorld>(Options(), moves.Engine(), "three");
    Moves::Open(*moves.one, &again, moves.second.session);
  }
  REQUIRE(again.resumed);
  CHECK(again.held.empty());
  Moves::Ask(*moves.one, again);
  CHECK(again.reason() == Reason::kMoving);
  moves.Pass(kElsewhere - Milliseconds(50));
  Moves::Ask(*moves.one, again);
  CHECK(again.granted.empty());
  moves.Pass(Milliseconds(50));
  Moves::Ask(*moves.one, again);
  CHECK(again.granted.size() == 1);
}

// Its client goes from daemon to daemon, as each says that the lease still moves.
TEST_CASE("moves: a lease of a detached caller that was asked for at two daemons is kept by one") {
  Moves moves;
  SessionsWorld& one = *moves.one;
  SessionsWorld& two = moves.Two();
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  ClientStream at_two;
  ClientStream at_one;
  Moves::Call(two, &at_two);
  CHECK(at_two.reason() == Reason::kMoving);
  Moves::Call(one, &at_one);
  CHECK(at_one.reason() == Reason::kMoving);
  moves.Pass(kElsewhere);
  moves.Hear();
  const bool goes_back = GENERATE(true, false);
  SessionsWorld& keeps = goes_back ? two : one;
  ClientStream granted;
  Moves::Call(keeps, &granted);
  REQUIRE(granted.granted.size() == 1);
  // Longer than the other daemon waits for a sign of life.
  for (Milliseconds time{0}; time < Milliseconds(4 * kTtlMs); time += Milliseconds(1'000)) {
    moves.Pass(Milliseconds(1'000));
    moves.Hear();
    CHECK(Moves::Renew(keeps, ClaimOf(granted)) == Reason::kUnspecified);
    CHECK(moves.Held() == 1);
  }
  CHECK(Moves::Release(keeps, ClaimOf(granted), {}).released == 1);
  CHECK(moves.Held() == 0);
}

TEST_CASE("moves: a wait that has moved is cancelled where it is") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  ClientStream holder;
  Moves::Open(one, &holder);
  Moves::Ask(one, holder, 7);
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  Moves::Open(one, &moves.second);
  Moves::Ask(one, moves.second);
  CHECK_FALSE(one.sessions().CancelIn(moves.first.session, 1));
  CHECK(one.sessions().CancelIn(moves.second.session, 1));
  one.Settle();
  CHECK(moves.second.reason() == Reason::kWaitCancelled);
  CHECK(one.Describe(Moves::kName)->waiting == 0);
}

TEST_CASE(
    "moves: a recalled lease that was hosted elsewhere is vouched for there, and its grace begins "
    "again") {
  Moves moves;
  SessionsWorld& one = *moves.one;
  SessionsWorld& two = moves.Two();
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  const Id claim = ClaimOf(moves.first);
  AdminCommand revoke;
  revoke.semaphore = Moves::kName;
  revoke.act = AdminRevoke{claim, "", 2'000};
  one.sessions().Administer(std::move(revoke), 0, [](const Result<AdminAnswer>&) {});
  one.Settle();
  REQUIRE(moves.first.recalls.size() == 1);
  const uint64_t recall = moves.first.recalls[0].id;
  one.sessions().AcknowledgeRecall(moves.first.session, claim, recall);
  // To the other daemon, and back before this one hears of it.
  one.sessions().DetachSession(&moves.first);
  moves.Pass(Milliseconds(1'000));
  Moves::Open(two, &moves.second, moves.first.session);
  two.Settle();
  REQUIRE(moves.second.held.size() == 1);
  CHECK(moves.second.held[0].recall.id == recall);
  CHECK(moves.second.held[0].recall.grace_ms == 2'000);
  const int64_t vouched_ms = two.sessions().TouchSession(moves.second.session).valid_for_ms;
  CHECK(vouched_ms > 2'000);
  two.sessions().DetachSession(&moves.second);
  ClientStream third;
  Moves::Open(one, &third, moves.first.session);
  one.Settle();
  REQUIRE(third.held.size() == 1);
  CHECK(third.held[0].recall.grace_ms == 2'000);
  one.Pass(Milliseconds(vouched_ms - 100));
  CHECK(third.ended.empty());
  one.sessions().TouchSession(third.session);
  one.Pass(kElsewhere);
  REQUIRE(third.ended.size() == 1);
  CHECK(third.ended[0] == std::pair(claim, EndCause::kRevoked));
}

TEST_CASE("moves: a recall is not acknowledged for the former holder of a lease that moves") {
  Moves moves;
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  const Id claim = ClaimOf(moves.first);
  AdminCommand revoke;
  revoke.semaphore = Moves::kName;
  revoke.act = AdminRevoke{claim, "", 1'000};
  one.sessions().Administer(std::move(revoke), 0, [](const Result<AdminAnswer>&) {});
  one.Settle();
  const uint64_t recall = moves.first.recalls.at(0).id;
  Moves::Open(one, &moves.second);
  Moves::Ask(one, moves.second);
  REQUIRE(moves.second.reason() == Reason::kMoving);
  one.sessions().AcknowledgeRecall(moves.second.session, claim, recall);
  moves.PassAlive(moves.second, Milliseconds(3'000));
  CHECK(moves.Held() == 1);
}

TEST_CASE("moves: a daemon that does not host a lease says that it is recalled") {
  Moves moves;
  SessionsWorld& one = *moves.one;
  SessionsWorld& two = moves.Two();
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  const Id claim = ClaimOf(moves.first);
  AdminCommand revoke;
  revoke.semaphore = Moves::kName;
  revoke.act = AdminRevoke{claim, "", 9'000};
  two.sessions().Administer(std::move(revoke), 0, [](const Result<AdminAnswer>&) {});
  two.Settle();
  moves.Hear();
  REQUIRE(moves.first.recalls.size() == 1);
  VerifyCommand verify;
  verify.semaphore = Moves::kName;
  verify.claim = claim;
  two.sessions().Verify(std::move(verify), [&](Result<VerifyAnswer> result) {
    REQUIRE(result.ok());
    CHECK(result.value.held);
    CHECK(result.value.vouch.recall.id == moves.first.recalls[0].id);
  });
  two.Settle();
}

TEST_CASE("moves: a lease that is revoked while it moves") {
  Moves moves(GENERATE(true, false));
  SessionsWorld& one = *moves.one;
  Moves::Open(one, &moves.first);
  Moves::Ask(one, moves.first);
  const Id claim = ClaimOf(moves.first);
  Moves::Open(one, &moves.second);
  Moves::Ask(one, moves.second);
  AdminCommand revoke;
  revoke.semaphore = Moves::kName;
  const bool graced = GENERATE(true, false);
  revoke.act = AdminRevoke{claim, "", graced ? 2'000 : 0};
  one.sessions().Administer(std::move(revoke), 0, [](const Result<AdminAnswer>&) {});
  one.Settle();
  // Not before the former holder can count on it no longer.
  CHECK(moves.Held() == (graced ? 1 : 0));
  moves.PassAlive(moves.second, Milliseconds(2'050));
  CHECK(moves.Held() == (graced ? 1 : 0));
  moves.PassAlive(moves.second, Milliseconds(kTtlMs));
  CHECK(moves.Held() == 0);
  CHECK(moves.second.ended.empty());
  Moves::Ask(one, moves.second);
  CHECK(moves.second.reason() == Reason::kNotHeld);
  CHECK(moves.second.granted.empty());
}

}  // namespace
}  // namespace semaphored
