// semctl: the command line of semaphored.
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/semaphore/endpoint.h"
#include "client/semctl/command_line.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/guardian.h"
#include "server/base/standard_files.h"

namespace {

using semaphore::semctl::Command;
using semaphore::semctl::CommandLine;
using semaphore::semctl::Context;

// A token is no flag: `ps` would show it.
void DescribeSecurity(Command semctl, semaphore::SecurityOptions* security) {
  using semaphore::semctl::kTakesFile;
  semctl.AddFlag("--tls", &security->tls, "Speak TLS; implied by the four options that follow")
      .ElseFrom("SEMCTL_TLS");
  semctl
      .Add("--ca-file", &security->ca_file,
           "Certificates (PEM) by which the daemon's is verified [those of this machine]")
      .ElseFrom("SEMCTL_CA_FILE")
      .Takes(kTakesFile);
  semctl.Add("--cert-file", &security->cert_file, "The client's own certificate (PEM)")
      .ElseFrom("SEMCTL_CERT_FILE")
      .Takes(kTakesFile);
  semctl.Add("--key-file", &security->key_file, "The key of --cert-file (PEM)")
      .ElseFrom("SEMCTL_KEY_FILE")
      .Takes(kTakesFile);
  semctl
      .Add("--server-name", &security->server_name,
           "The name that the daemon's certificate must bear [the host of --server]")
      .ElseFrom("SEMCTL_SERVER_NAME");
  semctl
      .Add("--token-file", &security->token_file,
           "File with the bearer token; or the token itself in SEMCTL_TOKEN")
      .ElseFrom("SEMCTL_TOKEN_FILE")
      .Takes(kTakesFile);
}

void Describe(CLI::App& app, Context& context) {
  semaphore::semctl::SetHelp(app);
  app.footer(std::string(semaphore::semctl::kExitCodesHelp) + R"(

Examples:
  semctl run team/db --limit 4 -- ./nightly-report
  semctl describe team/db
  semctl enqueue deploy/prod --limit 1 --payload request.json
  semctl work 'deploy/*' --once -- ./deploy.sh
  semctl --server a:7420,b:7420 list -o json
  semctl help run)");
  app.require_subcommand(1);
  app.set_version_flag("--version", semaphore::semctl::VersionText());
  const Command semctl(&app);
  semctl.Add("--server", &context.server, "Daemons to try in this order: HOST:PORT[,HOST:PORT...]")
      .ElseFrom("SEMCTL_SERVER")
      .Takes("HOST:PORT,...")
      .ShowsDefault()
      .Check([&context](const std::string& text) {
        Context given = context;
        given.server = text;
        return std::string(semaphore::CheckEndpoints(given.endpoints()).message());
      });
  DescribeSecurity(semctl, &context.security);
  semctl
      .Add("-o,--output", &context.output,
           "How to print; help, completion and --payload print as ever")
      .TakesWords({"text", "json"})
      .ShowsDefault();
  semctl.AddDuration("--connect-timeout", &context.connect_timeout,
                     "Give up when no daemon answered for this long [2s; run and work: 5s; "
                     "--no-wait: one attempt]");
}

void AddCommands(Command app, Context& context) {
  semaphore::semctl::AddRunCommand(app, context);
  semaphore::semctl::AddLeaseCommands(app, context);
  semaphore::semctl::AddAdminCommands(app, context);
  semaphore::semctl::AddAdoptCommand(app, context);
  semaphore::semctl::AddApplyCommands(app, context);
  semaphore::semctl::AddQueryCommands(app, context);
  semaphore::semctl::AddWorkCommand(app, context);
  semaphore::semctl::AddTicketCommands(app, context);
  semaphore::semctl::AddWatchCommand(app, context);
  semaphore::semctl::AddTopCommand(app, context);
  semaphore::semctl::AddDoctorCommand(app, context);
  semaphore::semctl::AddCompletionCommands(app, context);
  semaphore::semctl::AddHelpCommands(app, context);
}

// "semctl run team/db -- echo hi": the words as given, with "--" where the command seems to begin.
std::string WithDashes(const CommandLine& line, std::vector<std::string> words) {
  if (line.places.size() < 2) {
    return absl::StrCat("semctl ", semaphore::semctl::Quoted(words), " -- COMMAND...");
  }
  words.insert(words.begin() + static_cast<std::ptrdiff_t>(line.places[1]), "--");
  return absl::StrCat("semctl ", semaphore::semctl::Quoted(words));
}

// What is wrong, a line each, in words that CLI11 does not have. Empty: CLI11 may look.
std::vector<std::string> Problems(const CLI::App& app, const CommandLine& line,
                                  const std::vector<std::string>& words, bool dashes) {
  using semaphore::semctl::CommandsOf;
  if (line.help) return {};
  if (!line.unknown_command.empty()) {
    return {absl::StrCat("unknown command '", line.unknown_command, "'",
                         semaphore::semctl::DidYouMean(line.unknown_command, CommandsOf(app)))};
  }
  if (line.command == nullptr && line.problems.empty()) {
    return {"a command is missing; semctl --help lists them"};
  }
  const std::string name = line.command == nullptr ? "" : line.command->get_name();
  if (!dashes && (name == "run" || name == "work") && !line.places.empty()) {
    return {absl::StrCat(name,
                         " takes the command that it is to run behind \"--\", which is missing: ",
                         WithDashes(line, words))};
  }
  return line.problems;
}

// What gRPC and Protobuf print of an error is in the error, too, and standard error is ours: a program reads lines of JSON
// there. GRPC_VERBOSITY brings gRPC's lines back. Before there is any other thread.
void SilenceLibraries() {
  google::protobuf::SetLogHandler(nullptr);
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

int Main(int argc, char** argv, Context& context) {
  SilenceLibraries();
  // Before there is any other thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (const char* token = std::getenv("SEMCTL_TOKEN")) context.security.token = token;
  // What stands behind "--" is the command of `run` or `work`, and not ours to read.
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const bool has_dashes = dashes != words.end();
  if (has_dashes) {
    context.command.assign(dashes + 1, words.end());
    words.erase(dashes, words.end());
  }
  CLI::App app(
      "Permits of named semaphores: run commands under them, queue work for them, look at them, "
      "administer them.",
      "semctl");
  Describe(app, context);
  AddCommands(Command(&app), context);
  const CommandLine line = semaphore::semctl::ReadCommandLine(app, words);
  const std::vector<std::string> problems = Problems(app, line, words, has_dashes);
  for (const std::string& problem : problems) context.Misused(problem);
  if (!problems.empty()) return semaphore::semctl::kUsage;
  // To CLI11 a negative number is an option, but not behind "--".
  if (!line.places.empty() && words[line.places.back()].size() > 1 &&
      words[line.places.back()].starts_with('-')) {
    const auto number = words.begin() + static_cast<std::ptrdiff_t>(line.places.back());
    std::rotate(number, number + 1, words.end());
    words.insert(words.end() - 1, "--");
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // as CLI11 takes them
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return context.Misused(absl::StrCat(
        error.what(), line.command == nullptr
                          ? ""
                          : absl::StrCat("; see semctl help ", line.command->get_name())));
  }
  context.has_option = [command = line.command](const std::string& name) {
    return command->get_option_no_throw(name) != nullptr;
  };
  return context.action();
}

}  // namespace

int main(int argc, char** argv) {
  semaphored::OccupyStandardFiles();
  if (const auto code = semaphore::semctl::GuardianMain(argc, argv)) return *code;
  Context context;
  const int code = Main(argc, argv, context);
  const std::optional<std::string> lost = semaphored::LostOutput();
  if (!lost) return code;
  context.Say("output", absl::StrCat("standard output: ", *lost));
  // A code that says something else is of more use.
  return code == semaphore::semctl::kDone ? semaphore::semctl::kNotWritten : code;
}
