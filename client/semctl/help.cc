// semctl help, version.
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "client/semctl/command_line.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"

namespace semaphore::semctl {

void AddHelpCommands(Command app, Context& context) {
  CLI::App& parser = app.parser();
  auto name = std::make_shared<std::string>();
  const Command help = AddCommand(
      app, context, "help", "What semctl, or one of its commands, does",
      "  semctl help\n  semctl help run", [&parser, name] {
        parser.clear();  // Its help would be that of the command that was called.
        std::printf("%s", name->empty()
                              ? parser.help().c_str()
                              : parser.get_subcommand(*name)->help(parser.get_name()).c_str());
        return kDone;
      });
  AddCommand(app, context, "version", "The version of semctl", "  semctl version", [&parser] {
    std::printf("%s\n", parser.version().c_str());
    return kDone;
  });
  help.Add("COMMAND", name.get(), "The command").TakesWords(CommandsOf(parser));
}

}  // namespace semaphore::semctl
