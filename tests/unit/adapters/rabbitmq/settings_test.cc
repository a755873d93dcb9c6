// What daemons on one broker know of each other's administration.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "adapters/steady_clock.h"
#include "catch2/catch_test_macros.hpp"
#include "tests/unit/adapters/rabbitmq/daemon.h"
#include "tests/unit/adapters/rabbitmq/fixture.h"

namespace semaphored::rabbitmq {
namespace {

uint64_t RevisionOf(Daemon& daemon, const Name& name) {
  return daemon.Administer(name.text, AdminDescribe{0}).report->info->row.revision;
}

TEST_CASE("rabbitmq settings: a change is told to daemons that use the semaphore", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b(std::chrono::hours(1));  // It never looks of itself.
  a.Create(name.text, 2);
  const LeasePtr held = b.Grant(name.text);
  a.Resize(name.text, 5);
  CHECK(b.Until([&] { return b.Acquire(name.text, false, 9).limit() == 5; }));
  REQUIRE(a.Administer(name.text, AdminPause{true}).kind == OutcomeKind::kDone);
  CHECK(b.Until([&] { return b.Acquire(name.text).kind == OutcomeKind::kPaused; }));
  CHECK(RevisionOf(a, name) == RevisionOf(b, name));
}

TEST_CASE("rabbitmq settings: an expected revision holds against other daemons", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b(std::chrono::hours(1));
  a.Create(name.text, 2);
  const uint64_t revision = RevisionOf(b, name);
  a.Resize(name.text, 3);
  AdminCommand late{{}, name.text, revision, AdminPause{true}};
  const Outcome outcome = b.Do(late);
  CHECK(outcome.kind == OutcomeKind::kRevisionMismatch);
  CHECK(outcome.report->info->row.limit == 3);
}

TEST_CASE("rabbitmq settings: two daemons that make a semaphore at once make one", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  std::vector<OutcomeKind> kinds(2);
  std::thread other([&] { kinds[1] = b.Acquire(name.text, false, 2).kind; });
  kinds[0] = a.Acquire(name.text, false, 2).kind;
  other.join();
  CHECK(kinds == std::vector{OutcomeKind::kGranted, OutcomeKind::kGranted});
  CHECK(a.Acquire(name.text).kind == OutcomeKind::kFull);
}

// What a daemon looks for whose connection broke before it was told.
TEST_CASE("rabbitmq settings: an act is found by its number, or was not done", "[rabbitmq]") {
  const Name name;
  const auto connection = Connect();
  TokenBroker broker(connection.get());
  SemaphoreRow row;
  row.name = name.text;
  row.limit = 2;
  bool begun = false;
  CHECK_FALSE(broker.FindAct(name.text, 41).value().has_value());
  const StoredSemaphore made = Persist([&] { return broker.Create(row, 41, &begun); }).value();
  CHECK(begun);
  CHECK(broker.FindAct(name.text, 41).value()->row == made.row);
  SemaphoreRow changed = made.row;
  changed.limit = 3;
  begun = false;
  const StoredSemaphore updated =
      Persist([&] { return broker.Update(changed, 42, &begun); }).value();
  CHECK(begun);
  CHECK(updated.row.revision > made.row.revision);
  CHECK(broker.FindAct(name.text, 42).value()->row.limit == 3);
  CHECK_FALSE(broker.FindAct(name.text, 41).value().has_value());
  // Decided on an older row: nothing is begun.
  begun = false;
  CHECK(absl::IsAborted(broker.Update(changed, 43, &begun).status()));
  CHECK_FALSE(begun);
}

// The others must not work by old settings for a minute because the broker was slow for a moment.
TEST_CASE("rabbitmq settings: a change that could not be announced is announced later",
          "[rabbitmq]") {
  const Name name;
  const auto connection = Connect();
  const std::string prefix = "u" + std::to_string(getpid()) + "-";
  TokenBroker broker(connection.get(), prefix);
  SemaphoreRow row;
  row.name = name.text;
  row.limit = 1;
  bool begun = false;
  // The exchange of that prefix is not there yet: the broker breaks off.
  const StoredSemaphore made = Persist([&] { return broker.Create(row, 41, &begun); }).value();
  REQUIRE(connection->Open().ok());
  const Channel channel = connection->OpenChannel().value();
  const std::string queue = connection->Subscribe(channel, broker.Changes()).value();
  REQUIRE(connection->ConsumeForGood(channel, queue, "changes").ok());
  std::string heard;
  const auto until = SteadyClock::now() + std::chrono::seconds(30);
  while (heard.empty() && SteadyClock::now() < until) {
    broker.TellRest().IgnoreError();
    const auto soon = SteadyClock::now() + std::chrono::milliseconds(20);
    const std::vector<BrokerEvent> events = connection->Wait(soon).value();
    if (!events.empty()) heard = events.front().delivery.body;
  }
  CHECK(heard == std::to_string(made.row.revision) + " " + name.text);
  CHECK(Persist([&] { return broker.Destroy(name.text, 0, &begun); }).ok());
  CHECK(broker.RemoveRegistry().ok());
}

TEST_CASE("rabbitmq: a connection has so many channels, and says when there are no more",
          "[rabbitmq]") {
  const auto connection = Connect();
  size_t opened = 0;
  absl::StatusOr<Channel> last = connection->OpenChannel();
  for (; last.ok(); last = connection->OpenChannel()) ++opened;
  CHECK(absl::IsOutOfRange(last.status()));
  CHECK(opened >= 2000);
  CHECK(connection->is_open());
}

Command Add(const Name& name) {
  AdminResize resize;
  resize.change = AdminResize::Change::kAdd;
  resize.amount = 1;
  resize.limit_max = 1000;
  return AdminCommand{{}, name.text, 0, resize};
}

// There is no transaction over two semaphores: one that stands is not done again when the other is
// lost to another daemon.
TEST_CASE("rabbitmq settings: acts of one batch are each done once, or said not to be",
          "[rabbitmq]") {
  const Name x;
  const Name y;
  Daemon a;
  Daemon b;
  a.Create(x.text, 1);
  a.Create(y.text, 1);
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> others{0};
  std::thread other([&] {
    while (!stop) {
      if (a.DoAll({Add(y)})[0].ok()) ++others;
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
    }
  });
  uint32_t to_x = 0;
  uint32_t to_y = 0;
  for (int i = 0; i < 10; ++i) {
    const auto results = b.DoAll({Add(x), Add(y)});
    if (results[0].ok()) ++to_x;
    if (results[1].ok()) ++to_y;
  }
  stop = true;
  other.join();
  b.Poll();
  CHECK(to_x > 0);
  CHECK(b.Administer(x.text, AdminDescribe{0}).report->info->row.limit == 1 + to_x);
  CHECK(b.Until([&] {
    return b.Administer(y.text, AdminDescribe{0}).report->info->row.limit == 1 + to_y + others;
  }));
}

TEST_CASE("rabbitmq settings: a queue that is somebody else's troubles nobody but its name",
          "[rabbitmq]") {
  const Name good;
  const Name bad;
  const auto stranger = Connect();
  const Channel channel = stranger->OpenChannel().value();
  REQUIRE(stranger->Declare(channel, bad.queue(), {}).ok());
  Daemon daemon;
  AcquireCommand first;
  first.semaphore = bad.text;
  first.claim = first.session = NewClaim();
  first.limit = 1;
  first.ttl_ms = 30'000;
  AcquireCommand second = first;
  second.semaphore = good.text;
  second.claim = second.session = NewClaim();
  const auto results = daemon.DoAll({first, second});
  REQUIRE(results[0].ok());
  CHECK(results[0]->kind == OutcomeKind::kUnsupported);
  CHECK(results[0]->message.find(bad.queue()) != std::string::npos);
  REQUIRE(results[1].ok());
  CHECK(results[1]->kind == OutcomeKind::kGranted);
}

TEST_CASE("rabbitmq settings: names are listed whoever made them", "[rabbitmq]") {
  const Name one;
  const Name two;
  Daemon a;
  Daemon b;
  a.Create(one.text, 2);
  b.Create(two.text, 3);
  const LeasePtr held = a.Grant(one.text);
  const Outcome listed = b.Do(ListCommand{one.text, "", 10});
  REQUIRE(!listed.report->infos.empty());
  CHECK(listed.report->infos[0].row.name == one.text);
  CHECK(listed.report->infos[0].held == 1);
  REQUIRE(a.Administer(two.text, AdminDestroy{}).kind == OutcomeKind::kDone);
  const std::string prefix = two.text.substr(0, two.text.rfind('/') + 1);
  const Outcome rest = b.Do(ListCommand{prefix, "", 1000});
  for (const SemaphoreInfo& info : rest.report->infos) CHECK(info.row.name != two.text);
}

// So many tokens are left, once those that are too many have been taken out.
bool SlotsBecome(Daemon* daemon, const Name& name, size_t count) {
  size_t slots = 0;
  const bool become = daemon->Until([&] {
    const auto connection = Connect();
    const auto stored = TokenBroker(connection.get()).Read(name.text).value();
    REQUIRE(stored);
    slots = stored->slots.size();
    return slots == count;
  });
  if (become) return true;
  const auto connection = Connect();
  const Channel channel = connection->OpenChannel().value();
  const QueueState tokens = connection->DeclarePassively(channel, name.queue()).value();
  const Outcome outcome = daemon->Acquire(name.text);
  UNSCOPED_INFO("slots: " << slots << ", tokens ready: " << tokens.ready << ", consumers: "
                          << tokens.consumers << "; to a request the daemon says "
                          << static_cast<int>(outcome.kind) << " " << outcome.message);
  return false;
}

TEST_CASE("rabbitmq settings: taking out what is too much goes on when who did it has gone",
          "[rabbitmq]") {
  const Name name;
  auto a = std::make_unique<Daemon>();
  Daemon b;
  a->Create(name.text, 3);
  const LeasePtr one = b.Grant(name.text);
  const LeasePtr two = b.Grant(name.text);
  const LeasePtr three = b.Grant(name.text);
  a->Resize(name.text, 1);
  a.reset();
  b.Release(name.text, one->id);
  b.Release(name.text, two->id);
  REQUIRE(SlotsBecome(&b, name, 1));
  b.Release(name.text, three->id);
  CHECK(b.Grant(name.text));
  CHECK(b.Acquire(name.text).kind == OutcomeKind::kFull);
}

TEST_CASE("rabbitmq settings: taking out what is too much goes on though nothing happens there",
          "[rabbitmq]") {
  const Name name;
  Daemon a;
  a.Create(name.text, 2);
  const LeasePtr one = a.Grant(name.text);
  const LeasePtr two = a.Grant(name.text);
  const auto other = Connect();  // Of a daemon that is dying.
  auto mutex = TokenBroker(other.get()).LockShrinking(name.text);
  REQUIRE(mutex.ok());
  a.Resize(name.text, 1);
  a.Release(name.text, one->id);
  a.Poll(std::chrono::milliseconds(300));
  mutex->reset();
  REQUIRE(SlotsBecome(&a, name, 1));
}

// A token that is taken out, and its slot not struck, would be one permit too few.
TEST_CASE("rabbitmq settings: a daemon that stops strikes what it has taken out", "[rabbitmq]") {
  const Name name;
  Daemon a;
  a.Create(name.text, 2);
  const LeasePtr one = a.Grant(name.text);
  const LeasePtr two = a.Grant(name.text);
  {
    const auto other = Connect();
    auto mutex = TokenBroker(other.get()).LockShrinking(name.text);
    REQUIRE(mutex.ok());
    a.Resize(name.text, 1);
    a.Release(name.text, one->id);
    REQUIRE(ReadyBecome(name.text, 1));
  }
  {
    // It begins to take out what is too much of each semaphore that comes to be in use there.
    Daemon b(std::chrono::hours(1));
    b.Administer(name.text, AdminDescribe{});
  }
  REQUIRE(SlotsBecome(&a, name, 1));
  a.Release(name.text, two->id);
  CHECK(a.Grant(name.text));
}

TEST_CASE("rabbitmq settings: raised again while it is being lowered, it has all its permits",
          "[rabbitmq]") {
  const Name name;
  Daemon a;
  a.Create(name.text, 4);
  const LeasePtr held = a.Grant(name.text);
  a.Resize(name.text, 1);
  a.Poll(std::chrono::milliseconds(5));
  a.Resize(name.text, 4);
  for (int i = 0; i < 3; ++i) CHECK(a.Grant(name.text));
  CHECK(a.Acquire(name.text).kind == OutcomeKind::kFull);
}

TEST_CASE("rabbitmq settings: a token that is on its way to be taken out is held by no holder",
          "[rabbitmq]") {
  Daemon daemon;
  for (int i = 0; i < 50; ++i) {
    const Name name;
    daemon.Create(name.text, 1);
    daemon.Resize(name.text, 0);
    REQUIRE(daemon.Administer(name.text, AdminDestroy{}).kind == OutcomeKind::kDone);
  }
}

TEST_CASE("rabbitmq settings: destroyed with wait, it goes with the last holder anywhere",
          "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b;
  a.Create(name.text, 2);
  const LeasePtr held = b.Grant(name.text);
  CHECK(a.Administer(name.text, AdminDestroy{}).kind == OutcomeKind::kInUse);
  REQUIRE(a.Administer(name.text, AdminDestroy{DestroyPolicy::kWait}).kind == OutcomeKind::kDone);
  CHECK(b.Until([&] { return b.Acquire(name.text).kind == OutcomeKind::kDestroyed; }));
  b.Release(name.text, held->id);
  const auto gone = [&] {
    b.Poll();
    return a.Administer(name.text, AdminDescribe{0}).kind == OutcomeKind::kNoSuchSemaphore;
  };
  CHECK(a.Until(gone));
}

TEST_CASE("rabbitmq settings: a lease is over before the broker would take it back", "[rabbitmq]") {
  const Name name;
  Daemon daemon(std::chrono::milliseconds(100), TestUrl("?consumer_timeout_ms=60000"));
  daemon.Create(name.text, 1);
  const LeasePtr lease = daemon.Grant(name.text);
  // With its grace of 30 s.
  CHECK(lease->longest_hold_ms > 0);
  CHECK(lease->longest_hold_ms + 30'000 < 60'000);
}

Outcome Lower(Daemon& daemon, const std::string& name, uint32_t limit, int64_t grace_ms) {
  AdminResize resize;
  resize.amount = limit;
  resize.limit_max = 1000;
  resize.policy = ShrinkPolicy::kRecall;
  resize.grace_ms = grace_ms;
  return daemon.Administer(name, resize);
}

TEST_CASE("rabbitmq settings: a lowered limit recalls what is too much, whoever has it",
          "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b(std::chrono::hours(1));
  Daemon c(std::chrono::hours(1));
  a.Create(name.text, 7);
  const LeasePtr ours = a.Grant(name.text);
  std::map<uint32_t, std::pair<Daemon*, Id>> others;
  for (Daemon* daemon : {&b, &c, &b, &c}) {
    const LeasePtr lease = daemon->Grant(name.text);
    others[lease->slots.front()] = {daemon, lease->id};
  }
  // Two are free, and go first.
  const Outcome lowered = Lower(a, name.text, 2, 0);
  CHECK(lowered.kind == OutcomeKind::kDone);
  CHECK(lowered.affected() == 1);
  CHECK(lowered.report->others_asked);
  CHECK(a.Verify(name.text, ours->id).cause == EndCause::kRecalled);
  const auto ended = [&] {
    uint32_t count = 0;
    for (const auto& [slot, other] : others)
      if (!other.first->Holds(name.text, other.second)) ++count;
    return count;
  };
  CHECK(b.Until([&] {
    a.Poll();
    c.Poll();
    return ended() == 2;
  }));
  // No more than that.
  const auto quiet = SteadyClock::now() + std::chrono::milliseconds(700);
  while (SteadyClock::now() < quiet) {
    for (Daemon* daemon : {&a, &b, &c}) daemon->Poll(std::chrono::milliseconds(20));
  }
  CHECK(ended() == 2);
  CHECK(ReadyBecome(name.text, 0));
  // The highest.
  CHECK(others.begin()->second.first->Holds(name.text, others.begin()->second.second));
}

TEST_CASE("rabbitmq settings: with a grace the holder at another daemon is asked first",
          "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b(std::chrono::hours(1));
  a.Create(name.text, 1);
  const LeasePtr lease = b.Grant(name.text);
  CHECK(Lower(a, name.text, 0, 30'000).report->others_asked);
  CHECK(b.Until([&] { return b.Verify(name.text, lease->id).lease->recall.pending(); }));
  const LeasePtr asked = b.Verify(name.text, lease->id).lease;
  CHECK(asked->recall == Recall{Recall::Reason::kShrunk, 30'000});
}

TEST_CASE("rabbitmq settings: revoke reaches the leases of every daemon", "[rabbitmq]") {
  const Name name;
  Daemon a;
  Daemon b(std::chrono::hours(1));
  a.Create(name.text, 4);
  const LeasePtr ours = a.Grant(name.text);
  const LeasePtr by_id = b.Grant(name.text);
  const LeasePtr by_holder = b.Grant(name.text);
  const auto gone = [&](const LeasePtr& lease) {
    return b.Until([&] { return b.Verify(name.text, lease->id).cause == EndCause::kRevoked; });
  };
  AdminRevoke one;
  one.claim = by_id->id;
  const Outcome revoked = a.Administer(name.text, one);
  CHECK(revoked.affected() == 0);
  CHECK(revoked.report->others_asked);
  CHECK(gone(by_id));
  CHECK(b.Holds(name.text, by_holder->id));
  CHECK(a.Holds(name.text, ours->id));
  one.claim = ours->id;
  CHECK_FALSE(a.Administer(name.text, one).report->others_asked);
  AdminRevoke all;
  all.holder = by_holder->holder;
  CHECK(a.Administer(name.text, all).report->others_asked);
  CHECK(gone(by_holder));
  CHECK(ReadyBecome(name.text, 4));
}

// More slots than any semaphore has would ask for all memory.
TEST_CASE("rabbitmq settings: what cannot be, and another program has written, is not read",
          "[rabbitmq]") {
  const Name name;
  const auto connection = Connect();
  TokenBroker broker(connection.get());
  SemaphoreRow row;
  row.name = name.text;
  row.limit = 2;
  bool begun = false;
  REQUIRE(Persist([&] { return broker.Create(row, /*act=*/0, &begun); }).ok());
  // (Without a daemon there is no exchange for the notice, which costs the connection.)
  REQUIRE(connection->Open().ok());
  const auto write = [&](const char* field, const nlohmann::json& value) {
    const auto first = [](const nlohmann::json& a, const nlohmann::json&) { return a; };
    auto document =
        Document::Open(connection.get(), name.queue() + ".settings", /*make=*/false, first);
    nlohmann::json content = document.value()->content();
    content[field] = value;
    REQUIRE((*document)->Write(content).ok());
  };
  for (const char* field : {"slots", "doubtful"}) {
    for (const char* value :
         {"[[1,2000000]]", "[[0,3]]", "[[3,1]]", "[[5,6],[1,2]]", "[[-2,-1]]"}) {
      CAPTURE(field, value);
      write(field, nlohmann::json::parse(value));
      CHECK(absl::IsDataLoss(broker.Read(name.text).status()));
    }
    write(field, nlohmann::json::parse("[[1,2]]"));
    CHECK(broker.Read(name.text).ok());
  }
  write("incarnation", uint64_t{1} << 32);
  CHECK(absl::IsDataLoss(broker.Read(name.text).status()));
  write("incarnation", 1);
  CHECK(broker.Read(name.text).ok());
  write("limit", 2'000'000);
  CHECK(absl::IsDataLoss(broker.Read(name.text).status()));
  CHECK_FALSE(ReadToken(R"({"slot":2000000,"base":1})").has_value());
}

}  // namespace
}  // namespace semaphored::rabbitmq
