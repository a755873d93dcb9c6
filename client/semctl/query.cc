// semctl describe, list, history.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/semctl/admin.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/output.h"

namespace semaphore::semctl {
namespace {

using Request = v1::AdministerRequest;
using Response = v1::AdministerResponse;

int Describe(const Context& context, const Request& request) {
  const absl::StatusOr<Response> response = Administer(context, request);
  if (!response.ok()) return context.Fail(response.status());
  if (context.json()) {
    PrintJson(ToJson(response->semaphore()));
  } else {
    PrintSemaphore(response->semaphore());
  }
  return kDone;
}

void PrintList(const Response& response) {
  std::vector<std::vector<std::string>> rows = {
      {"SEMAPHORE", "LIMIT", "HELD", "WAITING", "TICKETS", "DEAD", ""}};
  for (const v1::SemaphoreInfo& semaphore : response.semaphores()) {
    const v1::TicketCounts& tickets = semaphore.tickets();
    rows.push_back({semaphore.semaphore(), absl::StrCat(semaphore.limit()),
                    absl::StrCat(semaphore.held()), absl::StrCat(semaphore.waiting()),
                    absl::StrCat(tickets.queued() + tickets.delayed() + tickets.assigned()),
                    absl::StrCat(tickets.dead()),
                    semaphore.paused() ? "paused" : (semaphore.destroying() ? "destroying" : "")});
  }
  PrintTable(rows);
}

int List(const Context& context, const Request& request, bool names) {
  const absl::StatusOr<Response> response = Administer(context, request);
  if (!response.ok()) return context.Fail(response.status());
  if (names) {
    for (const v1::SemaphoreInfo& semaphore : response->semaphores()) {
      std::printf("%s\n", semaphore.semaphore().c_str());
    }
    return kDone;
  }
  if (context.json()) {
    Json json = {{"semaphores", Json::array()}, {"more", response->more()}};
    for (const v1::SemaphoreInfo& semaphore : response->semaphores()) {
      json["semaphores"].push_back(ToJson(semaphore));
    }
    PrintJson(json);
    return kDone;
  }
  PrintList(*response);
  if (response->more() && response->semaphores_size() > 0) {
    std::printf("more: --after %s\n",
                response->semaphores(response->semaphores_size() - 1).semaphore().c_str());
  }
  return kDone;
}

int History(const Context& context, const Request& request) {
  const absl::StatusOr<Response> response = Administer(context, request);
  if (!response.ok()) return context.Fail(response.status());
  if (context.json()) {
    Json json = {{"history", Json::array()}, {"more", response->more()}};
    for (const v1::HistoryRow& row : response->history()) json["history"].push_back(ToJson(row));
    PrintJson(json);
    return kDone;
  }
  std::vector<std::vector<std::string>> rows = {
      {"NUMBER", "HOLDER", "SLOTS", "TOKEN", "GRANTED", "ENDED", "CAUSE"}};
  for (const v1::HistoryRow& row : response->history()) {
    rows.push_back({absl::StrCat(row.number()), row.holder(), absl::StrJoin(row.slots(), ","),
                    absl::StrCat(row.token()), FormatTime(row.granted_at_unix_ms()),
                    FormatTime(row.ended_at_unix_ms()), Text(row.cause())});
  }
  PrintTable(rows);
  if (response->more() && response->history_size() > 0) {
    std::printf("more: --before %s\n",
                absl::StrCat(response->history(response->history_size() - 1).number()).c_str());
  }
  return kDone;
}

void AddRows(CLI::App* command, const std::function<void(const std::uint32_t&)>& set) {
  command->add_option_function<std::uint32_t>("--rows", set, "At most so many; up to 10000 [100]");
}

}  // namespace

void AddQueryCommands(CLI::App& app, Context& context) {
  auto described = std::make_shared<Request>();
  CLI::App* const describe = AddCommand(
      app, context, "describe", "A semaphore, who holds and who waits",
      "  semctl describe team/db\n  semctl describe team/db -o json | jq '.leases[].holder'",
      [&context, described] {
        described->mutable_describe();
        return Describe(context, *described);
      });
  describe->add_option("NAME", *described->mutable_semaphore(), "The semaphore")
      ->type_name(kTakesSemaphore)
      ->required();
  AddRows(describe,
          [described](std::uint32_t rows) { described->mutable_describe()->set_rows_max(rows); });

  auto listed = std::make_shared<Request>();
  auto names = std::make_shared<bool>(false);
  CLI::App* const list =
      AddCommand(app, context, "list", "The semaphores",
                 "  semctl list\n  semctl list team/ --names", [&context, listed, names] {
                   listed->mutable_list();
                   return List(context, *listed, *names);
                 });
  list->add_option("PREFIX", *listed->mutable_list()->mutable_prefix(),
                   "Names that begin with this")
      ->type_name(kTakesPrefix);
  list->add_option("--after", *listed->mutable_list()->mutable_after(), "Continue after this name")
      ->type_name(kTakesSemaphore);
  list->add_flag("--names", *names, "Print the names only");
  AddRows(list, [listed](std::uint32_t rows) { listed->mutable_list()->set_rows_max(rows); });

  auto asked = std::make_shared<Request>();
  CLI::App* const history =
      AddCommand(app, context, "history", "The leases that have ended, newest first",
                 "  semctl history team/db --rows 20", [&context, asked] {
                   asked->mutable_history();
                   return History(context, *asked);
                 });
  history->add_option("NAME", *asked->mutable_semaphore(), "The semaphore")
      ->type_name(kTakesSemaphore)
      ->required();
  history->add_option_function<std::uint64_t>(
      "--before", [asked](std::uint64_t row) { asked->mutable_history()->set_before(row); },
      "Continue below this row");
  AddRows(history, [asked](std::uint32_t rows) { asked->mutable_history()->set_rows_max(rows); });
}

}  // namespace semaphore::semctl
