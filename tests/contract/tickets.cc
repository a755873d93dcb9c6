#include "tests/contract/tickets.h"

#include <algorithm>
#include <utility>

namespace semaphored::contract {

EnqueueCommand Tickets::MakeEnqueue(Job job) const {
  EnqueueCommand command;
  command.requester = {std::move(job.client), job.sequence};
  command.semaphore = semaphore_;
  command.ticket = world_->NewId();
  command.limit = job.limit;
  command.adopt_limit = job.adopt_limit;
  command.must_exist = job.must_exist;
  command.priority = job.priority;
  command.delay_ms = job.delay_ms;
  command.max_attempts = job.max_attempts;
  command.back_off = job.back_off;
  command.content_type = std::move(job.content_type);
  command.trace = std::move(job.trace);
  command.payload = std::make_shared<const std::string>(std::move(job.payload));
  return command;
}

TakeCommand Tickets::MakeTake(Worker worker) const {
  TakeCommand command;
  command.semaphore = semaphore_;
  command.claim = world_->NewId();
  command.session = worker.session.empty() ? command.claim : worker.session;
  command.ttl_ms = worker.ttl_ms;
  command.holder = std::move(worker.holder);
  command.keep = worker.keep;
  return command;
}

FinishCommand Tickets::MakeFinish(const Id& claim, Result result) const {
  FinishCommand command;
  command.semaphore = semaphore_;
  command.claim = claim;
  command.result = result;
  return command;
}

Outcome Tickets::Finish(const Id& claim, Result result, std::string reason,
                        std::optional<int64_t> retry_after_ms) const {
  FinishCommand command = MakeFinish(claim, result);
  command.reason = std::move(reason);
  command.retry_after_ms = retry_after_ms;
  return daemon_->Do(std::move(command));
}

Id Tickets::Put(Job job) const {
  const Outcome outcome = Enqueue(std::move(job));
  REQUIRE(outcome.kind == OutcomeKind::kEnqueued);
  REQUIRE_FALSE(outcome.claim.empty());
  return outcome.claim;
}

TicketInfo Tickets::Show(const Id& ticket) const {
  const Outcome outcome = daemon_->Administer(semaphore_, AdminShowTicket{ticket});
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  REQUIRE(outcome.report->tickets.size() == 1);
  REQUIRE(outcome.report->tickets[0].ticket->id == ticket);
  REQUIRE(outcome.report->tickets[0].payload != nullptr);
  return outcome.report->tickets[0];
}

TicketInfo Tickets::Get(Worker worker) const {
  const Outcome outcome = Take(std::move(worker));
  REQUIRE(outcome.kind == OutcomeKind::kGranted);
  REQUIRE(outcome.lease != nullptr);
  REQUIRE(outcome.report->tickets.size() == 1);
  const TicketInfo& info = outcome.report->tickets[0];
  REQUIRE(info.ticket->state == TicketState::kAssigned);
  REQUIRE(info.ticket->lease == outcome.lease->id);
  REQUIRE(info.ticket->id == outcome.lease->ticket);
  REQUIRE(info.ticket->attempt == outcome.lease->attempt);
  REQUIRE(info.payload != nullptr);
  return info;
}

Id Tickets::Offer(Worker worker) const {
  const Outcome outcome = Take(std::move(worker));
  REQUIRE(outcome.kind == OutcomeKind::kQueued);
  REQUIRE_FALSE(outcome.claim.empty());
  return outcome.claim;
}

void Tickets::Done(const Id& claim) const { REQUIRE(Finish(claim).kind == OutcomeKind::kReleased); }

bool Tickets::Has(const Id& ticket) const {
  const Outcome outcome = daemon_->Administer(semaphore_, AdminShowTicket{ticket});
  if (outcome.kind == OutcomeKind::kNoSuchTicket) return false;
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  return true;
}

std::vector<Id> Tickets::List(std::vector<TicketState> states) const {
  const Outcome outcome =
      daemon_->Administer(semaphore_, AdminListTickets{0, 1000, std::move(states)});
  REQUIRE(outcome.kind == OutcomeKind::kDone);
  std::vector<Id> ids;
  for (const TicketInfo& info : outcome.report->tickets) ids.push_back(info.ticket->id);
  return ids;
}

std::vector<Id> Tickets::Drain() const {
  std::vector<Id> ids;
  for (;;) {
    const Outcome outcome = Take();
    if (outcome.kind == OutcomeKind::kNothing) return ids;
    REQUIRE(outcome.kind == OutcomeKind::kGranted);
    ids.push_back(outcome.lease->ticket);
    Done(outcome.lease->id);
  }
}

bool KeepsTickets(World& world) { return world.guarantees().durable_tickets; }

const SeenEvent* AssignmentOf(const std::vector<SeenEvent>& events, const Id& offer) {
  const auto found = std::ranges::find_if(events, [&](const SeenEvent& event) {
    return event.kind == Event::Kind::kGranted && event.claim == offer;
  });
  return found == events.end() ? nullptr : &*found;
}

}  // namespace semaphored::contract
