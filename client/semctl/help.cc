// semctl help, version.
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "client/semctl/command_line.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"

namespace semaphore::semctl {

void AddHelpCommands(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>();
  CLI::App* const help = AddCommand(
      app, context, "help", "What semctl, or one of its commands, does",
      "  semctl help\n  semctl help run", [&app, name] {
        app.clear();  // Its help would be that of the command that was called.
        std::printf("%s", name->empty() ? app.help().c_str()
                                        : app.get_subcommand(*name)->help(app.get_name()).c_str());
        return kDone;
      });
  AddCommand(app, context, "version", "The version of semctl", "  semctl version", [&app] {
    std::printf("%s\n", app.version().c_str());
    return kDone;
  });
  TakesWords(help->add_option("COMMAND", *name, "The command"), CommandsOf(app));
}

}  // namespace semaphore::semctl
