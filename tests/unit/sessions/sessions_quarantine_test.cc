// Semaphores in quarantine: for how long their leases are vouched for, and how they end.
#include <memory>
#include <string>
#include <utility>

#include "catch2/catch_test_macros.hpp"
#include "tests/unit/sessions/client_stream.h"
#include "tests/unit/sessions/damaged_engine.h"
#include "tests/unit/sessions/sessions_world.h"

namespace semaphored {
namespace {

constexpr int64_t kTtl_ms = 60'000;

SessionsOptions OptionsOfNode() {
  SessionsOptions options;
  options.read_vouch_ms = 9000;
  return options;
}

struct Daemons {
  DamagedWorld damaged;
  SessionsWorld a{OptionsOfNode(), std::make_unique<DamagedEngine>(&damaged), "a"};
  SessionsWorld b{OptionsOfNode(), std::make_unique<DamagedEngine>(&damaged), "b"};
  uint64_t tags = 0;

  static AcquireParams Ask(const std::string& semaphore, int64_t wait_ms = 0) {
    AcquireParams params;
    params.semaphore = semaphore;
    params.limit = 2;
    params.ttl_ms = kTtl_ms;
    params.wait_ms = wait_ms;
    return params;
  }
  void Open(SessionsWorld& daemon, ClientStream* stream, const Id& resume = {}) const {
    OpenParams params;
    params.client_id = "client";
    params.ttl_ms = kTtl_ms;
    params.resume = resume;
    daemon.sessions().Open(std::move(params), stream);
    daemon.Settle();
  }
  LeasePtr Grant(ClientStream* stream, const std::string& semaphore) {
    a.sessions().AcquireIn(stream->session, Ask(semaphore), ++tags, true);
    a.Settle();
    return stream->granted.back().lease;
  }
  uint32_t HeldOf(const std::string& semaphore) const {
    const simulation::StoredSemaphore* stored = damaged.engine.Find(semaphore);
    return stored == nullptr ? 0 : stored->held();
  }
  // Another daemon changes the semaphore in a way that this version does not understand.
  void Spoil(const std::string& semaphore) {
    ClientStream other;
    b.sessions().Acquire(Ask(semaphore), &other, 1);
    b.Settle();
    damaged.unreadable.insert(semaphore);
    damaged.world.RunUntil(damaged.world.now() + 10 * simulation::kMillisecond);
    a.Hear();
  }
};

TEST_CASE("quarantine: its leases are vouched for as long as the last read of it allows") {
  Daemons at;
  ClientStream session;
  ClientStream call;
  at.Open(at.a, &session);
  const LeasePtr good = at.Grant(&session, "good");
  const LeasePtr bad = at.Grant(&session, "bad");
  const Id detached = at.a.sessions().Acquire(Daemons::Ask("other"), &call, 1);
  at.a.Settle();
  REQUIRE(call.granted.size() == 1);
  CHECK(at.a.sessions().TouchSession(session.session).valid_for_ms == kTtl_ms);
  at.Spoil("bad");
  at.Spoil("other");
  // The lane read both just before. The session's validity is that of its lease.
  CHECK(at.a.sessions().TouchSession(session.session).valid_for_ms == 9000);
  CHECK(at.a.sessions().Touch(detached).valid_for_ms == 9000);
  CHECK(session.ended.empty());
  at.a.Pass(Milliseconds(4400));
  CHECK(at.a.sessions().TouchSession(session.session).valid_for_ms == 4600);
  CHECK(session.ended.empty());
  // Half of the time is over: the holder loses that lease, and keeps its session and the other one.
  at.a.Pass(Milliseconds(200));
  REQUIRE(session.ended.size() == 1);
  CHECK(session.ended[0] == std::pair(bad->id, EndCause::kEngineLost));
  CHECK(session.over.empty());
  CHECK(at.a.sessions().TouchSession(session.session).valid_for_ms == kTtl_ms);
  // A call's lease is vouched for to the end of that time; its stream ends.
  CHECK(call.reason() == Reason::kNotVouched);
  CHECK(at.a.sessions().Touch(detached).valid_for_ms == 4400);
  at.a.Pass(Milliseconds(4400));
  CHECK(at.a.sessions().Touch(detached).valid_for_ms == 0);
  // The permits stay held, and every other semaphore is in use.
  CHECK(at.HeldOf("bad") == 2);
  CHECK(at.Grant(&session, "good")->id != good->id);
}

TEST_CASE("quarantine: what a holder has lost is ended when the semaphore can be used again") {
  Daemons at;
  ClientStream session;
  at.Open(at.a, &session);
  at.Grant(&session, "good");
  at.Grant(&session, "bad");
  at.Spoil("bad");
  at.a.Pass(Milliseconds(5000));
  REQUIRE(session.ended.size() == 1);
  // It is not listed to the client that comes back.
  ClientStream resumed;
  at.Open(at.a, &resumed, session.session);
  REQUIRE(resumed.resumed);
  REQUIRE(resumed.held.size() == 1);
  CHECK(resumed.held[0].semaphore == "good");
  CHECK(at.HeldOf("bad") == 2);
  at.damaged.unreadable.clear();
  at.a.Pass(Milliseconds(6000));
  at.a.Hear();
  at.a.Pass(Milliseconds(100));
  CHECK(at.HeldOf("bad") == 1);  // That of the other daemon.
  CHECK(resumed.ended.empty());
  CHECK(at.a.sessions().TouchSession(session.session).valid_for_ms == kTtl_ms);
  CHECK(at.Grant(&resumed, "bad"));
}

// The repeated request makes the lane read the semaphore again, before the lease is ended.
TEST_CASE("quarantine: the request of a lease that its holder has lost does not get it back") {
  Daemons at;
  ClientStream session;
  at.Open(at.a, &session);
  const auto ask = [&](uint64_t tag) {
    AcquireParams params = Daemons::Ask("bad");
    params.requester.sequence = 1;
    at.a.sessions().AcquireIn(session.session, std::move(params), tag, true);
    at.a.Settle();
  };
  ask(++at.tags);
  REQUIRE(session.granted.size() == 1);
  at.Spoil("bad");
  at.a.Pass(Milliseconds(5000));
  REQUIRE(session.ended.size() == 1);
  at.damaged.unreadable.clear();
  ask(++at.tags);
  CHECK(session.granted.size() == 1);
  CHECK(session.reason() == Reason::kNotHeld);
  CHECK(at.HeldOf("bad") == 1);  // That of the other daemon.
  CHECK(session.ended.size() == 1);
}

// The resume did not list these claims to its client.
TEST_CASE("quarantine: what a session that moved has there is ended when it can be read") {
  Daemons at;
  ClientStream session;
  ClientStream other;
  at.Open(at.a, &session);
  at.Grant(&session, "good");
  at.Grant(&session, "bad");
  at.Grant(&session, "full");
  at.a.sessions().Acquire(Daemons::Ask("full"), &other, 1);
  at.a.sessions().AcquireIn(session.session, Daemons::Ask("full", 600'000), ++at.tags, true);
  at.a.Settle();
  REQUIRE(session.queued.size() == 1);
  at.damaged.unreadable = {"bad", "full"};
  ClientStream moved;
  at.Open(at.b, &moved, session.session);
  REQUIRE(moved.resumed);
  REQUIRE(moved.held.size() == 1);
  const auto pass = [&](Milliseconds time) {
    for (; time > Milliseconds(0); time -= Milliseconds(1000)) {
      at.b.sessions().TouchSession(session.session);
      at.b.Pass(Milliseconds(1000));
    }
    at.b.Hear();
    at.b.Pass(Milliseconds(100));
  };
  pass(Milliseconds(20'000));
  CHECK(at.HeldOf("bad") == 1);
  at.damaged.unreadable = {"bad"};
  pass(Milliseconds(12'000));
  CHECK(at.HeldOf("full") == 1);  // That of the other client.
  CHECK(at.damaged.engine.Find("full")->waiters.empty());
  CHECK(at.HeldOf("bad") == 1);
  at.damaged.unreadable.clear();
  pass(Milliseconds(12'000));
  CHECK(at.HeldOf("bad") == 0);
  CHECK(at.HeldOf("good") == 1);
  CHECK(moved.ended.empty());
  CHECK(moved.over.empty());
  CHECK(at.b.sessions().TouchSession(session.session).valid_for_ms == kTtl_ms);
  // The session is not read again any more.
  const int submitted = at.b.submitted();
  pass(Milliseconds(20'000));
  CHECK(at.b.submitted() - submitted < 3);
}

// It is not fetched from the daemon to which it has gone on.
TEST_CASE("quarantine: a session that has moved on is not read again") {
  Daemons at;
  ClientStream session;
  at.Open(at.a, &session);
  at.Grant(&session, "good");
  at.Grant(&session, "bad");
  at.damaged.unreadable = {"bad"};
  ClientStream moved;
  at.Open(at.b, &moved, session.session);
  REQUIRE(moved.resumed);
  at.a.Hear();
  // The first attempt finds out that the semaphore which this daemon knows is damaged.
  ClientStream back;
  for (int i = 0; i < 2 && !back.resumed; ++i) at.Open(at.a, &back, session.session);
  REQUIRE(back.resumed);
  const uint32_t epoch = at.damaged.engine.sessions().at(session.session).epoch;
  at.b.Pass(Milliseconds(20'000));
  CHECK(at.damaged.engine.sessions().at(session.session).epoch == epoch);
  CHECK(at.a.sessions().TouchSession(session.session).valid_for_ms > 0);
}

TEST_CASE("quarantine: a semaphore that is read again in time costs no lease") {
  Daemons at;
  ClientStream session;
  ClientStream call;
  at.Open(at.a, &session);
  at.Grant(&session, "bad");
  const Id detached = at.a.sessions().Acquire(Daemons::Ask("other"), &call, 1);
  at.a.Settle();
  at.Spoil("bad");
  at.Spoil("other");
  at.a.Pass(Milliseconds(4000));
  at.damaged.unreadable.clear();
  at.a.Pass(Milliseconds(300));
  ClientStream asks;
  for (const char* name : {"bad", "other"}) {
    at.a.sessions().Acquire(Daemons::Ask(name), &asks, 1);
    at.a.Settle();
  }
  at.a.Pass(Milliseconds(5000));
  CHECK(session.ended.empty());
  CHECK(call.refused.empty());
  CHECK(at.a.sessions().TouchSession(session.session).valid_for_ms == kTtl_ms);
  CHECK(at.a.sessions().Touch(detached).valid_for_ms == kTtl_ms);
}

TEST_CASE("quarantine: expiries wait, and are made up for") {
  Daemons at;
  ClientStream call;
  ClientStream waits;
  at.a.sessions().Acquire(Daemons::Ask("bad"), &call, 1);
  at.a.sessions().Acquire(Daemons::Ask("bad"), &call, 2);
  AcquireParams stays = Daemons::Ask("full");
  stays.permits = 2;
  stays.ttl_ms = 10 * kTtl_ms;
  at.a.sessions().Acquire(std::move(stays), &call, 3);
  at.a.sessions().Acquire(Daemons::Ask("full", 5000), &waits, 4);
  at.a.Settle();
  REQUIRE(call.granted.size() == 3);
  at.damaged.unwritable = {"bad", "full"};
  const int submitted = at.a.submitted();
  at.a.Pass(Milliseconds(kTtl_ms + 60'000));
  CHECK(at.HeldOf("bad") == 2);
  CHECK(waits.refused.empty());
  // Every few seconds, not all the time.
  CHECK(at.a.submitted() - submitted < 120);
  at.damaged.unwritable.clear();
  for (int i = 0; i < 14; ++i) {
    at.a.Pass(Milliseconds(5000));
    at.a.Hear();
  }
  CHECK(at.HeldOf("bad") == 0);
  CHECK(at.HeldOf("full") == 2);
  CHECK(waits.reason() == Reason::kWaitExpired);
}

TEST_CASE("quarantine: the delay of a ticket ends late, but it ends") {
  Daemons at;
  EnqueueCommand enqueue;
  enqueue.semaphore = "bad";
  enqueue.ticket = at.a.NewId();
  enqueue.limit = 1;
  enqueue.delay_ms = 1000;
  at.a.sessions().Enqueue(enqueue, [](const Result<EnqueueAnswer>&) {});
  at.a.Settle();
  at.damaged.unwritable = {"bad"};
  at.a.Pass(Milliseconds(5000));
  const auto state = [&] { return at.damaged.engine.Find("bad")->tickets.begin()->second.state; };
  REQUIRE(state() == TicketState::kDelayed);
  at.damaged.unwritable.clear();
  for (int i = 0; i < 14; ++i) {
    at.a.Pass(Milliseconds(5000));
    at.a.Hear();
  }
  CHECK(state() == TicketState::kQueued);
}

// The take-over does not see it: nothing is known of what is in there.
TEST_CASE("quarantine: what a dead daemon left in a semaphore is taken over when it can be read") {
  Daemons at;
  ClientStream call;
  at.b.sessions().Acquire(Daemons::Ask("bad"), &call, 1);
  at.b.Settle();
  at.damaged.unreadable = {"bad"};
  at.a.TakeOver(at.b.self());
  at.a.Pass(Milliseconds(10'000));
  at.damaged.unreadable.clear();
  at.a.Pass(Milliseconds(6000));
  at.a.Hear();
  CHECK(at.HeldOf("bad") == 1);
  at.a.Pass(Milliseconds(kTtl_ms + 1000));
  CHECK(at.HeldOf("bad") == 0);
}

TEST_CASE("quarantine: a session that waits there keeps its leases elsewhere") {
  Daemons at;
  ClientStream session;
  ClientStream call;
  at.Open(at.a, &session);
  at.Grant(&session, "good");
  at.b.sessions().Acquire(Daemons::Ask("bad"), &call, 1);
  at.b.Settle();
  AcquireParams large = Daemons::Ask("bad", 600'000);
  large.permits = 2;
  at.a.sessions().AcquireIn(session.session, std::move(large), ++at.tags, true);
  at.a.Settle();
  REQUIRE(session.queued.size() == 1);
  at.b.sessions().Acquire(Daemons::Ask("bad", 600'000), &call, 2);
  at.b.Settle();
  at.damaged.unreadable = {"bad"};
  at.damaged.world.RunUntil(at.damaged.world.now() + 10 * simulation::kMillisecond);
  at.a.Hear();
  at.a.Pass(Milliseconds(20'000));
  CHECK(session.ended.empty());
  CHECK(at.a.sessions().TouchSession(session.session).valid_for_ms == kTtl_ms);
}

// The worker's one hand is full, and the ticket that came through the other daemon goes back.
TEST_CASE("quarantine: a ticket that is to be put back is, when the semaphore can be used again") {
  Daemons at;
  for (const char* name : {"x", "y"}) {
    AdminCommand create;
    create.semaphore = name;
    create.act = AdminCreate{2, {}};
    at.b.sessions().Administer(create, 0, [](const Result<AdminAnswer>&) {});
    at.b.Settle();
  }
  WorkerStream worker;
  at.a.Work(&worker, {{"x", "y"}, {}, 1});
  at.damaged.unwritable = {"x", "y"};
  ClientStream call;
  for (const char* name : {"x", "y", "x", "y"}) {
    at.a.sessions().Acquire(Daemons::Ask(name, 1000), &call, 1);
    at.a.Settle();
  }
  at.damaged.unwritable.clear();
  const auto pass_on = [&] {
    at.damaged.world.RunUntil(at.damaged.world.now() + 10 * simulation::kMillisecond);
  };
  pass_on();
  at.b.Hear();
  at.b.Enqueue("x", "1");
  at.b.Enqueue("y", "2");
  pass_on();
  at.a.Hear();  // Its pause is not over.
  REQUIRE(worker.assigned.size() == 1);
  const std::string other = worker.assigned[0].semaphore == "x" ? "y" : "x";
  for (int i = 0; i < 4; ++i) {
    at.a.sessions().TouchSession(worker.session);
    at.a.Pass(Milliseconds(3000));
    at.a.Hear();
  }
  CHECK(at.HeldOf(worker.assigned[0].semaphore) == 1);
  CHECK(at.HeldOf(other) == 0);
}

TEST_CASE("quarantine: a session that ends frees its permits elsewhere, then the rest") {
  for (const bool closes : {true, false}) {
    Daemons at;
    ClientStream session;
    at.Open(at.a, &session);
    for (const char* name : {"a", "bad", "c"}) at.Grant(&session, name);
    at.damaged.unwritable = {"bad"};
    bool done = false;
    if (closes) {
      at.a.sessions().CloseSession(session.session, [&] { done = true; });
      at.a.Settle();
    }
    if (!closes) at.a.Pass(Milliseconds(kTtl_ms + 100));
    at.a.Pass(Milliseconds(3000));
    CHECK(done == closes);
    CHECK(session.over.size() == (closes ? 0 : 1));
    CHECK(at.HeldOf("a") == 0);
    CHECK(at.HeldOf("bad") == 1);
    CHECK(at.HeldOf("c") == 0);
    CHECK(at.damaged.engine.sessions().at(session.session).closing);
    // Its client cannot go on with it, here or elsewhere.
    for (SessionsWorld* daemon : {&at.a, &at.b}) {
      ClientStream again;
      at.Open(*daemon, &again, session.session);
      CHECK_FALSE(again.resumed);
      CHECK(again.over.size() == 1);
    }
    at.damaged.unwritable.clear();
    for (int i = 0; i < 14; ++i) {
      at.a.Pass(Milliseconds(5000));
      at.a.Hear();
    }
    CHECK(at.HeldOf("bad") == 0);
    CHECK(at.damaged.engine.sessions().empty());
  }
}

TEST_CASE("quarantine: on an exclusive engine too a session that has ended is not resumed") {
  DamagedWorld damaged;
  SessionsWorld world{OptionsOfNode(),
                      std::make_unique<DamagedEngine>(&damaged, /*exclusive=*/true)};
  ClientStream session;
  OpenParams params;
  params.client_id = "client";
  params.ttl_ms = kTtl_ms;
  world.sessions().Open(std::move(params), &session);
  world.Settle();
  for (uint64_t tag : {1, 2}) {
    world.sessions().AcquireIn(session.session, Daemons::Ask(tag == 1 ? "good" : "bad"), tag, true);
    world.Settle();
  }
  REQUIRE(session.granted.size() == 2);
  damaged.unwritable = {"bad"};
  world.sessions().DetachSession(&session);
  world.Pass(Milliseconds(kTtl_ms + 3000));
  CHECK(damaged.engine.Find("good")->held() == 0);
  CHECK(damaged.engine.Find("bad")->held() == 1);
  // Also while the end is tried again.
  for (int i = 0; i < 20; ++i) {
    ClientStream again;
    OpenParams resume;
    resume.client_id = "client";
    resume.ttl_ms = kTtl_ms;
    resume.resume = session.session;
    world.sessions().Open(std::move(resume), &again);
    world.Settle();
    CHECK_FALSE(again.resumed);
    CHECK(again.over.size() == 1);
    world.Pass(Milliseconds(700));
  }
  damaged.unwritable.clear();
  for (int i = 0; i < 14; ++i) {
    world.Pass(Milliseconds(5000));
    world.Hear();
  }
  CHECK(damaged.engine.Find("bad")->held() == 0);
  CHECK(damaged.engine.sessions().empty());
}

// Reports that a quarantine of each of these has begun, then that the first has ended.
class Quarantines : public Adapter {
 public:
  const Guarantees& guarantees() const override { return guarantees_; }
  absl::StatusOr<StepResult> Step(absl::Span<const Submission>, SteadyTime) override {
    StepResult result;
    if (++steps_ == 1) {
      result.quarantines = {{"a", absl::DataLossError("why"), true},
                            {"b", absl::DataLossError("why"), false}};
    } else {
      result.quarantines = {{"a", absl::OkStatus(), false}};
    }
    return result;
  }
  void Wake() override {}

 private:
  Guarantees guarantees_;
  int steps_ = 0;
};

TEST_CASE("quarantine: a lane counts those of its own semaphores") {
  LaneCore lane(std::make_unique<Quarantines>(), &SystemClock(), LaneOptions());
  const SteadyTime read_at = lane.fresh_at();
  LaneResults results;
  lane.RunOnce({}, SteadyTime::min(), &results);
  CHECK(results.quarantines.size() == 2);
  CHECK(results.quarantined_at == read_at);
  CHECK_FALSE(results.empty());
  EngineFigures figures;
  figures.Add(lane.figures());
  CHECK(figures.quarantined == 2);
  lane.RunOnce({}, SteadyTime::min(), &results);
  CHECK(lane.figures().quarantined == 1);
  size_t of_both = 0;
  for (const size_t number : {0, 1}) {
    LaneOptions options;
    options.number = number;
    options.lanes = 2;
    LaneCore each(std::make_unique<Quarantines>(), &SystemClock(), options);
    LaneResults own;
    each.RunOnce({}, SteadyTime::min(), &own);
    of_both += own.quarantines.size();
  }
  CHECK(of_both == 2);
}

}  // namespace
}  // namespace semaphored
