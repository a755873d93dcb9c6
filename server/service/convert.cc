#include "server/service/convert.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace semaphored {
namespace {

// The API uses the same numbers.
static_assert(static_cast<int>(Reason::kCount) == pb::Reason_ARRAYSIZE);
static_assert(static_cast<int>(EndCause::kCount) == pb::EndCause_ARRAYSIZE);

constexpr size_t kNameBytesMax = 255;
constexpr size_t kIdDigits = 32;
constexpr char kSeparator = '#';  // Not part of any semaphore's name.

constexpr std::array<bool, 256> kNameBytes = [] {
  std::array<bool, 256> allowed{};
  for (int c = 'a'; c <= 'z'; ++c) allowed[c] = true;
  for (int c = 'A'; c <= 'Z'; ++c) allowed[c] = true;
  for (int c = '0'; c <= '9'; ++c) allowed[c] = true;
  for (const char c : {'.', '_', '-', '/', ':', '@', '+'})
    allowed[static_cast<unsigned char>(c)] = true;
  return allowed;
}();

void AppendHex(uint64_t value, std::string* text) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 60; shift >= 0; shift -= 4) text->push_back(kDigits[(value >> shift) & 15]);
}

std::string_view RecallText(Recall::Reason reason) {
  switch (reason) {
    case Recall::Reason::kNone:
      return "";
    case Recall::Reason::kShrunk:
      return "the limit was lowered";
    case Recall::Reason::kLongestHold:
      return "it was held for longest_hold_ms";
    case Recall::Reason::kAdministrator:
      return "an administrator asked for it";
  }
  return "";
}

pb::WatchEvent::Kind KindOf(SemaphoreChange::Kind kind) {
  switch (kind) {
    case SemaphoreChange::Kind::kCreated:
      return pb::WatchEvent::CREATED;
    case SemaphoreChange::Kind::kChanged:
      return pb::WatchEvent::CHANGED;
    case SemaphoreChange::Kind::kDestroyed:
      return pb::WatchEvent::DESTROYED;
    case SemaphoreChange::Kind::kQueued:
      return pb::WatchEvent::QUEUED;
    case SemaphoreChange::Kind::kGranted:
      return pb::WatchEvent::GRANTED;
    case SemaphoreChange::Kind::kEnded:
      return pb::WatchEvent::ENDED;
    case SemaphoreChange::Kind::kRecalled:
      return pb::WatchEvent::RECALLED;
    case SemaphoreChange::Kind::kWaitEnded:
      return pb::WatchEvent::WAIT_ENDED;
  }
  return pb::WatchEvent::KIND_UNSPECIFIED;
}

void ToProto(const WaiterInfo& info, pb::WaiterInfo* message) {
  message->set_position(info.position);
  message->set_holder(info.waiter->holder);
  message->set_permits(info.waiter->permits);
  message->set_priority(info.waiter->priority);
  message->set_queued_at_unix_ms(info.waiter->queued_at_unix_ms);
  message->set_node(NodeText(info.waiter->host));
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

bool IsSemaphoreName(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  if (name.front() == '.' || name.front() == '/' || name.back() == '/') return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return kNameBytes[static_cast<unsigned char>(c)]; });
}

std::string NodeText(const NodeRef& node) {
  return std::to_string(node.number) + "." + std::to_string(node.incarnation);
}

void ToProto(const Lease& lease, std::string_view semaphore, pb::Lease* message) {
  AppendLeaseId(semaphore, lease.id, message->mutable_lease_id());
  message->set_semaphore(semaphore.data(), semaphore.size());
  message->mutable_slots()->Add(lease.slots.begin(), lease.slots.end());
  message->set_token(lease.token);
  message->set_holder(lease.holder);
  message->set_ttl_ms(lease.ttl_ms);
  if (!lease.detached() && !lease.session.empty()) {
    std::string* session = message->mutable_session_id();
    session->reserve(kIdDigits);
    AppendHex(lease.session.high, session);
    AppendHex(lease.session.low, session);
  }
}

void ToProto(const Recall& recall, pb::Recall* message) {
  message->set_grace_ms(recall.grace_ms);
  message->set_reason(std::string(RecallText(recall.reason)));
}

void ToProto(const Settings& settings, pb::Settings* message) {
  message->set_backfill(settings.backfill);
  message->set_longest_hold_ms(settings.longest_hold_ms);
  // On the wire 0 is the default, so that "none at all" is -1; what is shown can be sent back as it
  // is.
  message->set_recall_grace_ms(settings.recall_grace_ms == 0 ? -1 : settings.recall_grace_ms);
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
  message->set_created_at_unix_ms(info.row.created_at_unix_ms);
  message->set_offers(info.offers);
  if (info.tickets != TicketCounts{}) {
    pb::TicketCounts* tickets = message->mutable_tickets();
    tickets->set_queued(info.tickets.queued);
    tickets->set_delayed(info.tickets.delayed);
    tickets->set_assigned(info.tickets.assigned);
    tickets->set_dead(info.tickets.dead);
  }
  for (const LeasePtr& lease : info.leases) {
    pb::LeaseInfo* row = message->add_leases();
    ToProto(*lease, info.row.name, row->mutable_lease());
    row->set_foreign(lease->foreign);
    row->set_recalled(lease->recall.pending());
    row->set_granted_at_unix_ms(lease->granted_at_unix_ms);
    if (!lease->foreign) row->set_node(NodeText(lease->host));
  }
  for (const WaiterInfo& waiter : info.waiters) ToProto(waiter, message->add_waiters());
}

void ToProto(const HistoryRow& row, pb::HistoryRow* message) {
  message->set_number(row.number);
  message->set_semaphore(row.semaphore);
  message->set_holder(row.lease->holder);
  message->mutable_slots()->Add(row.lease->slots.begin(), row.lease->slots.end());
  message->set_token(row.lease->token);
  message->set_granted_at_unix_ms(row.lease->granted_at_unix_ms);
  message->set_ended_at_unix_ms(row.ended_at_unix_ms);
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
  message->set_enqueued_at_unix_ms(ticket.enqueued_at_unix_ms);
  for (const TicketReason& reason : ticket.reasons) {
    pb::TicketReason* row = message->add_reasons();
    row->set_attempt(reason.attempt);
    row->set_text(reason.text);
    row->set_at_unix_ms(reason.at_unix_ms);
  }
  message->set_position(info.position);
  message->set_holder(holder.data(), holder.size());
  message->set_delay_ms(ticket.delay_ms);
  message->set_traceparent(ticket.trace);
}

void ToProto(const Assignment& assignment, pb::Assignment* message) {
  const Ticket& ticket = *assignment.ticket;
  message->set_ticket_id(ticket.id.Hex());
  ToProto(*assignment.lease, assignment.semaphore, message->mutable_lease());
  if (assignment.payload != nullptr) message->set_payload(*assignment.payload);
  message->set_content_type(ticket.content_type);
  message->set_attempt(ticket.attempt);
  message->set_max_attempts(ticket.max_attempts);
  message->set_traceparent(ticket.trace);
  message->set_enqueued_at_unix_ms(ticket.enqueued_at_unix_ms);
}

void ToProto(const SemaphoreChange& change, pb::WatchEvent* message) {
  message->set_kind(KindOf(change.kind));
  ToProto(change.info, message->mutable_semaphore());
  message->set_cause(ToProto(change.cause));
  if (change.lease != nullptr) {
    message->set_holder(change.lease->holder);
    message->mutable_slots()->Add(change.lease->slots.begin(), change.lease->slots.end());
    message->set_token(change.lease->token);
  } else if (change.waiter != nullptr) {
    message->set_holder(change.waiter->holder);
  }
}

void ToProto(const ReleaseAnswer& answer, pb::ReleaseResponse* message) {
  message->set_released(answer.released);
  message->set_remaining(answer.remaining);
  message->set_ended(ToProto(answer.ended));
}

void ToProto(const AdminAnswer& answer, pb::AdministerResponse* message) {
  message->set_done(answer.done);
  message->set_changed(answer.changed);
  message->set_affected(answer.affected);
  if (answer.report == nullptr) return;
  const Report& report = *answer.report;
  if (report.info.has_value()) ToProto(*report.info, message->mutable_semaphore());
  for (const SemaphoreInfo& info : report.infos) ToProto(info, message->add_semaphores());
  for (const HistoryRow& row : report.history) ToProto(row, message->add_history());
  for (const TicketInfo& info : report.tickets) {
    const auto holder = answer.ticket_holders.find(info.ticket->id);
    ToProto(info, holder == answer.ticket_holders.end() ? std::string_view() : holder->second,
            message->add_tickets());
    if (info.payload != nullptr) message->set_payload(*info.payload);
  }
  message->set_more(report.more);
  message->set_others_asked(report.others_asked);
}

void ToProto(const Vouch& vouch, SteadyTime::duration elapsed, pb::Validity* message) {
  message->set_elapsed_ms(std::chrono::duration_cast<Milliseconds>(elapsed).count());
  message->set_valid_for_ms(vouch.valid_for_ms);
  message->set_epoch(vouch.epoch);
}

void ToProto(const VerifyAnswer& answer, SteadyTime::duration elapsed,
             pb::VerifyResponse* message) {
  message->set_held(answer.held);
  message->set_ended(ToProto(answer.ended));
  message->set_slot_token(answer.slot_token);
  if (!answer.held || answer.lease == nullptr) return;
  ToProto(*answer.lease, answer.semaphore, message->mutable_lease());
  ToProto(answer.vouch, elapsed, message->mutable_validity());
  if (answer.lease->recall.pending()) ToProto(answer.lease->recall, message->mutable_recall());
}

}  // namespace semaphored
