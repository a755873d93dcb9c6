// semctl enqueue, tickets, dead-letters.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/semaphore/unary_caller.h"
#include "client/semctl/admin.h"
#include "client/semctl/context.h"
#include "client/semctl/duration.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/output.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;
using Request = v1::AdministerRequest;
using Response = v1::AdministerResponse;

constexpr milliseconds kCallTimeout(30'000);
// The most that payload_bytes_max of a daemon can be.
constexpr std::size_t kPayloadBytesMax = 1 << 20;

// ---- enqueue ----

struct EnqueueArguments {
  v1::EnqueueRequest request;
  std::string payload;  // A file, or "-".
  bool adopt = false;
  bool quiet = false;
  milliseconds delay{0};
  milliseconds back_off{0};
  milliseconds back_off_max{0};
};

absl::StatusOr<std::string> ReadPayload(const std::string& file) {
  if (file.empty()) return std::string();
  std::ifstream named;
  if (file != "-") named.open(file, std::ios::binary);
  std::istream& stream = file == "-" ? std::cin : named;
  std::string payload(kPayloadBytesMax + 1, '\0');
  stream.read(payload.data(),
              static_cast<std::streamsize>(payload.size()));  // Of a folder it sets bad().
  payload.resize(static_cast<std::size_t>(stream.gcount()));
  if (stream.bad() || (file != "-" && !named.is_open()))
    return absl::InvalidArgumentError(absl::StrCat("--payload: cannot read ", file));
  if (payload.size() > kPayloadBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("--payload: ", file, " is over 1 MiB"));
  return payload;
}

int Enqueue(const Context& context, EnqueueArguments& arguments) {
  absl::StatusOr<std::string> payload = ReadPayload(arguments.payload);
  if (!payload.ok()) return context.Fail(payload.status());
  v1::EnqueueRequest& request = arguments.request;
  *request.mutable_request_id() = NewRequestId();
  *request.mutable_payload() = *std::move(payload);
  request.set_delay_ms(Ms(arguments.delay));
  request.mutable_back_off()->set_initial_ms(Ms(arguments.back_off));
  request.mutable_back_off()->set_max_ms(Ms(arguments.back_off_max));
  if (arguments.adopt) request.set_limit_mismatch(v1::LIMIT_MISMATCH_ADOPT);
  v1::EnqueueResponse response;
  UnaryCaller caller = context.MakeCaller();
  const absl::Status status =
      caller.Call([&](v1::SemaphoreService::Stub& stub,
                      grpc::ClientContext* call) { return stub.Enqueue(call, request, &response); },
                  kCallTimeout);
  if (!status.ok()) return context.Fail(status);
  if (context.json()) {
    PrintJson({{"ticket_id", response.ticket_id()},
               {"semaphore", request.semaphore()},
               {"position", response.position()}});
  } else if (arguments.quiet) {
    PrintLine(response.ticket_id());
  } else {
    PrintLine(absl::StrCat("ticket     ", response.ticket_id()));
    PrintLine(absl::StrCat("semaphore  ", request.semaphore()));
    if (response.position() > 0) PrintLine(absl::StrCat("position   ", response.position()));
  }
  return kDone;
}

void AddEnqueue(Command app, Context& context) {
  auto arguments = std::make_shared<EnqueueArguments>();
  v1::EnqueueRequest* const request = &arguments->request;
  const Command enqueue = AddCommand(
      app, context, "enqueue", "Queue a ticket: work for a worker of this semaphore",
      R"(  semctl enqueue deploy/prod --limit 1 --payload request.json --content-type application/json
  git rev-parse HEAD | semctl enqueue build --limit 4 --payload - --priority 10
  ticket=$(semctl enqueue reports --limit 1 --delay 1h --max-attempts 3 -q)

It prints the ticket's id, and ends as soon as the ticket is kept; semctl work carries it out.)",
      [&context, arguments] { return Enqueue(context, *arguments); });
  enqueue.AddName(request->mutable_semaphore());
  enqueue
      .Add("--payload", &arguments->payload,
           "File with what the worker gets; - for standard input [none]")
      .Takes(kTakesFile);
  enqueue.Add("--content-type", request->mutable_content_type(),
              "For the worker, such as application/json");
  enqueue
      .AddSetter<std::uint32_t>(
          "--limit", [request](std::uint32_t limit) { request->set_limit(limit); },
          "Create the semaphore with this limit if it does not exist")
      .NotZero();
  enqueue.AddFlag("--adopt", &arguments->adopt, "Take another stored limit as it is");
  enqueue.AddSetter<std::int32_t>(
      "--priority", [request](std::int32_t priority) { request->set_priority(priority); },
      "-1000 to 1000; higher is served first [0]");
  enqueue.AddDuration("--delay", &arguments->delay, "Not before this time has passed [0s]");
  enqueue
      .AddSetter<std::int32_t>(
          "--max-attempts",
          [request](std::int32_t most) {
            request->set_attempts_unbounded(most == 0);
            request->set_max_attempts(most);
          },
          "A dead letter after so many attempts; 0: never [the daemon's default]")
      .TakesBetween(0, 1000);
  enqueue.AddDuration("--back-off", &arguments->back_off,
                      "Time before the second attempt; doubled for each further one [1s]");
  enqueue.AddDuration("--back-off-max", &arguments->back_off_max,
                      "The longest time between two attempts [5m]");
  enqueue.Add("--traceparent", request->mutable_traceparent(),
              "W3C trace context, handed to the worker");
  enqueue.AddFlag("-q,--quiet", &arguments->quiet,
                  "Print the ticket's id only; nothing changes with -o json");
}

// ---- tickets ----

std::string Word(v1::TicketState state) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::TicketState_Name(state), "TICKET_STATE_"));
}

Json ToJson(const v1::TicketInfo& ticket) {
  Json json = {{"ticket_id", ticket.ticket_id()},
               {"number", ticket.number()},
               {"state", absl::AsciiStrToUpper(Word(ticket.state()))},
               {"priority", ticket.priority()},
               {"attempt", ticket.attempt()},
               {"max_attempts", ticket.max_attempts()},
               {"attempts_unbounded", ticket.attempts_unbounded()},
               {"content_type", ticket.content_type()},
               {"payload_bytes", ticket.payload_bytes()},
               {"enqueued_at", TimeText(ticket.enqueued_at())},
               {"position", ticket.position()},
               {"holder", ticket.holder()},
               {"delay_ms", ticket.delay_ms()},
               {"traceparent", ticket.traceparent()},
               {"reasons", Json::array()}};
  for (const v1::TicketReason& reason : ticket.reasons()) {
    json["reasons"].push_back(
        {{"attempt", reason.attempt()}, {"text", reason.text()}, {"at", TimeText(reason.at())}});
  }
  return json;
}

std::string Attempts(const v1::TicketInfo& ticket) {
  if (ticket.attempts_unbounded()) return absl::StrCat(ticket.attempt());
  return absl::StrCat(ticket.attempt(), " of ", ticket.max_attempts());
}

// Who has it, or why it is not done yet.
std::string Remark(const v1::TicketInfo& ticket) {
  if (!ticket.holder().empty()) return ticket.holder();
  if (ticket.reasons_size() == 0) return "";
  return ticket.reasons(ticket.reasons_size() - 1).text();
}

int ListTickets(const Context& context, const Request& request, const Paging& paging) {
  std::vector<v1::TicketInfo> tickets;
  const auto set = [](std::uint32_t size, const std::string& token, Request* page) {
    page->mutable_list_tickets()->set_page_size(size);
    page->mutable_list_tickets()->set_page_token(token);
  };
  const auto take = [&](const Response& page) {
    const auto& rows = page.list_tickets().tickets();
    tickets.insert(tickets.end(), rows.begin(), rows.end());
    return Page{static_cast<std::uint32_t>(rows.size()), page.list_tickets().next_page_token()};
  };
  const absl::StatusOr<std::string> next = ReadPages(context, request, paging, set, take);
  if (!next.ok()) return context.Fail(next.status());
  if (context.json()) {
    Json json = {{"tickets", Json::array()}, {"next_page_token", *next}};
    for (const v1::TicketInfo& ticket : tickets) json["tickets"].push_back(ToJson(ticket));
    PrintJson(json);
    return kDone;
  }
  std::vector<std::vector<std::string>> rows = {
      {"NUMBER", "TICKET", "STATE", "POSITION", "PRIORITY", "ATTEMPT", "ENQUEUED", ""}};
  for (const v1::TicketInfo& ticket : tickets) {
    rows.push_back({absl::StrCat(ticket.number()), ticket.ticket_id(), Word(ticket.state()),
                    ticket.position() > 0 ? absl::StrCat(ticket.position()) : "-",
                    absl::StrCat(ticket.priority()), Attempts(ticket),
                    FormatTime(ticket.enqueued_at()), Remark(ticket)});
  }
  PrintTable(rows);
  SayMore(context, *next);
  return kDone;
}

void PrintTicket(const v1::TicketInfo& ticket) {
  PrintLine(absl::StrCat("ticket     ", ticket.ticket_id()));
  PrintLine(absl::StrCat("state      ", Word(ticket.state())));
  if (ticket.position() > 0) PrintLine(absl::StrCat("position   ", ticket.position()));
  if (!ticket.holder().empty()) PrintLine(absl::StrCat("worker     ", ticket.holder()));
  if (ticket.delay_ms() > 0)
    PrintLine(absl::StrCat("delay      ", FormatDuration(milliseconds(ticket.delay_ms()))));
  PrintLine(absl::StrFormat("priority   %d", ticket.priority()));
  PrintLine(absl::StrCat("attempt    ", Attempts(ticket)));
  PrintLine(absl::StrCat("enqueued   ", FormatTime(ticket.enqueued_at())));
  PrintLine(absl::StrFormat("payload    %u bytes%s%s", ticket.payload_bytes(),
                            ticket.content_type().empty() ? "" : " of ", ticket.content_type()));
  for (const v1::TicketReason& reason : ticket.reasons()) {
    PrintLine(absl::StrFormat("  attempt %u, %s: %s", reason.attempt(), FormatTime(reason.at()),
                              reason.text()));
  }
}

int ShowTicket(const Context& context, const Request& request, bool payload_only) {
  const absl::StatusOr<Response> response = Administer(context, request);
  if (!response.ok()) return context.Fail(response.status());
  const v1::TicketInfo& ticket = response->show_ticket().ticket();
  const std::string& payload = response->show_ticket().payload();
  if (payload_only) {
    PrintPayload(payload);
    return kDone;
  }
  if (!context.json()) {
    PrintTicket(ticket);
    return kDone;
  }
  Json json = ToJson(ticket);
  // As any bytes can be.
  json["payload_base64"] = absl::Base64Escape(payload);
  PrintJson(json);
  return kDone;
}

// How many tickets the act concerned.
std::uint32_t CountOf(const Response& response) {
  if (response.has_requeue_tickets()) return response.requeue_tickets().requeued();
  if (response.has_purge_tickets()) return response.purge_tickets().purged();
  return 1;
}

int Act(const Context& context, const Request& request, const std::string& done) {
  const absl::StatusOr<Response> response = Administer(context, request);
  if (!response.ok()) return context.Fail(response.status());
  const std::uint32_t count = CountOf(*response);
  if (context.json()) {
    PrintJson({{done, count}});
  } else {
    PrintLine(absl::StrFormat("%s: %u %s", request.semaphore(), count, done));
  }
  return kDone;
}

struct TicketArguments {
  Request request;
  Paging paging{100, ""};
  std::string act;
  std::string ticket;
  std::int32_t priority = 0;
  bool priority_given = false;
  bool force = false;
  bool payload = false;
  bool all = false;
  std::vector<std::string> states;
};

int Tickets(const Context& context, TicketArguments& arguments) {
  Request& request = arguments.request;
  const std::string& act = arguments.act;
  if (act.empty()) {
    for (const std::string& word : arguments.states) {
      v1::TicketState state = v1::TICKET_STATE_UNSPECIFIED;
      v1::TicketState_Parse("TICKET_STATE_" + absl::AsciiStrToUpper(word), &state);
      request.mutable_list_tickets()->add_states(state);
    }
    request.mutable_list_tickets();
    return ListTickets(context, request, arguments.paging);
  }
  if (arguments.ticket.empty()) return context.Misused("tickets NAME " + act + " needs a TICKET");
  if (act == "show") {
    request.mutable_show_ticket()->set_ticket_id(arguments.ticket);
    return ShowTicket(context, request, arguments.payload);
  }
  *request.mutable_request_id() = NewRequestId();
  if (act == "cancel") {
    request.mutable_cancel_ticket()->set_ticket_id(arguments.ticket);
    request.mutable_cancel_ticket()->set_force(arguments.force);
    return Act(context, request, "cancelled");
  }
  if (!arguments.priority_given)
    return context.Misused("tickets NAME prioritise TICKET needs a PRIORITY");
  request.mutable_prioritise_ticket()->set_ticket_id(arguments.ticket);
  request.mutable_prioritise_ticket()->set_priority(arguments.priority);
  return Act(context, request, "moved");
}

int DeadLetters(const Context& context, TicketArguments& arguments) {
  Request& request = arguments.request;
  if (arguments.act.empty()) {
    request.mutable_list_tickets()->add_states(v1::TICKET_STATE_DEAD);
    return ListTickets(context, request, arguments.paging);
  }
  if (arguments.ticket.empty() != arguments.all)
    return context.Misused("dead-letters NAME " + arguments.act + " needs a TICKET, or --all");
  *request.mutable_request_id() = NewRequestId();
  if (arguments.act == "requeue") {
    request.mutable_requeue_tickets()->set_ticket_id(arguments.ticket);
    request.mutable_requeue_tickets()->set_all(arguments.all);
    return Act(context, request, "requeued");
  }
  request.mutable_purge_tickets()->set_ticket_id(arguments.ticket);
  request.mutable_purge_tickets()->set_all(arguments.all);
  return Act(context, request, "purged");
}

void AddListing(Command command, const std::shared_ptr<TicketArguments>& arguments) {
  command.AddName(arguments->request.mutable_semaphore());
  AddPaging(command, &arguments->paging);
}

void AddTickets(Command app, Context& context) {
  auto arguments = std::make_shared<TicketArguments>();
  const Command tickets =
      AddCommand(app, context, "tickets", "The tickets of a semaphore, or one of them",
                 R"(  semctl tickets deploy/prod
  semctl tickets deploy/prod --state delayed --state assigned
  semctl tickets deploy/prod show "$ticket"
  semctl tickets deploy/prod show "$ticket" --payload > request.json
  semctl tickets deploy/prod cancel "$ticket"
  semctl tickets deploy/prod prioritise "$ticket" 100)",
                 [&context, arguments] { return Tickets(context, *arguments); });
  AddListing(tickets, arguments);
  tickets.Add("ACT", &arguments->act, "What to do [list them]")
      .TakesWords({"show", "cancel", "prioritise"});
  tickets.Add("TICKET", &arguments->ticket, "For an act: the ticket's id");
  tickets.AddSetter<std::int32_t>(
      "PRIORITY",
      [arguments](std::int32_t priority) {
        arguments->priority = priority;
        arguments->priority_given = true;
      },
      "For prioritise: -1000 to 1000");
  tickets
      .Add("--state", &arguments->states,
           "Only those in this state; may be given several times "
           "[all but dead]")
      .TakesWords({"queued", "delayed", "assigned", "dead"})
      .Repeats();
  tickets.AddFlag("--payload", &arguments->payload, "For show: print the payload, nothing else");
  tickets.AddFlag("--force", &arguments->force,
                  "For cancel: also if a worker has it, whose lease is then revoked");
}

void AddDeadLetters(Command app, Context& context) {
  auto arguments = std::make_shared<TicketArguments>();
  const Command dead = AddCommand(
      app, context, "dead-letters", "Tickets that could not be done: list, requeue or purge them",
      R"(  semctl dead-letters deploy/prod
  semctl dead-letters deploy/prod requeue "$ticket"
  semctl dead-letters deploy/prod requeue --all
  semctl dead-letters deploy/prod purge --all

What is requeued goes back to its old place, with all its attempts. What is purged is gone.)",
      [&context, arguments] { return DeadLetters(context, *arguments); });
  AddListing(dead, arguments);
  dead.Add("ACT", &arguments->act, "What to do [list them]").TakesWords({"requeue", "purge"});
  dead.Add("TICKET", &arguments->ticket, "For an act: the ticket's id");
  dead.AddFlag("--all", &arguments->all, "For an act: all dead letters of the semaphore");
}

}  // namespace

void AddTicketCommands(Command app, Context& context) {
  AddEnqueue(app, context);
  AddTickets(app, context);
  AddDeadLetters(app, context);
}

}  // namespace semaphore::semctl
