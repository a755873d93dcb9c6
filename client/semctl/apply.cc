// semctl apply, diff, export, import: semaphores as a file declares them.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/semaphore/unary_caller.h"
#include "client/semctl/context.h"
#include "client/semctl/definitions.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/output.h"
#include "client/semctl/plan.h"
#include "client/semctl/plan_run.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

// 100,000 semaphores with all that can be said of them.
constexpr std::size_t kFileBytesMax = 64 << 20;

struct Options {
  std::string path;
  bool dry_run = false;
  bool yes = false;
  PlanOptions plan;
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ostringstream text;
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& input = path == "-" ? std::cin : file;
  char block[65'536];
  while (input.read(block, sizeof(block)) || input.gcount() > 0) {
    text.write(block, input.gcount());
    if (static_cast<std::size_t>(text.tellp()) > kFileBytesMax)
      return absl::InvalidArgumentError(absl::StrCat(path, ": is over 64 MiB"));
  }
  if (!input.eof()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return text.str();
}

// ---- what is printed ----

const char* Word(Difference::Kind kind) {
  switch (kind) {
    case Difference::Kind::kCreate:
      return "create";
    case Difference::Kind::kChange:
      return "change";
    case Difference::Kind::kDestroy:
      return "destroy";
  }
  return "";
}

const char* Done(Step::Act act) {
  switch (act) {
    case Step::Act::kCreate:
      return "created";
    case Step::Act::kConfigure:
      return "configured";
    case Step::Act::kGrow:
    case Step::Act::kShrink:
      return "resized";
    case Step::Act::kDestroy:
      return "destroyed";
  }
  return "";
}

// "+ team/db: limit 4", "~ team/db: limit 4 -> 8, backfill false -> true", "- team/db: limit 4".
std::string Line(const Difference& difference) {
  const char* sign = difference.kind == Difference::Kind::kCreate   ? "+"
                     : difference.kind == Difference::Kind::kChange ? "~"
                                                                    : "-";
  std::string line = absl::StrCat(sign, " ", difference.semaphore, ":");
  const char* comma = " ";
  for (const Difference::Change& change : difference.changes) {
    const char* arrow = change.from.empty() || change.to.empty() ? "" : " -> ";
    absl::StrAppend(&line, comma, change.key, " ", change.from, arrow, change.to);
    comma = ", ";
  }
  return line;
}

// A value as in a file; nothing is null.
Json Value(const std::string& text) { return text.empty() ? Json() : Json::parse(text); }

Json PlanAsJson(const Plan& plan) {
  Json differences = Json::array();
  for (const Difference& difference : plan.differences) {
    Json changes = Json::object();
    for (const Difference::Change& change : difference.changes)
      changes[change.key] = {{"from", Value(change.from)}, {"to", Value(change.to)}};
    differences.push_back({{"semaphore", difference.semaphore},
                           {"action", Word(difference.kind)},
                           {"changes", std::move(changes)}});
  }
  return {{"differences", std::move(differences)},
          {"unchanged", plan.unchanged},
          {"problems", plan.problems}};
}

void PrintPlan(const Plan& plan) {
  for (const Difference& difference : plan.differences) PrintLine(Line(difference));
}

void TellProblems(const Plan& plan) {
  for (const std::string& problem : plan.problems)
    PrintErrorLine(absl::StrCat("semctl: ", problem));
}

// ---- the commands ----

struct Prepared {
  std::unique_ptr<UnaryCaller> caller;
  Semaphores current;
  Plan plan;
};

// Compares what the file declares with what stands. Reports an error, and returns its exit code.
int Prepare(const Context& context, const Options& options, Prepared* prepared) {
  const absl::StatusOr<std::string> text = ReadFile(options.path);
  absl::Status status = text.status();
  absl::StatusOr<Declarations> declared;
  if (status.ok()) {
    declared = ParseDeclarations(*text, options.path);
    status = declared.status();
  }
  if (status.ok() && options.plan.prune && declared->prefixes.empty()) {
    status = absl::InvalidArgumentError(absl::StrCat(
        options.path, ": declares no prefix, so there is nothing that --prune may look at"));
  }
  if (!status.ok()) {
    context.Say("bad_file", std::string(status.message()));
    return kUsage;
  }
  // It is made in place, since it cannot be moved. NOLINTNEXTLINE(modernize-make-unique)
  prepared->caller = std::unique_ptr<UnaryCaller>(new UnaryCaller(context.MakeCaller()));
  absl::StatusOr<Semaphores> current =
      ReadCurrent(prepared->caller.get(), *declared, options.plan.prune);
  if (!current.ok()) return context.Fail(current.status());
  prepared->current = *std::move(current);
  prepared->plan = MakePlan(*declared, prepared->current, options.plan);
  return kDone;
}

int Diff(const Context& context, const Options& options) {
  Prepared prepared;
  if (const int code = Prepare(context, options, &prepared); code != kDone) return code;
  if (context.json()) {
    PrintJson(PlanAsJson(prepared.plan));
  } else {
    PrintPlan(prepared.plan);
    TellProblems(prepared.plan);
  }
  return prepared.plan.differences.empty() && prepared.plan.problems.empty() ? kDone : kNo;
}

// Whether the semaphores that are to be destroyed may be.
bool MayDestroy(const Context& context, const Options& options, const Plan& plan) {
  std::size_t destroyed = 0;
  for (const Step& step : plan.steps) destroyed += step.act == Step::Act::kDestroy ? 1 : 0;
  if (destroyed == 0 || options.yes) return true;
  if (context.json() || isatty(STDIN_FILENO) == 0 || options.path == "-") {
    context.Say(
        "not_confirmed",
        absl::StrCat(destroyed, " semaphores would be destroyed: say --yes; nothing was done"));
    return false;
  }
  PrintPlan(plan);
  std::fprintf(stderr, "Destroy %zu semaphores? [y/N] ", destroyed);
  std::string answer;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "yes");
}

// Carries the plan out, telling each step as it is done. The exit code.
int Carry(const Context& context, Prepared* prepared) {
  const Plan& plan = prepared->plan;
  std::size_t done = 0;
  Json applied = Json::array();
  const absl::Status status = RunSteps(
      prepared->caller.get(), plan, &prepared->current,
      [&](const Step& step) {
        applied.push_back({{"semaphore", step.semaphore}, {"done", Done(step.act)}});
        if (!context.json()) PrintLine(absl::StrFormat("%s: %s", step.semaphore, Done(step.act)));
      },
      &done);
  if (context.json()) {
    Json json = PlanAsJson(plan);
    json["applied"] = std::move(applied);
    json["not_done"] = Json::array();
    for (std::size_t i = done; i < plan.steps.size(); ++i)
      json["not_done"].push_back({{"semaphore", plan.steps[i].semaphore}});
    PrintJson(json);
  } else {
    PrintLine(absl::StrFormat("%zu of %zu steps done, %zu semaphores as they should be already",
                              done, plan.steps.size(), plan.unchanged));
  }
  if (status.ok()) return kDone;
  const int code = context.Fail(status);
  context.Say(
      "stopped",
      absl::StrCat("stopped at ", plan.steps[done].semaphore, ": ", plan.steps.size() - done - 1,
                   " steps after it were not begun; the same command goes on from here"));
  return code;
}

int Apply(const Context& context, const Options& options) {
  Prepared prepared;
  if (const int code = Prepare(context, options, &prepared); code != kDone) return code;
  const Plan& plan = prepared.plan;
  if (!plan.problems.empty()) {
    if (context.json()) {
      PrintJson(PlanAsJson(plan));
    } else {
      TellProblems(plan);
    }
    context.Say("refused", "nothing was done");
    return kRefused;
  }
  if (options.dry_run) {
    if (context.json()) {
      PrintJson(PlanAsJson(plan));
    } else {
      PrintPlan(plan);
      PrintLine(absl::StrFormat("%zu steps would be done", plan.steps.size()));
    }
    return kDone;
  }
  if (!MayDestroy(context, options, plan)) return kUsage;
  return Carry(context, &prepared);
}

int Export(const Context& context, const std::string& prefix) {
  UnaryCaller caller = context.MakeCaller();
  const absl::StatusOr<Semaphores> all = ReadAll(&caller, prefix);
  if (!all.ok()) return context.Fail(all.status());
  std::map<std::string, Definition> definitions;
  for (const auto& [name, info] : *all) {
    if (info.destroying()) {
      context.Say("left_out", absl::StrCat(name, " is being destroyed: left out"));
    } else {
      definitions[name] = DefinitionOf(info);
    }
    if (info.paused()) context.Say("paused", absl::StrCat(name, " is paused: no file says that"));
  }
  if (context.json()) {
    PrintJson(ToJson(definitions));
  } else {
    std::printf("%s", ToToml(definitions).c_str());
  }
  return kDone;
}

constexpr char kFileHelp[] = R"(

A FILE is TOML, or JSON of the same shape; "-" is stdin:
  [prefix."team/"]              # defaults for what is declared below it; what --prune looks at
  limit = 4
  recall_grace = "10s"
  [semaphore."team/db"]
  limit = 8
  longest_hold = "1h"
Keys: limit, backfill, longest_hold, recall_grace, permits_per_holder, waiters_max as in create and
configure; what is not given is as by default. shrink ("wait", "recall", "refuse") and shrink_grace
say how a limit is lowered. Defaults of a prefix are filled in here; a semaphore that is made by its
first use does not get them.)";

Command AddFileCommand(Command app, Context& context, const std::string& name,
                       const std::string& description, const std::string& examples,
                       const std::shared_ptr<Options>& options, std::function<int()> action) {
  const Command command =
      AddCommand(app, context, name, description, examples + kFileHelp, std::move(action));
  command.Add("FILE", &options->path, "What is declared").Takes(kTakesFile).Required();
  return command;
}

void AddPrune(Command command, Options* options) {
  command.AddFlag("--prune", &options->plan.prune,
                  "Destroy what the declared prefixes cover, is not declared, and not in use");
}

}  // namespace

void AddApplyCommands(Command app, Context& context) {
  auto applied = std::make_shared<Options>();
  const Command apply = AddFileCommand(
      app, context, "apply", "Make semaphores as a file declares them; what is so already stays",
      R"(  semctl apply semaphores.toml --dry-run
  semctl apply semaphores.toml --prune --yes

All is checked before the first change. Then what gives is done before what takes: create, configure,
raise limits, lower them, destroy; the first error ends it, and the same command goes on from there.)",
      applied, [&context, applied] { return Apply(context, *applied); });
  apply.AddFlag("--dry-run", &applied->dry_run, "Say what would be done, and do nothing");
  AddPrune(apply, applied.get());
  apply.AddFlag("--yes", &applied->yes, "Destroy without asking");

  auto compared = std::make_shared<Options>();
  AddPrune(
      AddFileCommand(app, context, "diff", "How the semaphores differ from what a file declares",
                     R"(  semctl diff semaphores.toml || echo "the daemon differs"

Exit codes: 0 nothing differs; 1 something does; 2 the file or the command line is wrong; others as
below.)",
                     compared, [&context, compared] { return Diff(context, *compared); }),
      compared.get());

  auto imported = std::make_shared<Options>();
  imported->plan.replace = false;
  const Command import = AddFileCommand(
      app, context, "import",
      "As apply, but what exists and is not the same is left alone: nothing is done then",
      "  semctl --server old:7420 export | semctl --server new:7420 import -", imported,
      [&context, imported] { return Apply(context, *imported); });
  import.AddFlag("--replace", &imported->plan.replace, "Change what exists");
  import.AddFlag("--dry-run", &imported->dry_run, "Say what would be done, and do nothing");

  auto prefix = std::make_shared<std::string>();
  AddCommand(app, context, "export",
             "The definitions of all semaphores as a file for apply and import; not who holds, "
             "waits or is paused",
             "  semctl export > semaphores.toml\n  semctl export --prefix team/ -o json",
             [&context, prefix] { return Export(context, *prefix); })
      .Add("--prefix", prefix.get(), "Names that begin with this")
      .Takes(kTakesPrefix);
}

}  // namespace semaphore::semctl
