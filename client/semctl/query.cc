// semctl describe, list, history.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/semctl/admin.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/output.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

using Request = v1::AdministerRequest;
using Response = v1::AdministerResponse;

int Describe(const Context& context, const Request& request, const Paging& paging) {
  v1::DescribeSemaphoreResult all;
  const auto set = [](std::uint32_t size, const std::string& token, Request* page) {
    page->mutable_describe()->set_page_size(size);
    page->mutable_describe()->set_page_token(token);
  };
  const auto take = [&all](const Response& page) {
    const v1::DescribeSemaphoreResult& described = page.describe();
    *all.mutable_semaphore() = described.semaphore();
    all.mutable_leases()->MergeFrom(described.leases());
    all.mutable_waiters()->MergeFrom(described.waiters());
    return Page{static_cast<std::uint32_t>(described.leases_size() + described.waiters_size()),
                described.next_page_token()};
  };
  const absl::StatusOr<std::string> next = ReadPages(context, request, paging, set, take);
  if (!next.ok()) return context.Fail(next.status());
  if (!context.json()) {
    PrintSemaphore(all.semaphore());
    PrintRows(all);
    SayMore(context, *next);
    return kDone;
  }
  Json json = ToJson(all.semaphore());
  json["leases"] = Json::array();
  for (const v1::LeaseInfo& lease : all.leases()) json["leases"].push_back(ToJson(lease));
  json["waiters"] = Json::array();
  for (const v1::WaiterInfo& waiter : all.waiters()) json["waiters"].push_back(ToJson(waiter));
  json["next_page_token"] = *next;
  PrintJson(json);
  return kDone;
}

void PrintList(const std::vector<v1::SemaphoreInfo>& semaphores) {
  std::vector<std::vector<std::string>> rows = {
      {"SEMAPHORE", "LIMIT", "HELD", "WAITING", "TICKETS", "DEAD", ""}};
  for (const v1::SemaphoreInfo& semaphore : semaphores) {
    const v1::TicketCounts& tickets = semaphore.tickets();
    rows.push_back({semaphore.semaphore(), absl::StrCat(semaphore.limit()),
                    absl::StrCat(semaphore.held()), absl::StrCat(semaphore.waiting()),
                    absl::StrCat(tickets.queued() + tickets.delayed() + tickets.assigned()),
                    absl::StrCat(tickets.dead()),
                    semaphore.paused() ? "paused" : (semaphore.destroying() ? "destroying" : "")});
  }
  PrintTable(rows);
}

int List(const Context& context, const Request& request, const Paging& paging, bool names) {
  std::vector<v1::SemaphoreInfo> semaphores;
  const auto set = [](std::uint32_t size, const std::string& token, Request* page) {
    page->mutable_list()->set_page_size(size);
    page->mutable_list()->set_page_token(token);
  };
  const auto take = [&semaphores](const Response& page) {
    const auto& rows = page.list().semaphores();
    semaphores.insert(semaphores.end(), rows.begin(), rows.end());
    return Page{static_cast<std::uint32_t>(rows.size()), page.list().next_page_token()};
  };
  const absl::StatusOr<std::string> next = ReadPages(context, request, paging, set, take);
  if (!next.ok()) return context.Fail(next.status());
  if (context.json()) {
    Json json = {{"semaphores", Json::array()}, {"next_page_token", *next}};
    for (const v1::SemaphoreInfo& semaphore : semaphores)
      json["semaphores"].push_back(ToJson(semaphore));
    PrintJson(json);
    return kDone;
  }
  if (names) {
    for (const v1::SemaphoreInfo& semaphore : semaphores) PrintLine(semaphore.semaphore());
  } else {
    PrintList(semaphores);
  }
  SayMore(context, *next);
  return kDone;
}

int History(const Context& context, const Request& request, const Paging& paging) {
  std::vector<v1::HistoryRow> found;
  const auto set = [](std::uint32_t size, const std::string& token, Request* page) {
    page->mutable_history()->set_page_size(size);
    page->mutable_history()->set_page_token(token);
  };
  const auto take = [&found](const Response& page) {
    const auto& rows = page.history().rows();
    found.insert(found.end(), rows.begin(), rows.end());
    return Page{static_cast<std::uint32_t>(rows.size()), page.history().next_page_token()};
  };
  const absl::StatusOr<std::string> next = ReadPages(context, request, paging, set, take);
  if (!next.ok()) return context.Fail(next.status());
  if (context.json()) {
    Json json = {{"rows", Json::array()}, {"next_page_token", *next}};
    for (const v1::HistoryRow& row : found) json["rows"].push_back(ToJson(row));
    PrintJson(json);
    return kDone;
  }
  std::vector<std::vector<std::string>> rows = {
      {"NUMBER", "HOLDER", "SLOTS", "TOKEN", "GRANTED", "ENDED", "CAUSE"}};
  for (const v1::HistoryRow& row : found) {
    rows.push_back({absl::StrCat(row.number()), row.holder(), SlotsText(row.slots()),
                    absl::StrCat(row.token()), FormatTime(row.granted_at()),
                    FormatTime(row.ended_at()), Text(row.cause())});
  }
  PrintTable(rows);
  SayMore(context, *next);
  return kDone;
}

}  // namespace

void AddQueryCommands(Command app, Context& context) {
  auto described = std::make_shared<Request>();
  auto described_rows = std::make_shared<Paging>(Paging{100, ""});
  const Command describe = AddCommand(
      app, context, "describe", "A semaphore, who holds and who waits",
      "  semctl describe team/db\n  semctl describe team/db -o json | jq '.leases[].holder'",
      [&context, described, described_rows] {
        return Describe(context, *described, *described_rows);
      });
  describe.AddName(described->mutable_semaphore());
  AddPaging(describe, described_rows.get());

  auto listed = std::make_shared<Request>();
  auto listed_rows = std::make_shared<Paging>();
  auto names = std::make_shared<bool>(false);
  const Command list = AddCommand(app, context, "list", "The semaphores",
                                  "  semctl list\n  semctl list team/ --names",
                                  [&context, listed, listed_rows, names] {
                                    return List(context, *listed, *listed_rows, *names);
                                  });
  list.Add("PREFIX", listed->mutable_list()->mutable_prefix(), "Names that begin with this")
      .Takes(kTakesPrefix);
  list.AddFlag("--names", names.get(), "Print the names only");
  AddPaging(list, listed_rows.get());

  auto asked = std::make_shared<Request>();
  auto asked_rows = std::make_shared<Paging>(Paging{100, ""});
  const Command history =
      AddCommand(app, context, "history", "The leases that have ended, newest first",
                 "  semctl history team/db --rows 20",
                 [&context, asked, asked_rows] { return History(context, *asked, *asked_rows); });
  history.AddName(asked->mutable_semaphore());
  AddPaging(history, asked_rows.get());
}

}  // namespace semaphore::semctl
