#include "server/rpc/admin_pages.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace semaphored {
namespace {

namespace pb = semaphore::v1;

// Calls `use` with the message of the act that has pages. False: it has none.
template <typename Use>
bool WithPages(pb::AdministerRequest* request, Use use) {
  switch (request->act_case()) {
    case pb::AdministerRequest::kDescribe:
      return use(request->mutable_describe()), true;
    case pb::AdministerRequest::kList:
      return use(request->mutable_list()), true;
    case pb::AdministerRequest::kHistory:
      return use(request->mutable_history()), true;
    case pb::AdministerRequest::kListTickets:
      return use(request->mutable_list_tickets()), true;
    default:
      return false;
  }
}

template <typename Use>
void WithPages(pb::AdministerResponse* response, Use use) {
  if (response->has_describe()) use(response->mutable_describe());
  if (response->has_list()) use(response->mutable_list());
  if (response->has_history()) use(response->mutable_history());
  if (response->has_list_tickets()) use(response->mutable_list_tickets());
}

int Rows(const pb::DescribeSemaphoreResult& result) {
  return std::max(result.leases_size(), result.waiters_size());
}
int Rows(const pb::ListSemaphoresResult& result) { return result.semaphores_size(); }
int Rows(const pb::ListHistoryResult& result) { return result.rows_size(); }
int Rows(const pb::ListTicketsResult& result) { return result.tickets_size(); }

}  // namespace

bool HasPages(pb::AdministerRequest& request) {
  return WithPages(&request, [](auto*) {});
}

uint32_t PageRowsOf(const AdminParams& params) {
  if (params.kind == AdminParams::Kind::kList) return params.list.rows_max;
  if (params.kind == AdminParams::Kind::kHistory) return params.history.rows_max;
  if (const auto* describe = std::get_if<AdminDescribe>(&params.command.act))
    return describe->rows_max;
  const auto* tickets = std::get_if<AdminListTickets>(&params.command.act);
  return tickets == nullptr ? 0 : tickets->rows_max;
}

std::string PageTokenOf(pb::AdministerRequest& request) {
  std::string token;
  WithPages(&request, [&](auto* act) { token = act->page_token(); });
  return token;
}

void SetPage(uint32_t rows, const std::string& token, pb::AdministerRequest* request) {
  WithPages(request, [&](auto* act) {
    act->set_page_size(rows);
    act->set_page_token(token);
  });
}

uint32_t RowsOf(pb::AdministerResponse& response) {
  int rows = 0;
  WithPages(&response, [&](auto* result) { rows = Rows(*result); });
  return static_cast<uint32_t>(rows);
}

std::string TakeNextPageToken(pb::AdministerResponse* response) {
  std::string token;
  WithPages(response,
            [&](auto* result) { token = std::exchange(*result->mutable_next_page_token(), ""); });
  return token;
}

void SetNextPageToken(const std::string& token, pb::AdministerResponse* response) {
  WithPages(response, [&](auto* result) { result->set_next_page_token(token); });
}

}  // namespace semaphored
