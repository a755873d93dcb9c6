// One queue of tickets and waiters after whatever may happen: thousands of random commands, in
// batches, against a model. A failure names the seed and the batch.
#include <algorithm>
#include <random>

#include "tests/contract/ticket_model.h"
#include "tests/contract/tickets.h"

namespace semaphored::contract {
namespace {

class TicketWalk {
 public:
  TicketWalk(World* world, uint32_t seed) : world_(world), random_(seed), model_(Below(3) + 1) {
    world_->daemon().Create("walk", model_.limit());
  }

  void Run(int batches, bool restarts) {
    for (int i = 0; i < batches; ++i) {
      INFO("batch " << i);
      RunBatch();
      if (restarts && Below(10) == 0) world_->Restart();
      CheckRows();
    }
  }

 private:
  uint32_t Below(uint32_t bound) {
    return std::uniform_int_distribution<uint32_t>(0, bound - 1)(random_);
  }
  template <typename T>
  const T& OneOf(const std::vector<T>& all) {
    return all[Below(static_cast<uint32_t>(all.size()))];
  }

  // Mostly of one that is there.
  Id SomeClaim();
  Id SomeTicket();
  int32_t Priority() { return static_cast<int32_t>(Below(3)) - 1; }

  // A random command, carried out in the model: what the adapter must say to it.
  OutcomeKind Next(Command* command);
  OutcomeKind NextLive(Command* command);
  OutcomeKind NextEnqueue(Command* command);
  OutcomeKind NextTake(Command* command);
  OutcomeKind NextFinish(Command* command);
  OutcomeKind NextAdmin(Command* command);
  void RunBatch();
  void CheckRows();

  World* world_;
  std::mt19937 random_;
  TicketModel model_;
};

Id TicketWalk::SomeClaim() {
  const uint32_t dice = Below(10);
  if (dice < 2 && !model_.waiters().empty()) return OneOf(model_.waiters()).claim;
  if (dice < 4 && !model_.offers().empty()) return OneOf(model_.offers());
  if (dice < 9 && !model_.holdings().empty()) return OneOf(model_.holdings());
  return world_->NewId();
}

Id TicketWalk::SomeTicket() {
  return model_.tickets().empty() || Below(10) == 0 ? world_->NewId() : OneOf(model_.tickets()).id;
}

OutcomeKind TicketWalk::NextLive(Command* command) {
  const uint32_t dice = Below(10);
  if (dice < 5) {
    const Ask ask{.wait = Below(2) == 0, .priority = Priority()};
    AcquireCommand acquire = world_->MakeAcquire("walk", ask);
    const Id claim = acquire.claim;
    *command = std::move(acquire);
    return model_.Acquire(claim, ask.priority, ask.wait);
  }
  const Id claim = SomeClaim();
  if (dice < 8) {
    *command = world_->MakeRelease("walk", claim);
    return model_.Release(claim);
  }
  *command = EndCommand{.semaphore = "walk", .claim = claim};
  return model_.End(claim);
}

OutcomeKind TicketWalk::NextEnqueue(Command* command) {
  EnqueueCommand enqueue;
  enqueue.semaphore = "walk";
  enqueue.ticket = world_->NewId();
  enqueue.priority = Priority();
  enqueue.delay_ms = Below(5) == 0 ? 100 : 0;
  enqueue.max_attempts = Below(4);
  enqueue.payload = std::make_shared<const std::string>(enqueue.ticket.Hex());
  *command = enqueue;
  return model_.Enqueue(enqueue.ticket, enqueue.priority, enqueue.delay_ms > 0,
                        enqueue.max_attempts);
}

OutcomeKind TicketWalk::NextTake(Command* command) {
  TakeCommand take;
  take.semaphore = "walk";
  take.claim = take.session = world_->NewId();
  take.keep = static_cast<OfferKept>(Below(3));
  *command = take;
  return model_.Take(take.claim, take.keep);
}

OutcomeKind TicketWalk::NextFinish(Command* command) {
  FinishCommand finish;
  finish.semaphore = "walk";
  finish.claim = SomeClaim();
  finish.result = Below(2) == 0 ? Result::kDone : static_cast<Result>(Below(4));
  finish.reason = "because";
  const bool delayed = Below(2) == 0;
  finish.retry_after_ms = delayed ? 50 : 0;
  *command = finish;
  return model_.Finish(finish.claim, finish.result, delayed);
}

OutcomeKind TicketWalk::NextAdmin(Command* command) {
  const auto act = [&](auto each) { *command = AdminCommand{{}, "walk", 0, std::move(each)}; };
  const Id id = SomeTicket();
  const bool all = Below(2) == 0;
  switch (Below(7)) {
    case 0:
      act(AdminCancelTicket{id, all});
      return model_.Cancel(id, all);
    case 1: {
      const int32_t priority = Priority();
      act(AdminPrioritizeTicket{id, priority});
      return model_.Prioritize(id, priority);
    }
    case 2:
      act(AdminRequeue{all ? Id() : id});
      return model_.Requeue(all ? Id() : id);
    case 3:
      act(AdminPurge{all ? Id() : id});
      return model_.Purge(all ? Id() : id);
    case 4: {
      const bool paused = !model_.paused();
      act(AdminPause{paused});
      model_.Pause(paused);
      return OutcomeKind::kDone;
    }
    default: {
      const uint32_t limit = Below(4) + 1;
      act(AdminResize{AdminResize::Change::kSet, limit, 100, ShrinkPolicy::kWait, {}});
      model_.Resize(limit);
      return OutcomeKind::kDone;
    }
  }
}

OutcomeKind TicketWalk::Next(Command* command) {
  const uint32_t dice = Below(100);
  if (dice < 20) return NextLive(command);
  if (dice < 45) return NextEnqueue(command);
  if (dice < 65) return NextTake(command);
  if (dice < 85) return NextFinish(command);
  if (dice < 92) return NextAdmin(command);
  const Id id = SomeTicket();
  const auto found = std::ranges::find(model_.tickets(), id, &TicketModel::Ticket::id);
  uint32_t delay = found == model_.tickets().end() ? 1 : found->delays;
  if (Below(4) == 0) ++delay;
  *command = RipenCommand{"walk", id, delay};
  return model_.Ripen(id, delay);
}

void TicketWalk::RunBatch() {
  std::vector<Command> batch;
  std::vector<OutcomeKind> expected;
  const uint32_t size = Below(6) + 1;
  for (uint32_t i = 0; i < size; ++i) expected.push_back(Next(&batch.emplace_back()));
  const std::vector<Outcome> outcomes = world_->daemon().DoAll(std::move(batch));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    INFO("command " << i);
    REQUIRE(outcomes[i].kind == expected[i]);
    if (outcomes[i].kind != OutcomeKind::kGranted || outcomes[i].lease->ticket.empty()) continue;
    REQUIRE(outcomes[i].report->tickets.at(0).ticket->id == outcomes[i].lease->ticket);
  }
  const std::vector<SeenEvent> events = world_->daemon().TakeEvents();
  REQUIRE(ClaimsIn(events, Event::Kind::kGranted) == model_.TakeGranted());
  for (const SeenEvent& event : events) {
    if (event.payload) REQUIRE(*event.payload == event.ticket->id.Hex());
  }
}

void TicketWalk::CheckRows() {
  const SemaphoreInfo info = world_->daemon().Describe("walk");
  REQUIRE(info.held == model_.holdings().size());
  REQUIRE(info.tickets == model_.Counts());
  REQUIRE(info.offers == model_.offers().size());
  std::vector<Id> waiters;
  for (const TicketModel::Waiting& each : model_.waiters()) waiters.push_back(each.claim);
  REQUIRE(WaitersIn(info) == waiters);
  const Outcome list = world_->daemon().Administer("walk", AdminListTickets{0, 10'000, {}});
  REQUIRE(list.report->tickets.size() == model_.tickets().size());
  for (const TicketInfo& each : list.report->tickets) {
    const auto found =
        std::ranges::find(model_.tickets(), each.ticket->id, &TicketModel::Ticket::id);
    REQUIRE(found != model_.tickets().end());
    REQUIRE(found->state == each.ticket->state);
    REQUIRE(found->attempt == each.ticket->attempt);
    REQUIRE(found->lease == each.ticket->lease);
    REQUIRE(found->delays == each.ticket->delays);
    REQUIRE(found->priority == each.ticket->priority);
  }
}

void RunTicketSeeds(World& world, uint32_t first, uint32_t last, bool restarts) {
  for (uint32_t seed = first; seed <= last; ++seed) {
    INFO("seed " << seed);
    TicketWalk(&world, seed).Run(150, restarts);
    const Outcome gone = world.daemon().Administer("walk", AdminDestroy{DestroyPolicy::kForce});
    REQUIRE(gone.kind == OutcomeKind::kDone);
    world.daemon().TakeEvents();
  }
}

}  // namespace

CONTRACT_CASE(
    "tickets: after any commands each stands where it should, and is given out in order") {
  if (KeepsTickets(world)) RunTicketSeeds(world, 1, 8, false);
}

CONTRACT_CASE("ticket restart: after any commands and restarts each stands where it should") {
  if (KeepsTickets(world) && world.CanRestart()) RunTicketSeeds(world, 101, 103, true);
}

}  // namespace semaphored::contract
