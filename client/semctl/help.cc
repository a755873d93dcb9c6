// semctl help, version.
#include <cstdio>
#include <memory>
#include <string>

#include "client/semctl/command_line.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"
#include "client/semctl/output.h"
#include "client/semctl/shown.h"
#include "server/base/version.h"

namespace semaphore::semctl {

void AddHelpCommands(Command app, Context& context) {
  CLI::App& parser = app.parser();
  auto name = std::make_shared<std::string>();
  const Command help = AddCommand(app, context, "help", "What semctl, or one of its commands, does",
                                  "  semctl help\n  semctl help run", [&parser, name] {
                                    std::printf("%s", HelpOf(parser, *name).c_str());
                                    return kDone;
                                  });
  AddCommand(app, context, "version", "The version of semctl",
             "  semctl version\n  semctl version -o json", [&context] {
               if (context.json()) {
                 PrintJson({{"version", semaphored::kVersion}});
               } else {
                 PrintLine(VersionText());
               }
               return kDone;
             });
  help.Add("COMMAND", name.get(), "The command").TakesWords(CommandsOf(parser));
}

}  // namespace semaphore::semctl
