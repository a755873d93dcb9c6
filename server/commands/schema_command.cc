#include "server/commands/schema_command.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "adapters/open.h"
#include "server/base/logging.h"

namespace semaphored {
namespace {

enum ExitCode { kDone = 0, kBadArguments = 2, kNotMade = 3 };

constexpr char kHelp[] =
    R"(Prints, or makes, what must be in the engine before the daemon uses it.

Usage: semaphored schema --print [--store URL]
       semaphored schema --create --store URL

  --print       Print it, for those who do not let a daemon make it: SQL for Postgres, the table's
                definition in JSON for DynamoDB.
  --create      Make it, unless it is there, and wait until it can be used. Something else that
                stands in its place is left as it is, and is an error.
  --store URL   The engine, with Postgres' schema= or DynamoDB's table. --create also takes it from
                SEMAPHORED_STORE.
  --help, -h    Print this help and end.

Examples:
  semaphored schema --print > semaphored.sql
  semaphored schema --print --store 'postgres:///?schema=permits' | psql --single-transaction production
  semaphored schema --create --store dynamodb://eu-west-1/semaphored
  semaphored schema --print --store dynamodb://eu-west-1/semaphored > table.json
  aws dynamodb create-table --cli-input-json file://table.json
)";

struct Arguments {
  bool help = false;
  bool print = false;
  bool create = false;
  std::optional<std::string> store;
};

std::string Line(absl::string_view text) {  // Debian's absl has its own.
  return absl::StrCat("semaphored schema: ", MaskSecrets({text.data(), text.size()}), "\n");
}

// False: the one at *wrong is not understood.
bool Read(const std::vector<std::string>& arguments, Arguments* result, std::string* wrong) {
  constexpr std::string_view kStore = "--store=";
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      result->help = true;
    } else if (argument == "--print") {
      result->print = true;
    } else if (argument == "--create") {
      result->create = true;
    } else if (argument == "--store" && i + 1 < arguments.size()) {
      result->store = arguments[++i];
    } else if (argument.rfind(kStore, 0) == 0) {
      result->store = argument.substr(kStore.size());
    } else {
      *wrong = argument;
      return false;
    }
  }
  return true;
}

int Print(const SchemaCommand& command, const std::string& store) {
  const absl::StatusOr<std::string> schema = EngineSchema(store);
  if (schema.ok()) {
    command.out(*schema);
    return kDone;
  }
  command.error(Line(schema.status().message()));
  return kBadArguments;
}

int Create(const SchemaCommand& command, const std::string& store) {
  const absl::StatusOr<std::string> made =
      MakeEngineSchema(store, [&command](const std::string& line) { command.error(Line(line)); });
  if (made.ok()) {
    command.out(absl::StrCat(*made, "\n"));
    return kDone;
  }
  if (absl::IsUnimplemented(made.status())) {
    command.out(absl::StrCat(made.status().message(), "\n"));
    return kDone;
  }
  command.error(Line(made.status().message()));
  return absl::IsInvalidArgument(made.status()) ? kBadArguments : kNotMade;
}

}  // namespace

int RunSchema(const SchemaCommand& command) {
  Arguments arguments;
  std::string wrong;
  if (!Read(command.arguments, &arguments, &wrong)) {
    command.error(
        absl::StrCat("semaphored schema: unknown argument ", MaskSecrets(wrong), "; see --help\n"));
    return kBadArguments;
  }
  if (arguments.help) {
    command.out(kHelp);
    return kDone;
  }
  if (arguments.print == arguments.create) {
    command.error(kHelp);
    return kBadArguments;
  }
  if (arguments.print) return Print(command, arguments.store.value_or("postgres:///"));
  if (!arguments.store) arguments.store = command.store;
  if (!arguments.store) {
    command.error("semaphored schema: --create needs --store URL, or SEMAPHORED_STORE\n");
    return kBadArguments;
  }
  return Create(command, *arguments.store);
}

}  // namespace semaphored
