// semctl acquire, renew, release, verify: leases that outlive semctl, by the unary calls.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/semaphore/unary_caller.h"
#include "client/semctl/context.h"
#include "client/semctl/duration.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/lease_argument.h"
#include "client/semctl/output.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

using std::chrono::milliseconds;

// Calls that do not wait are answered within this, or the daemon is stuck.
constexpr milliseconds kCallTimeout(30'000);
// Beyond the wait that was asked for.
constexpr milliseconds kWaitSlack(10'000);

struct AcquireArguments {
  v1::AcquireRequest request;
  bool adopt = false;
  bool no_wait = false;
  bool quiet = false;
  milliseconds wait{-1};
  milliseconds ttl{0};
};

// Who holds a lease that outlives us: the process that called us, most often a shell.
std::string CallerName() {
  char host[128] = "unknown";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getppid());
}

void PrintLease(const v1::Lease& lease, const v1::LeaseValidity& validity) {
  PrintLine(absl::StrCat("lease      ", lease.lease_id()));
  PrintLine(absl::StrCat("semaphore  ", lease.semaphore()));
  PrintLine(absl::StrCat("slots      ", SlotsText(lease.slots())));
  PrintLine(absl::StrCat("token      ", lease.token()));
  PrintLine(absl::StrCat("holder     ", lease.holder()));
  PrintLine(absl::StrCat("ttl        ", FormatDuration(milliseconds(lease.ttl_ms()))));
  PrintLine(absl::StrCat("good for   ", FormatDuration(milliseconds(validity.valid_for_ms()))));
}

Json WithValidity(Json json, const v1::LeaseValidity& validity) {
  json["valid_for_ms"] = validity.valid_for_ms();
  return json;
}

int Acquire(const Context& context, AcquireArguments arguments) {
  v1::AcquireRequest& request = arguments.request;
  *request.mutable_request_id() = NewRequestId();
  if (request.holder().empty()) request.set_holder(CallerName());
  request.set_limit_mismatch(arguments.adopt ? v1::LIMIT_MISMATCH_ADOPT : v1::LIMIT_MISMATCH_FAIL);
  request.set_ttl_ms(Ms(arguments.ttl));
  const milliseconds wait = arguments.no_wait ? milliseconds(0) : arguments.wait;
  request.set_wait_forever(wait < milliseconds(0));
  if (wait > milliseconds(0)) request.set_wait_ms(Ms(wait));
  v1::AcquireResponse response;
  const absl::Status status =
      context.MakeCaller(arguments.no_wait)
          .Call([&](v1::SemaphoreService::Stub& stub,
                    grpc::ClientContext* call) { return stub.Acquire(call, request, &response); },
                wait < milliseconds(0) ? wait : wait + kWaitSlack);
  if (!status.ok()) return context.Fail(status);
  if (context.json()) {
    PrintJson(WithValidity(ToJson(response.lease()), response.validity()));
  } else if (arguments.quiet) {
    PrintLine(response.lease().lease_id());
  } else {
    PrintLease(response.lease(), response.validity());
  }
  return kDone;
}

int Renew(const Context& context, const LeaseArgument& lease) {
  v1::RenewRequest request;
  if (absl::Status read = lease.Read(request.mutable_lease_id()); !read.ok())
    return context.Misused(std::string(read.message()));
  v1::RenewResponse response;
  const absl::Status status = context.MakeCaller().Call(
      [&](v1::SemaphoreService::Stub& stub, grpc::ClientContext* call) {
        return stub.Renew(call, request, &response);
      },
      kCallTimeout);
  if (!status.ok()) return context.Fail(status);
  if (context.json()) {
    Json json = WithValidity(ToJson(response.lease()), response.validity());
    if (response.has_recall()) {
      json["recall"] = {{"grace_ms", response.recall().grace_ms()},
                        {"reason", response.recall().reason()}};
    }
    PrintJson(json);
    return kDone;
  }
  PrintLease(response.lease(), response.validity());
  if (response.has_recall()) {
    PrintLine(absl::StrFormat("recalled   within %s: %s",
                              FormatDuration(milliseconds(response.recall().grace_ms())),
                              response.recall().reason()));
  }
  return kDone;
}

int Release(const Context& context, v1::ReleaseRequest request, const LeaseArgument& lease) {
  if (absl::Status read = lease.Read(request.mutable_lease_id()); !read.ok())
    return context.Misused(std::string(read.message()));
  *request.mutable_request_id() = NewRequestId();
  v1::ReleaseResponse response;
  const absl::Status status = context.MakeCaller().Call(
      [&](v1::SemaphoreService::Stub& stub, grpc::ClientContext* call) {
        return stub.Release(call, request, &response);
      },
      kCallTimeout);
  if (!status.ok()) return context.Fail(status);
  if (context.json()) {
    PrintJson({{"released", response.released()},
               {"remaining", response.remaining()},
               {"ended", Word(response.ended())}});
  } else if (response.released() > 0) {
    PrintLine(absl::StrFormat("released %u, %u remain", response.released(), response.remaining()));
  } else {
    PrintLine(absl::StrFormat("nothing released: the lease had ended before (%s)",
                              Text(response.ended())));
  }
  return response.released() > 0 ? kDone : kLost;
}

int Verify(const Context& context, v1::VerifyRequest request, const LeaseArgument& lease) {
  if (request.semaphore().empty()) {
    if (absl::Status read = lease.Read(request.mutable_lease_id()); !read.ok())
      return context.Misused(std::string(read.message()));
  }
  v1::VerifyResponse response;
  const absl::Status status = context.MakeCaller().Call(
      [&](v1::SemaphoreService::Stub& stub, grpc::ClientContext* call) {
        return stub.Verify(call, request, &response);
      },
      kCallTimeout);
  if (!status.ok()) return context.Fail(status);
  if (context.json()) {
    Json json = {{"held", response.held()}, {"ended", Word(response.ended())}};
    if (response.held())
      json["lease"] = WithValidity(ToJson(response.lease()), response.validity());
    if (response.has_recall()) json["recall_grace_ms"] = response.recall().grace_ms();
    json["slot_token"] = absl::StrCat(response.slot_token());
    PrintJson(json);
  } else if (response.held()) {
    PrintLine(absl::StrFormat("held%s", response.has_recall() ? ", and recalled" : ""));
    PrintLease(response.lease(), response.validity());
  } else {
    PrintLine(absl::StrCat("not held: ", Text(response.ended())));
    if (response.slot_token() > 0) {
      PrintLine(absl::StrCat("the slot is held with token ", response.slot_token()));
    }
  }
  return response.held() ? kDone : kNo;
}

void AddAcquire(Command app, Context& context) {
  auto arguments = std::make_shared<AcquireArguments>();
  arguments->request.set_permits(1);
  const Command acquire =
      AddCommand(app, context, "acquire", "Take permits for a lease that lives by `semctl renew`",
                 R"(  semctl acquire team/db --limit 4 --ttl 5m
  lease=$(semctl acquire team/db --limit 4 -q) && work && semctl release "$lease")",
                 [&context, arguments] { return Acquire(context, *arguments); });
  v1::AcquireRequest* const request = &arguments->request;
  acquire.AddName(request->mutable_semaphore());
  acquire
      .AddSetter<std::uint32_t>(
          "--limit", [request](std::uint32_t limit) { request->set_limit(limit); },
          "Create it with this limit if it does not exist")
      .NotZero();
  acquire.AddFlag("--adopt", &arguments->adopt, "Take another stored limit as it is");
  acquire
      .AddSetter<std::uint32_t>(
          "--permits", [request](std::uint32_t permits) { request->set_permits(permits); },
          "How many permits [1]")
      .NotZero();
  acquire.AddSetter<std::int32_t>(
      "--priority", [request](std::int32_t priority) { request->set_priority(priority); },
      "-1000 to 1000; higher is served first [0]");
  acquire.Add("--holder", request->mutable_holder(),
              "For people: who holds [host:pid of the caller]");
  const Option wait =
      acquire.AddDuration("--wait", &arguments->wait, "How long to wait [for ever]");
  acquire.AddFlag("--no-wait", &arguments->no_wait, "At once or not at all").Excludes(wait);
  acquire.AddDuration("--ttl", &arguments->ttl,
                      "How long the lease lives from one renew to the next [the daemon's default]");
  acquire.AddFlag("-q,--quiet", &arguments->quiet,
                  "Print the lease id only; nothing changes with -o json");
}

void AddVerify(Command app, Context& context) {
  auto request = std::make_shared<v1::VerifyRequest>();
  auto argument = std::make_shared<LeaseArgument>();
  const Command verify = AddCommand(
      app, context, "verify", "Is a lease still good? Asked with its id, or with slot and token",
      R"(  semctl verify "$SEMAPHORE_LEASE"
  echo "$SEMAPHORE_LEASE" | semctl verify --lease-file -
  semctl verify --semaphore team/db --slot 2 --token 1042)",
      [&context, request, argument] { return Verify(context, *request, *argument); });
  argument->AddTo(verify);
  const Option name = verify.Add("--semaphore", request->mutable_semaphore(), "The semaphore")
                          .Takes(kTakesSemaphore);
  const Option slot = verify.AddSetter<std::uint32_t>(
      "--slot", [request](std::uint32_t value) { request->set_slot(value); }, "A slot of it");
  const Option token = verify.AddSetter<std::uint64_t>(
      "--token", [request](std::uint64_t value) { request->set_token(value); },
      "The token that was shown");
  name.Needs(slot).Needs(token);
  for (const Option lease : argument->options()) name.Excludes(lease);
  slot.Needs(name);
  token.Needs(name);
}

}  // namespace

void AddLeaseCommands(Command app, Context& context) {
  AddAcquire(app, context);

  auto renewed = std::make_shared<LeaseArgument>();
  renewed->AddTo(AddCommand(app, context, "renew", "Keep a lease alive for another TTL",
                            R"(  echo "$lease" | semctl renew --lease-file -
  while semctl renew "$lease" > /dev/null; do sleep 10; done)",
                            [&context, renewed] { return Renew(context, *renewed); }));

  auto released = std::make_shared<v1::ReleaseRequest>();
  auto argument = std::make_shared<LeaseArgument>();
  auto slots = std::make_shared<std::vector<std::uint32_t>>();
  const Command release =
      AddCommand(app, context, "release", "Give permits back, all of a lease or some slots",
                 R"(  semctl release "$lease"
  semctl release "$lease" --slot 3 --slot 4
  echo "$lease" | semctl release --lease-file -)",
                 [&context, released, slots, argument] {
                   for (const std::uint32_t slot : *slots) {
                     v1::SlotRange* range = released->add_slots();
                     range->set_first(slot);
                     range->set_last(slot);
                   }
                   return Release(context, *released, *argument);
                 });
  argument->AddTo(release);
  release.Add("--slot", slots.get(), "Only this slot; may be given several times").Repeats();

  AddVerify(app, context);
}

}  // namespace semaphore::semctl
