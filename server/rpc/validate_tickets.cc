// Checks of what concerns tickets.
#include <algorithm>
#include <utility>

#include "adapters/ledger/rules/rules.h"
#include "server/rpc/convert.h"
#include "server/rpc/validate.h"

namespace semaphored {
namespace {

constexpr int64_t kDayMs = 86'400'000;
constexpr int64_t kDelayMaxMs = 7 * kDayMs;
constexpr int64_t kAttemptsMax = 1'000;
constexpr int64_t kBackOffMaxMs = kDayMs;
constexpr uint32_t kMultiplierLeast = 100;
constexpr uint32_t kMultiplierMost = 1'000;
constexpr int kPlacesMax = 1'000;
constexpr uint32_t kHandsMax = 1'000;

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c <= 0x7e; });
}

Problem CheckTicketId(std::string_view field, const std::string& text, Id* out) {
  const std::optional<Id> id = Id::FromHex(text);
  if (!id.has_value() || id->empty())
    return InvalidField(field, "must be a ticket_id as Enqueue gave it: 32 hexadecimal digits");
  *out = *id;
  return std::nullopt;
}

// One ticket, or all: an empty id.
template <typename Act>
Problem CheckOneOrAll(std::string_view field, const Act& act, Id* out) {
  if (act.ticket_id().empty() != act.all())
    return InvalidField(field, "must have exactly one of ticket_id and all");
  *out = Id{};
  if (act.all()) return std::nullopt;
  std::string name(field);
  name += ".ticket_id";
  return CheckTicketId(name, act.ticket_id(), out);
}

Problem CheckBackOff(const pb::TicketBackOff& asked, BackOff* out) {
  *out = BackOff{};
  if (asked.initial_ms() != 0) out->initial_ms = asked.initial_ms();
  if (Problem problem = CheckRange("back_off.initial_ms", out->initial_ms, 1, kBackOffMaxMs))
    return problem;
  if (asked.multiplier_percent() != 0) out->multiplier_percent = asked.multiplier_percent();
  if (Problem problem = CheckRange("back_off.multiplier_percent", out->multiplier_percent,
                                   kMultiplierLeast, kMultiplierMost)) {
    return problem;
  }
  out->max_ms = asked.max_ms() != 0 ? asked.max_ms() : std::max(out->max_ms, out->initial_ms);
  return CheckRange("back_off.max_ms", out->max_ms, out->initial_ms, kBackOffMaxMs);
}

Problem CheckPayload(pb::EnqueueRequest& request, const RequestLimits& limits,
                     EnqueueCommand* out) {
  if (request.payload().size() > limits.payload_bytes_max) {
    return InvalidField("payload", "must be at most " + std::to_string(limits.payload_bytes_max) +
                                       " bytes, not " + std::to_string(request.payload().size()));
  }
  if (request.content_type().size() > ledger::kContentTypeBytesMax ||
      !IsPrintable(request.content_type())) {
    return InvalidField("content_type", "must be at most 255 bytes of printable ASCII");
  }
  if (!request.traceparent().empty() && !IsTraceparent(request.traceparent())) {
    return InvalidField("traceparent",
                        "must be a W3C traceparent, such as "
                        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  }
  out->payload = nullptr;
  if (!request.payload().empty())
    out->payload = std::make_shared<const std::string>(std::move(*request.mutable_payload()));
  out->content_type = std::move(*request.mutable_content_type());
  out->trace = std::move(*request.mutable_traceparent());
  return std::nullopt;
}

// 0 in `out`: no bound.
Problem CheckAttempts(const pb::EnqueueRequest& request, const RequestLimits& limits,
                      uint32_t* out) {
  const uint32_t asked = request.max_attempts();
  if (request.attempts_unbounded() && asked != 0)
    return InvalidField("attempts_unbounded", "must be false where max_attempts is given");
  *out = 0;
  if (request.attempts_unbounded()) return std::nullopt;
  *out = asked == 0 ? limits.ticket_attempts_default : asked;
  return CheckRange("max_attempts", asked, 0, kAttemptsMax);
}

std::string At(std::string_view field, int index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

}  // namespace

bool IsTraceparent(std::string_view text) {
  return text.size() <= ledger::kTraceBytesMax && IsPrintable(text) &&
         ParseTraceparent(text).has_value();
}

Problem Check(pb::EnqueueRequest& request, const RequestLimits& limits, EnqueueCommand* out) {
  // Asking for the field to change would make it.
  const bool has_id = request.has_request_id();
  out->requester = Requester{};
  if (has_id) {
    if (Problem problem = CheckRequestId(true, *request.mutable_request_id(), &out->requester))
      return problem;
  }
  if (Problem problem = CheckName("semaphore", request.semaphore(), limits)) return problem;
  if (Problem problem = CheckRange("limit", request.limit(), 0, limits.limit_max)) return problem;
  out->limit = request.limit();
  if (!pb::LimitMismatch_IsValid(request.limit_mismatch())) {
    return InvalidField("limit_mismatch", "must be LIMIT_MISMATCH_FAIL or LIMIT_MISMATCH_ADOPT");
  }
  out->adopt_limit = request.limit_mismatch() == pb::LIMIT_MISMATCH_ADOPT;
  if (Problem problem = CheckPriority("priority", request.priority())) return problem;
  out->priority = request.priority();
  if (Problem problem = CheckRange("delay_ms", request.delay_ms(), 0, kDelayMaxMs)) return problem;
  out->delay_ms = request.delay_ms();
  if (Problem problem = CheckAttempts(request, limits, &out->max_attempts)) return problem;
  if (Problem problem = CheckBackOff(request.back_off(), &out->back_off)) return problem;
  if (Problem problem = CheckPayload(request, limits, out)) return problem;
  out->semaphore = std::move(*request.mutable_semaphore());
  return std::nullopt;
}

Problem CheckTicketsMax(uint32_t tickets_max) {
  return CheckRange("tickets_max", tickets_max, 0, kHandsMax);
}

Problem Check(pb::OpenWork& request, const RequestLimits& limits, OpenParams* out) {
  pb::OpenSession session;
  session.set_client_id(std::move(*request.mutable_client_id()));
  session.set_ttl_ms(request.ttl_ms());
  session.set_resume_session_id(std::move(*request.mutable_resume_session_id()));
  session.set_holder(std::move(*request.mutable_holder()));
  if (Problem problem = Check(session, limits, out)) return problem;
  const int places = request.semaphores_size() + request.prefixes_size();
  if (places == 0 || places > kPlacesMax) {
    return InvalidField("open.semaphores", "must be 1 to " + std::to_string(kPlacesMax) +
                                               " together with open.prefixes, not " +
                                               std::to_string(places));
  }
  auto work = std::make_shared<WorkParams>();
  for (int i = 0; i < request.semaphores_size(); ++i) {
    if (Problem problem = CheckName(At("open.semaphores", i), request.semaphores(i), limits))
      return problem;
    work->semaphores.push_back(std::move(*request.mutable_semaphores(i)));
  }
  for (int i = 0; i < request.prefixes_size(); ++i) {
    // An empty one is all semaphores.
    if (Problem problem = CheckPrefix(At("open.prefixes", i), request.prefixes(i))) return problem;
    work->prefixes.push_back(std::move(*request.mutable_prefixes(i)));
  }
  work->tickets_max = request.tickets_max() == 0 ? 1 : request.tickets_max();
  if (Problem problem = CheckRange("open.tickets_max", work->tickets_max, 1, kHandsMax))
    return problem;
  out->work = std::move(work);
  return std::nullopt;
}

Problem Check(pb::FinishTicket& request, const RequestLimits& /*limits*/, FinishCommand* out) {
  std::optional<LeaseName> lease = ParseLeaseId(request.lease_id());
  if (!lease.has_value())
    return InvalidField("lease_id", "must be the lease_id of a TicketAssignment as it was given");
  out->semaphore = std::move(lease->semaphore);
  out->claim = lease->claim;
  out->reason.clear();
  out->retry_after_ms.reset();
  switch (request.result_case()) {
    case pb::FinishTicket::kDone:
      out->result = FinishCommand::Result::kDone;
      return std::nullopt;
    case pb::FinishTicket::kFailed:
      out->result = FinishCommand::Result::kFailed;
      out->reason = std::move(*request.mutable_failed()->mutable_reason());
      if (!request.failed().has_retry_after_ms()) return std::nullopt;
      out->retry_after_ms = request.failed().retry_after_ms();
      return CheckRange("failed.retry_after_ms", *out->retry_after_ms, 0, kBackOffMaxMs);
    case pb::FinishTicket::kRejected:
      out->result = FinishCommand::Result::kReject;
      out->reason = std::move(*request.mutable_rejected()->mutable_reason());
      return std::nullopt;
    case pb::FinishTicket::kPutBack:
      out->result = FinishCommand::Result::kPutBack;
      return std::nullopt;
    case pb::FinishTicket::RESULT_NOT_SET:
      break;
  }
  return InvalidField("result", "must be done, failed, rejected or put_back");
}

// ---- Administration ----

Problem CheckListTickets(const pb::ListTickets& act, const RequestLimits& limits,
                         AdminCommand* out) {
  AdminListTickets list;
  if (Problem problem = CheckRows(act.page_size(), limits, &list.rows_max)) return problem;
  if (Problem problem = CheckPageToken(act.page_token(), &list.after_order)) return problem;
  for (const int state : act.states()) {
    if (state < pb::TICKET_STATE_QUEUED || state > pb::TICKET_STATE_DEAD) {
      return InvalidField("list_tickets.states",
                          "must be TICKET_STATE_QUEUED, TICKET_STATE_DELAYED, "
                          "TICKET_STATE_ASSIGNED or TICKET_STATE_DEAD");
    }
    const auto known = static_cast<TicketState>(state);
    if (std::ranges::count(list.states, known) == 0) list.states.push_back(known);
  }
  if (list.states.empty())
    list.states = {TicketState::kQueued, TicketState::kDelayed, TicketState::kAssigned};
  out->requester = Requester{};  // A question is asked again each time.
  out->act = std::move(list);
  return std::nullopt;
}

Problem CheckShowTicket(const pb::ShowTicket& act, AdminCommand* out) {
  AdminShowTicket show;
  out->requester = Requester{};
  Problem problem = CheckTicketId("show_ticket.ticket_id", act.ticket_id(), &show.ticket);
  out->act = show;
  return problem;
}

Problem CheckCancelTicket(const pb::CancelTicket& act, AdminCommand* out) {
  AdminCancelTicket cancel;
  cancel.force = act.force();
  Problem problem = CheckTicketId("cancel_ticket.ticket_id", act.ticket_id(), &cancel.ticket);
  out->act = cancel;
  return problem;
}

Problem CheckPrioritiseTicket(const pb::PrioritiseTicket& act, AdminCommand* out) {
  AdminPrioritizeTicket prioritize;
  if (Problem problem =
          CheckTicketId("prioritise_ticket.ticket_id", act.ticket_id(), &prioritize.ticket)) {
    return problem;
  }
  prioritize.priority = act.priority();
  out->act = prioritize;
  return CheckPriority("prioritise_ticket.priority", act.priority());
}

Problem CheckRequeue(const pb::RequeueTickets& act, AdminCommand* out) {
  AdminRequeue requeue;
  Problem problem = CheckOneOrAll("requeue_tickets", act, &requeue.ticket);
  out->act = requeue;
  return problem;
}

Problem CheckPurge(const pb::PurgeTickets& act, AdminCommand* out) {
  AdminPurge purge;
  Problem problem = CheckOneOrAll("purge_tickets", act, &purge.ticket);
  out->act = purge;
  return problem;
}

}  // namespace semaphored
