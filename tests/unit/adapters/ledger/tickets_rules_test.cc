// What the rules of tickets write into a transaction. What becomes of each command is the
// contract's (tests/contract).
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "adapters/ledger/change_notice.h"
#include "adapters/ledger/events.h"
#include "adapters/ledger/rules/rules.h"
#include "tests/unit/adapters/ledger/support.h"

namespace semaphored::ledger {
namespace {

void CreateQueue(Bench& bench, const std::string& name, uint32_t limit) {
  REQUIRE(Administer(*bench.editor, AdminOf(name, AdminCreate{limit, {}}), bench.context).kind ==
          OutcomeKind::kDone);
}

EnqueueCommand EnqueueOf(const std::string& semaphore, uint64_t ticket) {
  EnqueueCommand command;
  command.semaphore = semaphore;
  command.ticket = MakeId(ticket);
  command.payload = std::make_shared<const std::string>("payload");
  return command;
}

TakeCommand TakeOf(const std::string& semaphore, uint64_t claim,
                   OfferKept keep = OfferKept::kAlways) {
  TakeCommand command;
  command.semaphore = semaphore;
  command.claim = command.session = MakeId(claim);
  command.holder = "w";
  command.keep = keep;
  return command;
}

FinishCommand FinishOf(const std::string& semaphore, uint64_t claim,
                       FinishCommand::Result result = FinishCommand::Result::kDone) {
  FinishCommand command;
  command.semaphore = semaphore;
  command.claim = MakeId(claim);
  command.result = result;
  return command;
}

}  // namespace

TEST_CASE("a command about tickets that is refused writes nothing and changes nothing") {
  Bench bench;
  CreateQueue(bench, "s", 1);
  bench.context.limits.tickets_per_semaphore_max = 2;
  Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  Enqueue(*bench.editor, EnqueueOf("s", 10), bench.context);
  EnqueueCommand delayed = EnqueueOf("s", 11);
  delayed.delay_ms = 5;
  Enqueue(*bench.editor, delayed, bench.context);
  bench.Win();
  const std::string before = Picture(bench.state);
  Editor& editor = *bench.editor;
  const Context& context = bench.context;
  CHECK(Enqueue(editor, EnqueueOf("s", 12), context).kind == OutcomeKind::kLimitReached);
  CHECK(Enqueue(editor, EnqueueOf("t", 12), context).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(Take(editor, TakeOf("s", 2, OfferKept::kNo), context).kind == OutcomeKind::kFull);
  CHECK(Take(editor, TakeOf("t", 2), context).kind == OutcomeKind::kNoSuchSemaphore);
  CHECK(Finish(editor, FinishOf("s", 1), context).kind == OutcomeKind::kNoSuchTicket);
  CHECK(Finish(editor, FinishOf("s", 9), context).kind == OutcomeKind::kNotHeld);
  CHECK(Ripen(editor, {"s", MakeId(11), 2}, context).kind == OutcomeKind::kStale);
  CHECK(Ripen(editor, {"s", MakeId(10), 0}, context).kind == OutcomeKind::kStale);
  CHECK(Ripen(editor, {"s", MakeId(99), 1}, context).kind == OutcomeKind::kNoSuchTicket);
  for (const AdminCommand& command :
       {AdminOf("s", AdminListTickets{}), AdminOf("s", AdminShowTicket{MakeId(10)}),
        AdminOf("s", AdminCancelTicket{MakeId(99)}), AdminOf("s", AdminRequeue{}),
        AdminOf("s", AdminRequeue{MakeId(10)}), AdminOf("s", AdminPurge{}),
        AdminOf("s", AdminPurge{MakeId(10)}), AdminOf("s", AdminPrioritizeTicket{MakeId(10), 0}),
        AdminOf("s", AdminDestroy{DestroyPolicy::kWait})})
    Administer(editor, command, context);
  CHECK(bench.transaction.empty());
  CHECK(Picture(bench.state) == before);
}

TEST_CASE("done and the release are one change of the semaphore") {
  Bench bench;
  CreateQueue(bench, "s", 1);
  Enqueue(*bench.editor, EnqueueOf("s", 10), bench.context);
  Take(*bench.editor, TakeOf("s", 1), bench.context);
  bench.Win();
  CHECK(bench.state.lease_count() == 1);
  CHECK(bench.state.ticket_count() == 1);
  Finish(*bench.editor, FinishOf("s", 1), bench.context);
  REQUIRE(bench.transaction.semaphores.size() == 1);
  const SemaphoreDelta& delta = bench.transaction.semaphores[0];
  REQUIRE(delta.leases.size() == 1);
  CHECK_FALSE(delta.leases[0].after);
  REQUIRE(delta.tickets.size() == 1);
  CHECK(delta.tickets[0].before->id == MakeId(10));
  CHECK_FALSE(delta.tickets[0].after);
  CHECK(bench.transaction.history.size() == 1);
  CHECK(bench.state.ticket_count() == 0);
}

TEST_CASE("a ticket is given under a session only while the session has this epoch") {
  Bench bench;
  CreateQueue(bench, "s", 2);
  OpenSession(*bench.editor, {MakeId(100), "c", 1'000, "h", false}, bench.context);
  TakeCommand take = TakeOf("s", 1);
  take.session = MakeId(100);
  Take(*bench.editor, take, bench.context);
  bench.Win();
  Enqueue(*bench.editor, EnqueueOf("s", 10), bench.context);
  REQUIRE(bench.transaction.epochs.size() == 1);
  CHECK(bench.transaction.epochs[0].session == MakeId(100));
}

TEST_CASE("a daemon that a session has left makes no offer for it, and puts nothing back") {
  Bench bench;
  CreateQueue(bench, "s", 2);
  OpenSession(*bench.editor, {MakeId(100), "c", 1'000, "h", false}, bench.context);
  Enqueue(*bench.editor, EnqueueOf("s", 10), bench.context);
  TakeCommand take = TakeOf("s", 1);
  take.session = MakeId(100);
  take.epoch = 1;
  REQUIRE(Take(*bench.editor, take, bench.context).kind == OutcomeKind::kGranted);
  bench.Win();
  bench.context.self = {2, 1};
  AdoptSession(*bench.editor, {MakeId(100)}, bench.context);
  bench.Win();

  take.claim = MakeId(2);
  CHECK(Take(*bench.editor, take, bench.context).kind == OutcomeKind::kStale);
  FinishCommand finish = FinishOf("s", 1, FinishCommand::Result::kPutBack);
  finish.epoch = 1;
  CHECK(Finish(*bench.editor, finish, bench.context).kind == OutcomeKind::kStale);
  CHECK(bench.transaction.empty());
  finish.epoch = 2;
  CHECK(Finish(*bench.editor, finish, bench.context).kind == OutcomeKind::kReleased);
  REQUIRE(bench.transaction.epochs.size() == 1);
  CHECK(bench.transaction.epochs[0].epoch == 2);
}

TEST_CASE("the assignment to an offer is an event like any other grant, and in no notice") {
  Bench bench;
  CreateQueue(bench, "s", 1);
  Take(*bench.editor, TakeOf("s", 1), bench.context);
  bench.Win();
  EnqueueCommand delayed = EnqueueOf("s", 11);
  delayed.delay_ms = 70;
  Enqueue(*bench.editor, delayed, bench.context);
  Enqueue(*bench.editor, EnqueueOf("s", 10), bench.context);
  bench.editor->Finish();
  bench.transaction.node = bench.context.self;
  std::vector<Event> events;
  AppendEvents(bench.transaction, &events);
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == Event::Kind::kGranted);
  CHECK(events[0].claim == MakeId(1));
  CHECK(events[0].lease->ticket == MakeId(10));
  std::vector<DelayedTicket> delays;
  AppendDelays(bench.transaction, &delays);
  REQUIRE(delays.size() == 1);
  CHECK(delays[0].semaphore == "s");
  CHECK(delays[0].ticket->id == MakeId(11));
  CHECK_FALSE(DetailsOf(bench.transaction, bench.transaction.semaphores[0], 99).has_value());
  // Another daemon that reads this has nothing to count.
  bench.transaction.node = {2, 1};
  delays.clear();
  AppendDelays(bench.transaction, &delays);
  CHECK(delays.empty());
}

TEST_CASE("an offer that goes is in no notice either: it has no place in the queue") {
  Bench bench;
  CreateQueue(bench, "s", 1);
  Take(*bench.editor, TakeOf("s", 1), bench.context);
  bench.Win();
  End(*bench.editor,
      {.semaphore = "s", .claim = MakeId(1), .cause = EndCause::kCancelled, .only_waiting = true},
      bench.context);
  bench.editor->Finish();
  CHECK_FALSE(DetailsOf(bench.transaction, bench.transaction.semaphores[0], 99).has_value());
}

TEST_CASE("one commit gives out only so many tickets, and says where it is to go on") {
  Bench bench;
  CreateQueue(bench, "s", 1);
  bench.context.grants_max = 2;
  Acquire(*bench.editor, AcquireOf("s", 1), bench.context);
  for (uint64_t i = 0; i < 4; ++i) {
    Enqueue(*bench.editor, EnqueueOf("s", 10 + i), bench.context);
    Take(*bench.editor, TakeOf("s", 20 + i), bench.context);
  }
  bench.Win();
  const AdminResize grow{AdminResize::Change::kSet, 9, 100, ShrinkPolicy::kWait, {}};
  Administer(*bench.editor, AdminOf("s", grow), bench.context);
  CHECK(bench.state.Find("s")->ticket_counts == TicketCounts{2, 0, 2, 0});
  CHECK(bench.transaction.to_advance == std::vector<std::string>{"s"});
  // There is room, and it is for those who were first.
  CHECK(Acquire(*bench.editor, AcquireOf("s", 30), bench.context).kind == OutcomeKind::kFull);
  CHECK(Take(*bench.editor, TakeOf("s", 31, OfferKept::kNo), bench.context).kind ==
        OutcomeKind::kFull);
  AcquireCommand urgent = AcquireOf("s", 32);
  urgent.priority = 1;
  CHECK(Acquire(*bench.editor, urgent, bench.context).kind == OutcomeKind::kGranted);
  bench.Win();
  Advance(*bench.editor, bench.state.Find("s"), bench.context);
  CHECK(bench.state.Find("s")->ticket_counts == TicketCounts{0, 0, 4, 0});
  CHECK(bench.state.CheckInvariants().empty());
}

TEST_CASE("back-off: it grows by its factor up to its longest, and never overflows") {
  const auto delays = [](BackOff back_off, int attempts) {
    Bench bench;
    CreateQueue(bench, "s", 1);
    EnqueueCommand enqueue = EnqueueOf("s", 10);
    enqueue.back_off = back_off;
    Enqueue(*bench.editor, enqueue, bench.context);
    std::vector<int64_t> seen;
    for (int i = 1; i <= attempts; ++i) {
      Take(*bench.editor, TakeOf("s", static_cast<uint64_t>(i)), bench.context);
      Finish(*bench.editor, FinishOf("s", static_cast<uint64_t>(i), FinishCommand::Result::kFailed),
             bench.context);
      const TicketPtr ticket = bench.state.Find("s")->FindTicket(MakeId(10));
      seen.push_back(ticket->delay_ms);
      if (ticket->delay_ms > 0)
        Ripen(*bench.editor, {"s", MakeId(10), ticket->delays}, bench.context);
    }
    return seen;
  };
  CHECK(delays({10, 200, 50}, 5) == std::vector<int64_t>{10, 20, 40, 50, 50});
  CHECK(delays({10, 100, 50}, 3) == std::vector<int64_t>{10, 10, 10});
  CHECK(delays({10, 150, 1'000}, 4) == std::vector<int64_t>{10, 15, 22, 33});
  CHECK(delays({100, 200, 50}, 2) == std::vector<int64_t>{50, 50});
  CHECK(delays({0, 200, 50}, 2) == std::vector<int64_t>{0, 0});
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(delays({most / 2, 4'000'000'000, most}, 3) == std::vector<int64_t>{most / 2, most, most});
}

TEST_CASE("a force-destroyed semaphore takes its tickets along, each with a row of its own") {
  Bench bench;
  CreateQueue(bench, "s", 1);
  for (uint64_t ticket = 10; ticket < 13; ++ticket)
    Enqueue(*bench.editor, EnqueueOf("s", ticket), bench.context);
  Take(*bench.editor, TakeOf("s", 1), bench.context);
  bench.Win();
  Administer(*bench.editor, AdminOf("s", AdminDestroy{DestroyPolicy::kForce}), bench.context);
  REQUIRE(bench.transaction.semaphores.size() == 1);
  CHECK(bench.transaction.semaphores[0].tickets.size() == 3);
  CHECK(bench.state.ticket_count() == 0);
  CHECK(bench.state.Find("s") == nullptr);
}

TEST_CASE(
    "the bytes of payloads are counted with their tickets, and uncounted when a batch is lost") {
  Bench bench;
  CreateQueue(bench, "s", 1);
  CreateQueue(bench, "t", 1);
  Enqueue(*bench.editor, EnqueueOf("s", 10), bench.context);
  Enqueue(*bench.editor, EnqueueOf("t", 20), bench.context);
  bench.Win();
  CHECK(bench.state.Find("s")->payload_bytes == 7);
  CHECK(bench.state.payload_bytes() == 14);
  Enqueue(*bench.editor, EnqueueOf("s", 11), bench.context);
  Administer(*bench.editor, AdminOf("t", AdminDestroy{DestroyPolicy::kForce}), bench.context);
  CHECK(bench.state.payload_bytes() == 14);
  bench.Lose();
  CHECK(bench.state.Find("s")->payload_bytes == 7);
  CHECK(bench.state.Find("t")->payload_bytes == 7);
  CHECK(bench.state.payload_bytes() == 14);
  CHECK(bench.state.CheckInvariants().empty());
  // As Mirror drops what it has loaded.
  bench.state.Erase("t");
  CHECK(bench.state.payload_bytes() == 7);
}

TEST_CASE("a refusal for the bytes of payloads names the setting, its value and what there is") {
  Bench bench;
  CreateQueue(bench, "s", 1);
  Enqueue(*bench.editor, EnqueueOf("s", 10), bench.context);
  bench.Win();
  bench.context.limits.payload_bytes_per_semaphore_max = 13;
  const Outcome of_semaphore = Enqueue(*bench.editor, EnqueueOf("s", 11), bench.context);
  CHECK(of_semaphore.kind == OutcomeKind::kLimitReached);
  CHECK(
      of_semaphore.message ==
      "payload_bytes_per_semaphore_max (13) would be exceeded: the payloads of this semaphore have "
      "7 bytes, this one has 7");
  bench.context.limits.payload_bytes_per_semaphore_max = 14;
  bench.context.limits.payload_bytes_total_max = 0;
  const Outcome of_all = Enqueue(*bench.editor, EnqueueOf("s", 11), bench.context);
  CHECK(of_all.kind == OutcomeKind::kLimitReached);
  CHECK(of_all.message ==
        "payload_bytes_total_max (0) would be exceeded: all payloads have 7 bytes, this one has 7");
  EnqueueCommand empty = EnqueueOf("s", 11);
  empty.payload = nullptr;
  CHECK(Enqueue(*bench.editor, empty, bench.context).kind == OutcomeKind::kEnqueued);
}

}  // namespace semaphored::ledger
