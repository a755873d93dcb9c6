// semctl: the command line of semaphored.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/guardian.h"

namespace {

using semaphore::semctl::Context;

// A token is no flag: `ps` would show it.
void DescribeSecurity(CLI::App& app, semaphore::SecurityOptions& security) {
  app.add_flag("--tls", security.tls, "Speak TLS; implied by the four options that follow")
      ->envname("SEMCTL_TLS");
  app.add_option("--ca-file", security.ca_file,
                 "Certificates (PEM) by which the daemon's is verified [those of this machine]")
      ->envname("SEMCTL_CA_FILE");
  app.add_option("--cert-file", security.cert_file, "The client's own certificate (PEM)")
      ->envname("SEMCTL_CERT_FILE");
  app.add_option("--key-file", security.key_file, "The key of --cert-file (PEM)")
      ->envname("SEMCTL_KEY_FILE");
  app.add_option("--server-name", security.server_name,
                 "The name that the daemon's certificate must bear [the host of --server]")
      ->envname("SEMCTL_SERVER_NAME");
  app.add_option("--token-file", security.token_file,
                 "File with the bearer token; or the token itself in SEMCTL_TOKEN")
      ->envname("SEMCTL_TOKEN_FILE");
}

void Describe(CLI::App& app, Context& context) {
  app.footer(std::string(semaphore::semctl::kExitCodesHelp) + R"(

Examples:
  semctl run team/db --limit 4 -- ./nightly-report
  semctl describe team/db
  semctl enqueue deploy/prod --limit 1 --payload request.json
  semctl work 'deploy/*' -- ./deploy.sh
  semctl --server a:7420,b:7420 list -o json
  semctl COMMAND --help)");
  app.require_subcommand(1);
  app.add_option("--server", context.server,
                 "Daemons to try in this order: HOST:PORT[,HOST:PORT...]")
      ->envname("SEMCTL_SERVER")
      ->capture_default_str()
      ->check([](const std::string& text) {
        return text.find_first_not_of(", ") == std::string::npos ? "give at least one HOST:PORT"
                                                                 : "";
      });
  DescribeSecurity(app, context.security);
  app.add_option("-o,--output", context.output, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  semaphore::semctl::AddDuration(&app, "--connect-timeout", &context.connect_timeout,
                                 "Give up when no daemon answered for this long [5s]");
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = semaphore::semctl::GuardianMain(argc, argv)) return *code;
  Context context;
  // Before there is any other thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (const char* token = std::getenv("SEMCTL_TOKEN")) context.security.token = token;
  // What stands behind "--" is the command of `run` or `work`, and not ours to read.
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) {
    context.command.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them

  CLI::App app(
      "Permits of named semaphores: run commands under them, queue work for them, look at them, "
      "administer them.",
      "semctl");
  Describe(app, context);
  semaphore::semctl::AddRunCommand(app, context);
  semaphore::semctl::AddLeaseCommands(app, context);
  semaphore::semctl::AddAdminCommands(app, context);
  semaphore::semctl::AddApplyCommands(app, context);
  semaphore::semctl::AddQueryCommands(app, context);
  semaphore::semctl::AddWorkCommand(app, context);
  semaphore::semctl::AddTicketCommands(app, context);
  semaphore::semctl::AddWatchCommand(app, context);
  semaphore::semctl::AddTopCommand(app, context);
  semaphore::semctl::AddCompletionCommand(app, context);
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? semaphore::semctl::kDone : semaphore::semctl::kUsage;
  }
  return context.action();
}
