#include "server/rpc/convert.h"

#include <algorithm>
#include <chrono>

#include "adapters/names.h"

namespace semaphored {
namespace {

// The API uses the same numbers.
static_assert(static_cast<int>(Reason::kCount) == pb::Reason_ARRAYSIZE);
static_assert(static_cast<int>(EndCause::kCount) == pb::EndCause_ARRAYSIZE);
static_assert(static_cast<int>(WaitReason::kCount) == pb::WaitReason_ARRAYSIZE);

constexpr size_t kIdDigits = 32;
// Of one page of SessionOpened: together they keep a message far below the 4 MiB that gRPC clients take by default.
constexpr int kOpenedLeasesMax = 1'000;
constexpr size_t kOpenedRangesMax = 50'000;
constexpr char kSeparator = '#';  // Not part of any semaphore's name.

void AppendHex(uint64_t value, std::string* text) {
  constexpr char kDigits[] = "0123456789abcdef";
  char digits[16];
  for (char& digit : digits) {
    digit = kDigits[value >> 60];
    value <<= 4;
  }
  text->append(digits, sizeof digits);
}

std::string_view RecallText(Recall::Reason reason) {
  switch (reason) {
    case Recall::Reason::kNone:
      return "";
    case Recall::Reason::kShrunk:
      return "the limit was lowered";
    case Recall::Reason::kLongestHold:
      return "it was held for longest_hold_ms";
    case Recall::Reason::kDestroyed:
      return "the semaphore is being destroyed";
    case Recall::Reason::kAdministrator:
      return "an administrator asked for it";
  }
  return "";
}

pb::WatchEventKind KindOf(SemaphoreChange::Kind kind) {
  switch (kind) {
    case SemaphoreChange::Kind::kCreated:
      return pb::WATCH_EVENT_KIND_CREATED;
    case SemaphoreChange::Kind::kChanged:
      return pb::WATCH_EVENT_KIND_CHANGED;
    case SemaphoreChange::Kind::kDestroyed:
      return pb::WATCH_EVENT_KIND_DESTROYED;
    case SemaphoreChange::Kind::kQueued:
      return pb::WATCH_EVENT_KIND_QUEUED;
    case SemaphoreChange::Kind::kGranted:
      return pb::WATCH_EVENT_KIND_GRANTED;
    case SemaphoreChange::Kind::kEnded:
      return pb::WATCH_EVENT_KIND_ENDED;
    case SemaphoreChange::Kind::kRecalled:
      return pb::WATCH_EVENT_KIND_RECALLED;
    case SemaphoreChange::Kind::kWaitEnded:
      return pb::WATCH_EVENT_KIND_WAIT_ENDED;
  }
  return pb::WATCH_EVENT_KIND_UNSPECIFIED;
}

}  // namespace

void AppendLeaseId(std::string_view semaphore, const Id& claim, std::string* text) {
  text->reserve(text->size() + semaphore.size() + 1 + kIdDigits);
  text->append(semaphore);
  text->push_back(kSeparator);
  AppendHex(claim.high, text);
  AppendHex(claim.low, text);
}

std::optional<LeaseName> ParseLeaseId(std::string_view text) {
  if (text.size() <= kIdDigits + 1) return std::nullopt;
  const size_t separator = text.size() - kIdDigits - 1;
  if (text[separator] != kSeparator) return std::nullopt;
  const std::string_view name = text.substr(0, separator);
  if (!IsSemaphoreName(name)) return std::nullopt;
  const std::optional<Id> claim = Id::FromHex(text.substr(separator + 1));
  if (!claim.has_value() || claim->empty()) return std::nullopt;
  return LeaseName{std::string(name), *claim};
}

void ToProto(uint64_t position, WaitReason reason, int64_t expected_wait_ms,
             pb::WaitQueued* message) {
  message->set_position(position);
  message->set_reason(ToProto(reason));
  if (expected_wait_ms >= 0)
    message->set_expected_wait_ms(
        static_cast<uint32_t>(std::min<int64_t>(expected_wait_ms, UINT32_MAX)));
}

void ToProto(const Slots& slots, google::protobuf::RepeatedPtrField<pb::SlotRange>* ranges) {
  for (const Slots::Run& run : slots.runs()) {
    pb::SlotRange* range = ranges->Add();
    range->set_first(run.first);
    range->set_last(run.last);
  }
}

void ToProto(const Lease& lease, std::string_view semaphore, pb::Lease* message) {
  AppendLeaseId(semaphore, lease.id, message->mutable_lease_id());
  message->set_semaphore(semaphore.data(), semaphore.size());
  ToProto(lease.slots, message->mutable_slots());
  message->set_token(lease.token);
  message->set_holder(lease.holder);
  message->set_ttl_ms(static_cast<uint32_t>(lease.ttl_ms));
  if (!lease.detached() && !lease.session.empty()) {
    std::string* session = message->mutable_session_id();
    session->reserve(kIdDigits);
    AppendHex(lease.session.high, session);
    AppendHex(lease.session.low, session);
  }
}

void ToProto(const RecallNotice& recall, const LastPing& ping, pb::LeaseRecall* message) {
  message->set_grace_ms(static_cast<uint32_t>(recall.grace_ms));
  message->set_reason(std::string(RecallText(recall.reason)));
  message->set_recall_id(recall.id);
  message->set_elapsed_ms(std::chrono::duration_cast<Milliseconds>(ping.elapsed).count());
  message->set_after_ping_id(ping.id);
}

void ToProto(const Lease& lease, std::string_view semaphore, const RecallNotice& recall,
             const LastPing& ping, pb::Lease* message) {
  ToProto(lease, semaphore, message);
  if (recall.id != 0) ToProto(recall, ping, message->mutable_recall());
}

void ToProto(const Settings& settings, pb::SemaphoreSettings* message) {
  message->set_backfill(settings.backfill);
  message->set_longest_hold_ms(settings.longest_hold_ms);
  message->set_recall_grace_ms(static_cast<uint32_t>(settings.recall_grace_ms));
  message->set_permits_per_holder(settings.permits_per_holder);
  message->set_waiters_max(settings.waiters_max);
}

void ToProto(const SemaphoreInfo& info, pb::SemaphoreInfo* message) {
  message->set_semaphore(info.row.name);
  message->set_limit(info.row.limit);
  message->set_held(info.held);
  message->set_waiting(info.waiting);
  message->set_paused(info.row.paused);
  message->set_destroying(info.row.destroying);
  ToProto(info.row.settings, message->mutable_settings());
  message->set_revision(info.row.revision);
  SetTime(info.row.created_at_unix_ms, message, &pb::SemaphoreInfo::mutable_created_at);
  message->set_offers(info.offers);
  if (info.tickets != TicketCounts{}) {
    pb::TicketCounts* tickets = message->mutable_tickets();
    tickets->set_queued(info.tickets.queued);
    tickets->set_delayed(info.tickets.delayed);
    tickets->set_assigned(info.tickets.assigned);
    tickets->set_dead(info.tickets.dead);
  }
}

void ToProto(const LeasePtr& lease, std::string_view semaphore, const NodeNames& names,
             pb::LeaseInfo* message) {
  ToProto(*lease, semaphore, message->mutable_lease());
  message->set_foreign(lease->foreign);
  message->set_recalled(lease->recall.pending());
  SetTime(lease->granted_at_unix_ms, message, &pb::LeaseInfo::mutable_granted_at);
  if (!lease->foreign) message->set_node(names(lease->host));
}

void ToProto(const WaiterInfo& info, const NodeNames& names, pb::WaiterInfo* message) {
  message->set_position(info.position);
  message->set_holder(info.waiter->holder);
  message->set_permits(info.waiter->permits);
  message->set_priority(info.waiter->priority);
  SetTime(info.waiter->queued_at_unix_ms, message, &pb::WaiterInfo::mutable_queued_at);
  message->set_node(names(info.waiter->host));
  message->set_reason(ToProto(info.reason));
}

void ToProto(const HistoryRow& row, pb::HistoryRow* message) {
  message->set_number(row.number);
  message->set_semaphore(row.semaphore);
  message->set_holder(row.lease->holder);
  ToProto(row.lease->slots, message->mutable_slots());
  message->set_token(row.lease->token);
  SetTime(row.lease->granted_at_unix_ms, message, &pb::HistoryRow::mutable_granted_at);
  SetTime(row.ended_at_unix_ms, message, &pb::HistoryRow::mutable_ended_at);
  message->set_cause(ToProto(row.cause));
}

void ToProto(const TicketInfo& info, std::string_view holder, pb::TicketInfo* message) {
  const Ticket& ticket = *info.ticket;
  message->set_ticket_id(ticket.id.Hex());
  message->set_number(ticket.order);
  message->set_state(ToProto(ticket.state));
  message->set_priority(ticket.priority);
  message->set_attempt(ticket.attempt);
  message->set_max_attempts(ticket.max_attempts);
  message->set_content_type(ticket.content_type);
  message->set_payload_bytes(ticket.payload_bytes);
  message->set_attempts_unbounded(ticket.max_attempts == 0);
  SetTime(ticket.enqueued_at_unix_ms, message, &pb::TicketInfo::mutable_enqueued_at);
  for (const TicketReason& reason : ticket.reasons) {
    pb::TicketReason* row = message->add_reasons();
    row->set_attempt(reason.attempt);
    row->set_text(reason.text);
    SetTime(reason.at_unix_ms, row, &pb::TicketReason::mutable_at);
  }
  message->set_position(info.position);
  message->set_holder(holder.data(), holder.size());
  message->set_delay_ms(static_cast<uint32_t>(ticket.delay_ms));
  message->set_traceparent(ticket.trace);
}

void ToProto(const Assignment& assignment, const LastPing& ping, pb::TicketAssignment* message) {
  const Ticket& ticket = *assignment.ticket;
  message->set_ticket_id(ticket.id.Hex());
  ToProto(*assignment.lease, assignment.semaphore, assignment.recall, ping,
          message->mutable_lease());
  if (assignment.payload != nullptr) message->set_payload(*assignment.payload);
  message->set_content_type(ticket.content_type);
  message->set_attempt(ticket.attempt);
  message->set_max_attempts(ticket.max_attempts);
  message->set_traceparent(ticket.trace);
  message->set_attempts_unbounded(ticket.max_attempts == 0);
  SetTime(ticket.enqueued_at_unix_ms, message, &pb::TicketAssignment::mutable_enqueued_at);
}

void ToProto(const SemaphoreChange& change, pb::WatchResponse* message) {
  message->set_kind(KindOf(change.kind));
  ToProto(change.info, message->mutable_semaphore());
  message->set_cause(ToProto(change.cause));
  if (change.lease != nullptr) {
    message->set_holder(change.lease->holder);
    ToProto(change.lease->slots, message->mutable_slots());
    message->set_token(change.lease->token);
  } else if (change.waiter != nullptr) {
    message->set_holder(change.waiter->holder);
  }
}

std::vector<pb::SessionOpened> OpenedPages(const std::vector<HeldLease>& held,
                                           const LastPing& ping) {
  std::vector<pb::SessionOpened> pages(1);
  size_t ranges = 0;
  for (const HeldLease& each : held) {
    ranges += each.lease->slots.runs().size();
    if (pages.back().leases_size() >= kOpenedLeasesMax || ranges > kOpenedRangesMax) {
      pages.back().set_more(true);
      pages.emplace_back();
      ranges = each.lease->slots.runs().size();
    }
    ToProto(*each.lease, each.semaphore, each.recall, ping, pages.back().add_leases());
  }
  return pages;
}

void ToProto(const ReleaseAnswer& answer, pb::ReleaseResponse* message) {
  message->set_released(answer.released);
  message->set_remaining(answer.remaining);
  message->set_ended(ToProto(answer.ended));
}

void ToProto(const Vouch& vouch, SteadyTime::duration elapsed, pb::LeaseValidity* message) {
  message->set_elapsed_ms(std::chrono::duration_cast<Milliseconds>(elapsed).count());
  // What is over is 0.
  message->set_valid_for_ms(static_cast<uint32_t>(std::max<int64_t>(vouch.valid_for_ms, 0)));
  message->set_epoch(vouch.epoch);
}

void ToProto(const VerifyAnswer& answer, SteadyTime::duration elapsed,
             pb::VerifyResponse* message) {
  message->set_held(answer.held);
  message->set_ended(ToProto(answer.ended));
  message->set_slot_token(answer.slot_token);
  if (!answer.held || answer.lease == nullptr) return;
  const RecallNotice& recall = answer.vouch.recall;
  const LastPing ping{0, elapsed};
  ToProto(*answer.lease, answer.semaphore, recall, ping, message->mutable_lease());
  ToProto(answer.vouch, elapsed, message->mutable_validity());
  if (recall.id != 0) ToProto(recall, ping, message->mutable_recall());
}

}  // namespace semaphored
