// semctl adopt: what programs of a recipe keep in the engine becomes a semaphore.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/semaphore/unary_caller.h"
#include "client/semctl/admin.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/output.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

struct Adoption {
  std::string semaphore;
  bool dry_run = false;
  bool yes = false;
};

// `limit` 0: only looks.
absl::StatusOr<v1::AdoptSemaphoreResult> Ask(UnaryCaller* caller, const std::string& semaphore,
                                             std::uint32_t limit) {
  v1::AdministerRequest request;
  request.set_semaphore(semaphore);
  request.mutable_adopt()->set_limit(limit);
  const absl::StatusOr<v1::AdministerResponse> response = Administer(caller, request);
  if (!response.ok()) return response.status();
  return response->adopt();
}

// Before anything is changed: with -o json on stderr, since stdout has one result.
void TellChanges(const Context& context, const Adoption& adoption,
                 const v1::AdoptSemaphoreResult& found) {
  if (context.json()) return context.Say("changes", found.changes());
  PrintLine(absl::StrFormat(
      "%s: adopted with limit %u, as counted; this changes:", adoption.semaphore, found.limit()));
  for (const absl::string_view line : absl::StrSplit(found.changes(), '\n'))
    PrintLine(absl::StrCat("  ", line));
}

bool MayAdopt(const Context& context, const Adoption& adoption) {
  if (adoption.yes) return true;
  if (context.json() || isatty(STDIN_FILENO) == 0) {
    context.Say("not_confirmed", "say --yes to adopt it; nothing was done");
    return false;
  }
  std::fprintf(stderr, "Adopt it? [y/N] ");
  std::string answer;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "yes");
}

Json AsJson(const v1::AdoptSemaphoreResult& found, bool adopted) {
  return {{"adopted", adopted}, {"limit", found.limit()}, {"changes", found.changes()}};
}

int Adopt(const Context& context, const Adoption& adoption) {
  UnaryCaller caller = context.MakeCaller();
  const absl::StatusOr<v1::AdoptSemaphoreResult> found = Ask(&caller, adoption.semaphore, 0);
  if (!found.ok()) return context.Fail(found.status());
  if (adoption.dry_run && context.json()) PrintJson(AsJson(*found, false));
  if (!adoption.dry_run || !context.json()) TellChanges(context, adoption, *found);
  if (adoption.dry_run) return kDone;
  if (!MayAdopt(context, adoption)) return kUsage;
  const absl::StatusOr<v1::AdoptSemaphoreResult> done =
      Ask(&caller, adoption.semaphore, found->limit());
  if (!done.ok()) return context.Fail(done.status());
  if (context.json()) {
    Json json = AsJson(*found, done->adopted());
    json["semaphore"] = ToJson(done->semaphore());
    PrintJson(json);
  } else {
    PrintLine(absl::StrFormat("%s: %s", adoption.semaphore,
                              done->adopted() ? "adopted" : "exists already, with this limit"));
    PrintLine(absl::StrFormat("%s: %s", adoption.semaphore, Summary(done->semaphore())));
  }
  return kDone;
}

}  // namespace

void AddAdoptCommand(Command app, Context& context) {
  auto adoption = std::make_shared<Adoption>();
  const Command command =
      AddCommand(app, context, "adopt",
                 "Make a semaphore of what programs of a recipe have in RabbitMQ or Consul",
                 R"(  semctl adopt team/db --dry-run
  semctl adopt team/db --yes

RabbitMQ: the queue team/db.semaphore, whose messages are counted. Consul: the record
{"limit","holders"} at team/db/.lock. Refused while one of those programs holds a permit or waits.
What changes is printed first. Without --yes it is confirmed at the terminal.)",
                 [&context, adoption] { return Adopt(context, *adoption); });
  command.AddName(&adoption->semaphore);
  command.AddFlag("--dry-run", &adoption->dry_run, "Say what would change, and change nothing");
  command.AddFlag("--yes", &adoption->yes, "Adopt without asking");
}

}  // namespace semaphore::semctl
