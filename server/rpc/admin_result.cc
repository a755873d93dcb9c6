#include "server/rpc/admin_result.h"

#include <string>
#include <string_view>

#include "server/rpc/convert.h"
#include "server/rpc/validate.h"

namespace semaphored {
namespace {

// The semaphore after the act, if it is there.
template <typename Result>
Result* WithSemaphore(const AdminAnswer& answer, Result* result) {
  if (answer.report != nullptr && answer.report->info.has_value())
    ToProto(*answer.report->info, result->mutable_semaphore());
  return result;
}

bool OthersAsked(const AdminAnswer& answer) {
  return answer.report != nullptr && answer.report->others_asked;
}

void Add(const AdminAnswer& answer, const TicketInfo& info, pb::TicketInfo* message) {
  const auto holder = answer.ticket_holders.find(info.ticket->id);
  ToProto(info, holder == answer.ticket_holders.end() ? std::string_view() : holder->second,
          message);
}

template <typename Result>
void AddLeases(const SemaphoreInfo& info, const NodeNames& names, Result* result) {
  for (const LeasePtr& lease : info.leases)
    ToProto(lease, info.row.name, names, result->add_leases());
}

void ToDescribe(const AdminAnswer& answer, const NodeNames& names,
                pb::DescribeSemaphoreResult* result) {
  WithSemaphore(answer, result);
  if (!result->has_semaphore()) return;
  const SemaphoreInfo& info = *answer.report->info;
  AddLeases(info, names, result);
  for (const WaiterInfo& waiter : info.waiters) ToProto(waiter, names, result->add_waiters());
  result->set_next_page_token(DescribePageToken(info));
}

void ToDrain(const AdminAnswer& answer, const NodeNames& names, pb::DrainSemaphoreResult* result) {
  WithSemaphore(answer, result)->set_drained(answer.done);
  if (!result->has_semaphore()) return;
  AddLeases(*answer.report->info, names, result);
  result->set_next_page_token(DescribePageToken(*answer.report->info));
}

// The next page begins behind the last row of this one.
void ToList(const Report& report, pb::ListSemaphoresResult* result) {
  for (const SemaphoreInfo& info : report.infos) ToProto(info, result->add_semaphores());
  if (report.more && !report.infos.empty())
    result->set_next_page_token(report.infos.back().row.name);
}

void ToHistory(const Report& report, pb::ListHistoryResult* result) {
  for (const HistoryRow& row : report.history) ToProto(row, result->add_rows());
  if (report.more && !report.history.empty())
    result->set_next_page_token(std::to_string(report.history.back().number));
}

void ToTickets(const AdminAnswer& answer, pb::ListTicketsResult* result) {
  const Report& report = *answer.report;
  for (const TicketInfo& info : report.tickets) Add(answer, info, result->add_tickets());
  if (report.more && !report.tickets.empty())
    result->set_next_page_token(std::to_string(report.tickets.back().ticket->order));
}

void ToTicket(const AdminAnswer& answer, pb::ShowTicketResult* result) {
  for (const TicketInfo& info : answer.report->tickets) {
    Add(answer, info, result->mutable_ticket());
    if (info.payload != nullptr) result->set_payload(*info.payload);
  }
}

void ToResize(const AdminAnswer& answer, pb::ResizeSemaphoreResult* result) {
  WithSemaphore(answer, result)->set_recalled(answer.affected);
  result->set_others_asked(OthersAsked(answer));
}

void ToRevoke(const AdminAnswer& answer, pb::RevokeLeasesResult* result) {
  WithSemaphore(answer, result)->set_revoked(answer.affected);
  result->set_others_asked(OthersAsked(answer));
}

void ToAdopt(const AdminAnswer& answer, pb::AdoptSemaphoreResult* result) {
  WithSemaphore(answer, result)->set_limit(answer.affected);
  result->set_changes(answer.message);
  result->set_adopted(answer.changed);
}

void ToDestroy(const AdminAnswer& answer, pb::DestroySemaphoreResult* result) {
  WithSemaphore(answer, result)->set_gone(answer.done);
  result->set_changed(answer.changed);
}

}  // namespace

void ToProto(const AdminAnswer& answer, pb::AdministerRequest::ActCase act, const NodeNames& names,
             pb::AdministerResponse* message) {
  using Request = pb::AdministerRequest;
  static const Report kNone;
  const Report& report = answer.report == nullptr ? kNone : *answer.report;
  switch (act) {
    case Request::kCreate:
      return WithSemaphore(answer, message->mutable_create())->set_created(answer.changed);
    case Request::kResize:
      return ToResize(answer, message->mutable_resize());
    case Request::kConfigure:
      WithSemaphore(answer, message->mutable_configure());
      return;
    case Request::kDestroy:
      return ToDestroy(answer, message->mutable_destroy());
    case Request::kDrain:
      return ToDrain(answer, names, message->mutable_drain());
    case Request::kPause:
      WithSemaphore(answer, message->mutable_pause());
      return;
    case Request::kResume:
      WithSemaphore(answer, message->mutable_resume());
      return;
    case Request::kRevoke:
      return ToRevoke(answer, message->mutable_revoke());
    case Request::kPrune:
      return WithSemaphore(answer, message->mutable_prune())->set_pruned(answer.affected);
    case Request::kDescribe:
      return ToDescribe(answer, names, message->mutable_describe());
    case Request::kList:
      return ToList(report, message->mutable_list());
    case Request::kHistory:
      return ToHistory(report, message->mutable_history());
    case Request::kListTickets:
      return ToTickets(answer, message->mutable_list_tickets());
    case Request::kShowTicket:
      return ToTicket(answer, message->mutable_show_ticket());
    case Request::kCancelTicket:
      WithSemaphore(answer, message->mutable_cancel_ticket());
      return;
    case Request::kPrioritiseTicket:
      WithSemaphore(answer, message->mutable_prioritise_ticket());
      return;
    case Request::kRequeueTickets:
      return WithSemaphore(answer, message->mutable_requeue_tickets())
          ->set_requeued(answer.affected);
    case Request::kPurgeTickets:
      return WithSemaphore(answer, message->mutable_purge_tickets())->set_purged(answer.affected);
    case Request::kAdopt:
      return ToAdopt(answer, message->mutable_adopt());
    case Request::ACT_NOT_SET:
      return;
  }
}

}  // namespace semaphored
