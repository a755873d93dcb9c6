// semctl create, resize, configure, drain, pause, resume, revoke, destroy, prune.
#include "client/semctl/admin.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/semaphore/unary_caller.h"
#include "client/semctl/duration.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/lease_argument.h"
#include "client/semctl/output.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;
using Request = v1::AdministerRequest;
using Response = v1::AdministerResponse;

constexpr milliseconds kCallTimeout(30'000);

template <typename Result>
std::string OthersAsked(const Result& result) {
  return result.others_asked() ? " here; other daemons received it, too" : "";
}

// What an act has to say: a sentence of text; the semaphore follows.
struct Told {
  std::string sentence;
  Json json = Json::object();  // The result's fields, but for the semaphore.
  const v1::SemaphoreInfo* semaphore = nullptr;
  const google::protobuf::RepeatedPtrField<v1::LeaseInfo>* leases = nullptr;
  bool done = true;  // False: the answer to what was requested is no.
};
using Teller = std::function<Told(const Response&)>;

template <typename Result>
Told Tell(const Result& result, std::string sentence) {
  Told told;
  told.sentence = std::move(sentence);
  if (result.has_semaphore()) told.semaphore = &result.semaphore();
  return told;
}

// Does the act and prints what became of the semaphore. kNo if it is not `done`.
int Act(const Context& context, const Request& request, const Teller& tell,
        milliseconds wait = milliseconds(0)) {
  const absl::StatusOr<Response> response = Administer(context, request, wait);
  if (!response.ok()) return context.Fail(response.status());
  Told told = tell(*response);
  const int code = !told.done ? kNo : kDone;
  if (context.json()) {
    if (told.semaphore != nullptr) told.json["semaphore"] = ToJson(*told.semaphore);
    if (told.leases != nullptr) {
      told.json["leases"] = Json::array();
      for (const v1::LeaseInfo& lease : *told.leases) told.json["leases"].push_back(ToJson(lease));
    }
    PrintJson(told.json);
    return code;
  }
  PrintLine(absl::StrFormat("%s: %s", request.semaphore(), told.sentence));
  if (told.semaphore != nullptr)
    PrintLine(absl::StrFormat("%s: %s", request.semaphore(), Summary(*told.semaphore)));
  if (told.leases != nullptr) {
    for (const v1::LeaseInfo& lease : *told.leases) {
      PrintLine(absl::StrFormat("  held by %s since %s", lease.lease().holder(),
                                FormatTime(lease.granted_at())));
    }
  }
  return code;
}

// A subcommand for one act: NAME and --revision are added.
Command AddAct(Command app, Context& context, const std::string& name,
               const std::string& description, const std::string& examples,
               const std::shared_ptr<Request>& request, std::function<int()> action) {
  static_cast<void>(context);
  const Command command = AddCommand(app, context, name, description, examples, std::move(action));
  command.AddName(request->mutable_semaphore());
  command.AddSetter<std::uint64_t>(
      "--revision", [request](std::uint64_t value) { request->set_expected_revision(value); },
      "Only if the semaphore stands at this revision");
  return command;
}

struct SettingsArguments {
  bool backfill = false;
  milliseconds longest_hold{0};
  milliseconds recall_grace{0};
  bool no_recall_grace = false;
  std::uint32_t permits_per_holder = 0;
  std::uint32_t waiters_max = 0;

  v1::SemaphoreSettings ToSettings() const {
    v1::SemaphoreSettings settings;
    settings.set_backfill(backfill);
    settings.set_longest_hold_ms(static_cast<std::uint64_t>(longest_hold.count()));
    if (no_recall_grace || recall_grace.count() > 0)
      settings.set_recall_grace_ms(no_recall_grace ? 0 : Ms(recall_grace));
    settings.set_permits_per_holder(permits_per_holder);
    settings.set_waiters_max(waiters_max);
    return settings;
  }
};

void AddSettings(Command command, SettingsArguments* settings) {
  command.AddFlag("--backfill", &settings->backfill,
                  "A waiter that fits may overtake a larger one");
  command.AddDuration("--longest-hold", &settings->longest_hold,
                      "A lease that is held for longer is recalled [no bound]",
                      std::chrono::hours(365 * 24));
  command.AddDuration("--recall-grace", &settings->recall_grace,
                      "Time between a recall and the revocation [30s]");
  command.AddFlag("--no-recall-grace", &settings->no_recall_grace, "Revoke at once");
  command.Add("--permits-per-holder", &settings->permits_per_holder,
              "What one holder may have at once [no bound]");
  command.Add("--waiters-max", &settings->waiters_max,
              "Waiters that may stand in the queue [the daemon's bound]");
}

void AddCreate(Command app, Context& context) {
  auto request = std::make_shared<Request>();
  auto limit = std::make_shared<std::uint32_t>(0);
  auto settings = std::make_shared<SettingsArguments>();
  const Command create =
      AddAct(app, context, "create", "Make a semaphore",
             "  semctl create team/db --limit 4 --longest-hold 1h", request,
             [&context, request, limit, settings] {
               request->mutable_create()->set_limit(*limit);
               *request->mutable_create()->mutable_settings() = settings->ToSettings();
               return Act(context, *request, [](const Response& response) {
                 const bool created = response.create().created();
                 Told told = Tell(response.create(),
                                  created ? "created" : "exists already, and is the same");
                 told.json["created"] = created;
                 return told;
               });
             });
  create.Add("--limit", limit.get(), "How many permits there are").Required();
  AddSettings(create, settings.get());
}

void AddConfigure(Command app, Context& context) {
  auto request = std::make_shared<Request>();
  auto settings = std::make_shared<SettingsArguments>();
  const Command configure =
      AddAct(app, context, "configure",
             "Replace a semaphore's settings; what is not given is as by default",
             "  semctl configure team/db --permits-per-holder 1 --recall-grace 10s", request,
             [&context, request, settings] {
               *request->mutable_configure()->mutable_settings() = settings->ToSettings();
               return Act(context, *request, [](const Response& response) {
                 return Tell(response.configure(), "configured");
               });
             });
  AddSettings(configure, settings.get());
}

// `grace`: negative if none is given, and the semaphore's own is meant.
std::vector<Option> AddGraces(Command command, milliseconds* grace, bool* now) {
  const Option graces = command.AddDuration(
      "--grace", grace, "Time that holders have to stop, once they know [the semaphore's]");
  const Option at_once = command.AddFlag(
      "--now", now,
      "End the leases at once. DANGER: a holder that is cut off works on, for up to its TTL");
  at_once.Excludes(graces);
  return {graces, at_once};
}

// Of an act whose 0 is the semaphore's own grace.
std::uint32_t GraceMs(milliseconds grace) {
  if (grace < milliseconds(0)) return 0;
  return Ms(std::max(grace, milliseconds(1)));
}

void AddResize(Command app, Context& context) {
  auto request = std::make_shared<Request>();
  auto grace = std::make_shared<milliseconds>(-1);
  auto now = std::make_shared<bool>(false);
  auto policy = std::make_shared<v1::ShrinkPolicy>(v1::SHRINK_POLICY_WAIT);
  const Command command =
      AddAct(app, context, "resize", "Change the limit",
             R"(  semctl resize team/db --limit 8
  semctl resize team/db --add 2
  semctl resize team/db --remove 2 --policy recall --grace 30s)",
             request, [&context, request, grace, now, policy] {
               request->mutable_resize()->set_policy(*policy);
               request->mutable_resize()->set_now(*now);
               if (grace->count() >= 0) request->mutable_resize()->set_grace_ms(Ms(*grace));
               return Act(context, *request, [](const Response& response) {
                 const v1::ResizeSemaphoreResult& result = response.resize();
                 std::string recalled;
                 if (result.recalled() > 0)
                   recalled = absl::StrCat(", leases recalled: ", result.recalled());
                 Told told = Tell(result, "resized" + recalled + OthersAsked(result));
                 told.json["recalled"] = result.recalled();
                 told.json["others_asked"] = result.others_asked();
                 return told;
               });
             });
  const Command change = command.AddExactlyOneOf("change", "The new limit");
  v1::ResizeSemaphore* const resize = request->mutable_resize();
  change.AddSetter<std::uint32_t>(
      "--limit", [resize](std::uint32_t value) { resize->set_limit(value); }, "This limit");
  change.AddSetter<std::uint32_t>(
      "--add", [resize](std::uint32_t value) { resize->set_add(value); }, "So many more");
  change.AddSetter<std::uint32_t>(
      "--remove", [resize](std::uint32_t value) { resize->set_remove(value); }, "So many less");
  const std::map<std::string, v1::ShrinkPolicy> policies = {{"wait", v1::SHRINK_POLICY_WAIT},
                                                            {"recall", v1::SHRINK_POLICY_RECALL},
                                                            {"refuse", v1::SHRINK_POLICY_REFUSE}};
  command
      .AddSetter<std::string>(
          "--policy", [policy, policies](const std::string& word) { *policy = policies.at(word); },
          "If more are held: wait for them, recall them, or refuse to shrink [wait]")
      .TakesWords({"wait", "recall", "refuse"});
  AddGraces(command, grace.get(), now.get());
}

void AddPauses(Command app, Context& context) {
  auto paused = std::make_shared<Request>();
  AddAct(app, context, "pause",
         "Grant nothing until resume; who holds goes on, who waits keeps the place",
         "  semctl pause team/db", paused, [&context, paused] {
           paused->mutable_pause();
           return Act(context, *paused,
                      [](const Response& response) { return Tell(response.pause(), "paused"); });
         });
  auto resumed = std::make_shared<Request>();
  AddAct(app, context, "resume", "Grant again after pause or drain", "  semctl resume team/db",
         resumed, [&context, resumed] {
           resumed->mutable_resume();
           return Act(context, *resumed,
                      [](const Response& response) { return Tell(response.resume(), "resumed"); });
         });
  auto drained = std::make_shared<Request>();
  auto held_max = std::make_shared<std::uint32_t>(0);
  auto wait = std::make_shared<milliseconds>(0);
  const Command drain =
      AddAct(app, context, "drain",
             "Pause, and wait until at most N permits are held; says who still holds",
             "  semctl drain team/db --wait 10m && maintenance; semctl resume team/db", drained,
             [&context, drained, held_max, wait] {
               drained->mutable_drain()->set_held_max(*held_max);
               drained->mutable_drain()->set_wait_ms(Ms(*wait));
               return Act(
                   context, *drained,
                   [](const Response& response) {
                     const v1::DrainSemaphoreResult& result = response.drain();
                     Told told = Tell(result, result.drained() ? "drained" : "not drained yet");
                     told.done = result.drained();
                     told.leases = &result.leases();
                     told.json["drained"] = result.drained();
                     told.json["next_page_token"] = result.next_page_token();
                     return told;
                   },
                   *wait);
             });
  drain.Add("--held-max", held_max.get(), "Permits that may still be held [0]");
  drain.AddDuration("--wait", wait.get(), "How long to wait for it [0]");
}

void AddRevoke(Command app, Context& context) {
  auto request = std::make_shared<Request>();
  auto grace = std::make_shared<milliseconds>(-1);
  auto now = std::make_shared<bool>(false);
  auto all = std::make_shared<bool>(false);
  auto lease = std::make_shared<LeaseArgument>();
  const Command revoke = AddAct(
      app, context, "revoke",
      "Take leases away from their holders: they hear of it, and have a grace to stop",
      R"(  semctl revoke team/db --holder build-7:4711
  semctl revoke team/db --lease "$lease"
  semctl revoke team/db --all --grace 30s
  semctl revoke team/db --all --now)",
      request, [&context, request, grace, now, all, lease] {
        if (lease->given()) {
          absl::Status read = lease->Read(request->mutable_revoke()->mutable_lease_id());
          if (!read.ok()) return context.Misused(std::string(read.message()));
        }
        request->mutable_revoke()->set_all(*all);
        request->mutable_revoke()->set_grace_ms(GraceMs(*grace));
        request->mutable_revoke()->set_now(*now);
        return Act(context, *request, [all](const Response& response) {
          const v1::RevokeLeasesResult& result = response.revoke();
          Told told = Tell(result, absl::StrCat("leases recalled, or ended: ", result.revoked(),
                                                OthersAsked(result)));
          // A holder, or a lease, that was named wrongly. Other daemons may have it.
          told.done = *all || result.revoked() > 0 || result.others_asked();
          told.json["revoked"] = result.revoked();
          told.json["others_asked"] = result.others_asked();
          return told;
        });
      });
  v1::RevokeLeases* const act = request->mutable_revoke();
  const Command which = revoke.AddExactlyOneOf("which", "Exactly one of");
  lease->AddTo(which, "--lease");
  which.Add("--holder", act->mutable_holder(), "All leases of this holder");
  which.AddFlag("--all", all.get(), "All leases");
  AddGraces(revoke, grace.get(), now.get());
}

void AddDestroy(Command app, Context& context) {
  auto request = std::make_shared<Request>();
  auto wait = std::make_shared<milliseconds>(-1);
  auto force = std::make_shared<bool>(false);
  auto grace = std::make_shared<milliseconds>(-1);
  auto now = std::make_shared<bool>(false);
  const Command destroy =
      AddAct(app, context, "destroy", "Remove a semaphore; refused while it has holders or waiters",
             R"(  semctl destroy team/db
  semctl destroy team/db --wait 5m
  semctl destroy team/db --force --wait 1m)",
             request, [&context, request, wait, force, grace, now] {
               v1::DestroySemaphore* const act = request->mutable_destroy();
               const bool waits = *wait >= milliseconds(0);
               act->set_policy(*force  ? v1::DESTROY_POLICY_FORCE
                               : waits ? v1::DESTROY_POLICY_WAIT
                                       : v1::DESTROY_POLICY_REFUSE);
               if (waits) act->set_wait_ms(Ms(*wait));
               act->set_grace_ms(GraceMs(*grace));
               act->set_now(*now);
               return Act(
                   context, *request,
                   [waits](const Response& response) {
                     const v1::DestroySemaphoreResult& result = response.destroy();
                     Told told = Tell(
                         result, result.gone() ? "destroyed" : "goes when the last holder leaves");
                     told.done = !waits || result.gone();
                     told.json["gone"] = result.gone();
                     told.json["changed"] = result.changed();
                     return told;
                   },
                   waits ? *wait : milliseconds(0));
             });
  destroy.AddDuration("--wait", wait.get(), "Let the holders finish, and wait this long for it");
  const Option forces =
      destroy.AddFlag("--force", force.get(), "Recall all leases, and delete all tickets");
  for (const Option option : AddGraces(destroy, grace.get(), now.get())) option.Needs(forces);
}

}  // namespace

absl::StatusOr<Response> Administer(const Context& context, Request request, milliseconds wait) {
  UnaryCaller caller = context.MakeCaller();
  return Administer(&caller, std::move(request), wait);
}

absl::StatusOr<Response> Administer(UnaryCaller* caller, Request request, milliseconds wait) {
  *request.mutable_request_id() = NewRequestId();
  Response response;
  const absl::Status status = caller->Call(
      [&](v1::SemaphoreService::Stub& stub, grpc::ClientContext* call) {
        return stub.Administer(call, request, &response);
      },
      wait < milliseconds(0) ? wait : wait + kCallTimeout);
  if (!status.ok()) return status;
  return response;
}

void AddPaging(Command command, Paging* paging) {
  command.Add("--rows", &paging->rows,
              "At most so many rows; 0: all [" + std::to_string(paging->rows) + "]");
  command.Add("--page-token", &paging->token, "Go on where an earlier listing has ended");
}

absl::StatusOr<std::string> ReadPages(
    const Context& context, Request request, const Paging& paging,
    const std::function<void(std::uint32_t, const std::string&, Request*)>& set,
    const std::function<Page(const Response&)>& take) {
  constexpr std::uint32_t kPageRows = 1'000;
  UnaryCaller caller = context.MakeCaller();
  std::string token = paging.token;
  std::uint32_t rows = 0;
  do {
    const std::uint32_t left = paging.rows == 0 ? kPageRows : paging.rows - rows;
    set(std::min(left, kPageRows), token, &request);
    const absl::StatusOr<Response> response = Administer(&caller, request);
    if (!response.ok()) return response.status();
    Page page = take(*response);
    rows += page.rows;
    token = std::move(page.next);
  } while (!token.empty() && (paging.rows == 0 || rows < paging.rows));
  return token;
}

void SayMore(const Context& context, const std::string& next) {
  if (!next.empty()) context.Say("more", "there is more: --page-token " + next);
}

void AddAdminCommands(Command app, Context& context) {
  AddCreate(app, context);
  AddResize(app, context);
  AddConfigure(app, context);
  AddPauses(app, context);
  AddRevoke(app, context);
  AddDestroy(app, context);
  auto request = std::make_shared<Request>();
  AddAct(app, context, "prune", "Mend what an engine may leave behind", "  semctl prune team/db",
         request, [&context, request] {
           request->mutable_prune();
           return Act(context, *request, [](const Response& response) {
             Told told = Tell(response.prune(),
                              absl::StrCat("entries cleaned away: ", response.prune().pruned()));
             told.json["pruned"] = response.prune().pruned();
             return told;
           });
         });
}

}  // namespace semaphore::semctl
