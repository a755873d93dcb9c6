// Tickets: how they come, meet a worker, and end.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "adapters/ledger/rules/rules.h"
#include "adapters/ledger/rules/steps.h"
#include "adapters/ledger/rules/ticket_ends.h"

namespace semaphored::ledger {
namespace {

// So many that a multiplier of 1 % more has long reached any longest delay.
constexpr uint32_t kBackOffStepsMax = 4096;

// Cut between characters.
std::string_view Cut(std::string_view text) {
  if (text.size() <= kReasonBytesMax) return text;
  size_t size = kReasonBytesMax;
  while (size > 0 && (static_cast<uint8_t>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

void AddReason(Ticket* ticket, std::string_view text, int64_t now_unix_ms) {
  if (ticket->reasons.size() >= kReasonsMax) ticket->reasons.erase(ticket->reasons.begin());
  ticket->reasons.push_back({ticket->attempt, std::string(Cut(text)), now_unix_ms});
}

int64_t DelayAfter(const Ticket& ticket) {
  const BackOff& back_off = ticket.back_off;
  int64_t delay_ms = std::min(back_off.initial_ms, back_off.max_ms);
  const uint32_t steps = std::min(ticket.attempt, kBackOffStepsMax);
  for (uint32_t step = 1; step < steps && delay_ms < back_off.max_ms; ++step) {
    const double next = static_cast<double>(delay_ms) * back_off.multiplier_percent / 100;
    delay_ms =
        next >= static_cast<double>(back_off.max_ms) ? back_off.max_ms : static_cast<int64_t>(next);
  }
  return std::max<int64_t>(delay_ms, 0);
}

// Without a lease, in the queue.
std::shared_ptr<Ticket> Returned(const Ticket& ticket) {
  auto returned = std::make_shared<Ticket>(ticket);
  returned->state = TicketState::kQueued;
  returned->lease = Id();
  returned->delay_ms = 0;
  return returned;
}

void Delay(Ticket* ticket, int64_t delay_ms, const Context& context) {
  if (delay_ms <= 0) return;
  ticket->state = TicketState::kDelayed;
  ticket->delay_ms = delay_ms;
  ++ticket->delays;
  ticket->host = context.self;
}

bool WasLast(const Ticket& ticket) {
  return ticket.max_attempts != 0 && ticket.attempt >= ticket.max_attempts;
}

std::string_view WhyUnfinished(EndCause cause) {
  switch (cause) {
    case EndCause::kReleased:
      return "its lease was given back without a result";
    case EndCause::kExpired:
      return "its worker gave no sign of life until the lease expired";
    case EndCause::kRevoked:
      return "its lease was revoked";
    case EndCause::kRecalled:
      return "its lease was recalled, and not given back in time";
    case EndCause::kDisconnected:
      return "its worker went away";
    case EndCause::kNone:
    case EndCause::kDestroyed:
    case EndCause::kUnknown:
    case EndCause::kWaitExpired:
    case EndCause::kCancelled:
    case EndCause::kExceedsLimit:
    case EndCause::kEngineLost:
    case EndCause::kMoved:
    case EndCause::kCount:
      break;
  }
  return "its lease ended without a result";
}

Claim ClaimOf(const TakeCommand& command, const Context& context) {
  Claim claim;
  claim.id = command.claim;
  claim.session = command.session;
  claim.host = context.self;
  claim.ttl_ms = command.ttl_ms;
  claim.holder = command.holder;
  claim.owner = command.owner;
  return claim;
}

// The outcome for a worker that offers to work and does not wait.
OutcomeKind MayTake(const Semaphore& semaphore, const Claim& claim, const Context& context) {
  if (semaphore.eligible.empty()) return OutcomeKind::kNothing;
  if (semaphore.row.paused) return OutcomeKind::kPaused;
  const QueuePlace place = semaphore.eligible.begin()->first;
  Ahead ahead = Ahead::Of(place, semaphore, context.limits);
  const bool room =
      ahead.WhyNot(place, claim.permits) == WaitReason::kNone && !FirstOffer(semaphore);
  if (!room) return OutcomeKind::kFull;
  if (semaphore.AtCap(claim.holder, claim.permits)) return OutcomeKind::kHolderCap;
  return context.withheld ? OutcomeKind::kWithheld : OutcomeKind::kGranted;
}

Outcome StandAsOffer(Editor& editor, Semaphore* semaphore, const Claim& claim,
                     const Context& context) {
  const Limits& limits = context.limits;
  if (semaphore->offers.size() >= limits.waiters_per_semaphore_max) {
    return LimitReached(absl::StrCat("as many offers stand at this semaphore as may (",
                                     limits.waiters_per_semaphore_max, ")"));
  }
  if (editor.state().waiter_count() >= limits.waiters_max)
    return LimitReached(absl::StrCat("waiters_max (", limits.waiters_max, ") is reached"));
  auto offer = std::make_shared<Waiter>();
  static_cast<Claim&>(*offer) = claim;
  offer->works = true;
  offer->order = editor.TakeOrder(semaphore);
  offer->queued_at_unix_ms = context.now_unix_ms;
  editor.RequireEpoch(claim);
  editor.Enqueue(semaphore, offer);
  Outcome outcome = Simply(OutcomeKind::kQueued);
  outcome.claim = claim.id;
  outcome.detail = Outcome::InQueue{semaphore->PositionOf(*offer)};
  return outcome;
}

// An empty payload fits always.
std::optional<Outcome> PayloadRefused(const LedgerState& state, const Semaphore* semaphore,
                                      const EnqueueCommand& command, const Limits& limits) {
  const uint64_t more = command.payload == nullptr ? 0 : command.payload->size();
  if (more > limits.payload_bytes_max)
    return LimitReached(
        absl::StrCat("payload_bytes_max (", limits.payload_bytes_max, ") is exceeded: ", more));
  const auto exceeds = [more](uint64_t has, uint64_t most) {
    return more > 0 && (has >= most || more > most - has);
  };
  const uint64_t has = semaphore == nullptr ? 0 : semaphore->payload_bytes;
  if (exceeds(has, limits.payload_bytes_per_semaphore_max))
    return LimitReached(absl::StrCat("payload_bytes_per_semaphore_max (",
                                     limits.payload_bytes_per_semaphore_max,
                                     ") would be exceeded: the payloads of this semaphore have ",
                                     has, " bytes, this one has ", more));
  if (exceeds(state.payload_bytes(), limits.payload_bytes_total_max))
    return LimitReached(absl::StrCat("payload_bytes_total_max (", limits.payload_bytes_total_max,
                                     ") would be exceeded: all payloads have ",
                                     state.payload_bytes(), " bytes, this one has ", more));
  return std::nullopt;
}

std::optional<Outcome> TicketRefused(const LedgerState& state, const EnqueueCommand& command,
                                     const Limits& limits) {
  const Semaphore* semaphore = state.Find(command.semaphore);
  if (auto refusal = PayloadRefused(state, semaphore, command, limits)) return refusal;
  if (command.content_type.size() > kContentTypeBytesMax || command.trace.size() > kTraceBytesMax)
    return LimitReached(
        absl::StrCat("content type and trace have at most ", kContentTypeBytesMax, " bytes each"));
  if (state.ticket_count() >= limits.tickets_max)
    return LimitReached(absl::StrCat("tickets_max (", limits.tickets_max, ") is reached"));
  if (semaphore == nullptr) return std::nullopt;
  const TicketCounts& counts = semaphore->ticket_counts;
  if (counts.living() >= limits.tickets_per_semaphore_max)
    return LimitReached(absl::StrCat("this semaphore has as many tickets as it may (",
                                     limits.tickets_per_semaphore_max, ")"));
  if (counts.dead >= limits.dead_letters_per_semaphore_max)
    return LimitReached(absl::StrCat("this semaphore has as many dead letters as it may (",
                                     limits.dead_letters_per_semaphore_max,
                                     "): it takes in no ticket until some are requeued or purged"));
  return std::nullopt;
}

TicketPtr NewTicket(const EnqueueCommand& command, uint64_t order, const Context& context) {
  auto ticket = std::make_shared<Ticket>();
  ticket->id = command.ticket;
  ticket->priority = command.priority;
  ticket->order = order;
  ticket->max_attempts = command.max_attempts;
  ticket->back_off = command.back_off;
  ticket->content_type = command.content_type;
  ticket->trace = command.trace;
  ticket->owner = command.owner;
  ticket->payload_bytes =
      command.payload == nullptr ? 0 : static_cast<uint32_t>(command.payload->size());
  ticket->enqueued_at_unix_ms = context.now_unix_ms;
  Delay(ticket.get(), command.delay_ms, context);
  return ticket;
}

// What becomes of a ticket whose lease has ended with this result.
std::shared_ptr<Ticket> After(const Ticket& ticket, const FinishCommand& command,
                              const Context& context) {
  auto after = Returned(ticket);
  if (command.result == FinishCommand::Result::kPutBack) {
    --after->attempt;
    return after;
  }
  AddReason(after.get(), command.reason, context.now_unix_ms);
  if (command.result == FinishCommand::Result::kReject || WasLast(*after)) {
    after->state = TicketState::kDead;
  } else {
    Delay(after.get(), command.retry_after_ms.value_or(DelayAfter(*after)), context);
  }
  return after;
}

}  // namespace

void EndLease(Editor& editor, Semaphore* semaphore, const LeasePtr& lease, EndCause cause,
              const Context& context) {
  editor.End(semaphore, lease, cause, context.now_unix_ms);
  const TicketPtr ticket = lease->ticket.empty() ? nullptr : semaphore->FindTicket(lease->ticket);
  if (!ticket) return;
  if (semaphore->row.destroying) return editor.Remove(semaphore, ticket);
  editor.Replace(semaphore, ticket,
                 AfterLostLease(*ticket, WhyUnfinished(cause), context.now_unix_ms));
}

TicketPtr AfterLostLease(const Ticket& ticket, std::string_view why, int64_t now_unix_ms) {
  auto after = Returned(ticket);
  AddReason(after.get(), why, now_unix_ms);
  if (WasLast(*after)) after->state = TicketState::kDead;
  return after;
}

Outcome Enqueue(Editor& editor, const EnqueueCommand& command, const Context& context) {
  if (auto refusal = TicketRefused(editor.state(), command, context.limits))
    return std::move(*refusal);
  const OwnerUsage more{.tickets = 1,
                        .ticket_bytes = command.payload == nullptr ? 0 : command.payload->size()};
  if (auto over = OverQuota(editor.state(), command.owner, command.quotas, more))
    return std::move(*over);
  const AskedSemaphore asked{
      command.semaphore, command.limit, command.adopt_limit, command.must_exist, 0,
      command.owner,     command.quotas};
  Semaphore* semaphore = nullptr;
  if (auto refusal = FindOrCreate(editor, asked, context, &semaphore)) return std::move(*refusal);
  const TicketPtr ticket = NewTicket(command, editor.TakeOrder(semaphore), context);
  editor.Add(semaphore, ticket, command.payload);
  RequestRow done = DoneBy(command.requester, command.semaphore, context);
  done.claim = command.ticket;
  editor.Remember(std::move(done));
  Advance(editor, semaphore, context);
  Outcome outcome = Simply(OutcomeKind::kEnqueued);
  outcome.claim = command.ticket;
  outcome.detail = Outcome::InQueue{semaphore->PositionOf(*semaphore->FindTicket(command.ticket))};
  return outcome;
}

Outcome Take(Editor& editor, const TakeCommand& command, const Context& context) {
  if (command.session != command.claim) {
    if (auto refusal = SessionRefuses(editor.state(), command.session, command.epoch))
      return std::move(*refusal);
  }
  Semaphore* semaphore = editor.Find(command.semaphore);
  if (semaphore == nullptr) return Simply(OutcomeKind::kNoSuchSemaphore);
  if (semaphore->row.destroying) return Simply(OutcomeKind::kDestroyed);
  if (auto full = ClaimsAtLimit(editor.state(), context.limits)) return std::move(*full);
  Claim claim = ClaimOf(command, context);
  const OutcomeKind kind = MayTake(*semaphore, claim, context);
  if (kind == OutcomeKind::kGranted) {
    const TicketPtr ticket = semaphore->eligible.begin()->second;
    claim.order = semaphore->row.next_order;
    Assign(editor, semaphore, ticket, claim, nullptr, context);
    Outcome outcome = Simply(kind);
    outcome.lease = semaphore->FindLease(claim.id);
    outcome.claim = claim.id;
    outcome.report = std::make_unique<Report>();
    outcome.report->tickets.push_back({semaphore->FindTicket(ticket->id), 0, nullptr});
    return outcome;
  }
  const bool may_come = semaphore->ticket_counts.living() > 0;
  const bool keep =
      command.keep == OfferKept::kAlways || (command.keep == OfferKept::kWhileTickets && may_come);
  return keep ? StandAsOffer(editor, semaphore, claim, context) : Simply(kind);
}

Outcome Finish(Editor& editor, const FinishCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  const LeasePtr lease = semaphore ? semaphore->FindLease(command.claim) : nullptr;
  if (!lease || lease->foreign || IsAnothers(lease->owner, command.caller)) return NotHeld();
  const TicketPtr ticket = lease->ticket.empty() ? nullptr : semaphore->FindTicket(lease->ticket);
  if (!ticket) return Simply(OutcomeKind::kNoSuchTicket);
  if (!IsEpochOf(editor.state(), *lease, command.epoch)) return Simply(OutcomeKind::kStale);
  if (command.epoch != 0) editor.RequireEpoch(*lease);
  editor.End(semaphore, lease, EndCause::kReleased, context.now_unix_ms);
  if (command.result == FinishCommand::Result::kDone || semaphore->row.destroying) {
    editor.Remove(semaphore, ticket);
  } else {
    editor.Replace(semaphore, ticket, After(*ticket, command, context));
  }
  Outcome outcome = Simply(OutcomeKind::kReleased);
  outcome.detail = Outcome::Released{lease->permits, 0, {}};
  RequestRow done = DoneBy(command.requester, command.semaphore, context);
  done.claim = command.claim;
  done.number = lease->permits;
  editor.Remember(std::move(done));
  AfterRoom(editor, semaphore, context);
  return outcome;
}

Outcome Ripen(Editor& editor, const RipenCommand& command, const Context& context) {
  Semaphore* semaphore = editor.Find(command.semaphore);
  const TicketPtr ticket = semaphore ? semaphore->FindTicket(command.ticket) : nullptr;
  if (!ticket) return Simply(OutcomeKind::kNoSuchTicket);
  if (ticket->state != TicketState::kDelayed || ticket->delays != command.delay)
    return Simply(OutcomeKind::kStale);
  editor.Replace(semaphore, ticket, Returned(*ticket));
  Advance(editor, semaphore, context);
  return Simply(OutcomeKind::kDone);
}

}  // namespace semaphored::ledger
