#include "server/subcommands.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "server/base/clock.h"
#include "server/base/logging.h"
#include "server/base/standard_files.h"
#include "server/commands/backup_command.h"
#include "server/commands/restore_command.h"
#include "server/commands/schema_command.h"
#include "server/commands/token_command.h"
#include "server/config/config.h"
#include "server/rpc/health_command.h"

namespace semaphored {

namespace {

void Out(const std::string& text) { std::fputs(text.c_str(), stdout); }
void Error(const std::string& text) { std::fputs(text.c_str(), stderr); }

int Schema(int argc, char** argv) {
  SchemaCommand command;
  command.arguments.assign(argv + 2, argv + argc);
  // Before there is any other thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (const char* store = std::getenv("SEMAPHORED_STORE"); store != nullptr) command.store = store;
  command.out = Out;
  command.error = Error;
  HidePasswords(argc, argv);
  return IfWritten(RunSchema(command));
}

int BackUp(int argc, char** argv) {
  BackUpCommand command;
  command.sources = ProcessSources(argc - 1, argv + 1);
  command.out = Out;
  command.error = Error;
  HidePasswords(argc, argv);
  return RunBackUp(command);
}

int Restore(int argc, char** argv) {
  RestoreCommand command;
  command.arguments.assign(argv + 2, argv + argc);
  // Before there is any other thread. NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (const char* store = std::getenv("SEMAPHORED_STORE"); store != nullptr) command.store = store;
  command.pause = [](Milliseconds time) {
    const SteadyTime until = SystemClock().Now() + time;
    while (SystemClock().Now() < until) std::this_thread::sleep_for(Milliseconds(100));
  };
  command.out = Out;
  command.error = Error;
  return RunRestore(command);
}

int Health(int argc, char** argv) {
  HealthCommand command;
  command.sources = ProcessSources(argc - 1, argv + 1);
  command.out = Out;
  command.error = Error;
  HidePasswords(argc, argv);
  return RunHealth(command);
}

int Token(int argc, char** argv) {
  TokenCommand command;
  command.arguments.assign(argv + 2, argv + argc);
  if (!command.arguments.empty() && command.arguments[0] == "--hash")
    std::getline(std::cin, command.input);
  command.out = Out;
  command.error = Error;
  return IfWritten(RunToken(command));
}

}  // namespace

void HidePasswords(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string masked = MaskSecrets(argv[i]);
    const size_t length = std::strlen(argv[i]);
    if (masked == argv[i]) continue;
    std::memset(argv[i], 0, length);
    std::memcpy(argv[i], masked.data(), std::min(masked.size(), length));
  }
}

int IfWritten(int code) {
  const std::optional<std::string> lost = LostOutput();
  if (!lost) return code;
  Error("semaphored: standard output: " + *lost + "\n");
  return code == 0 ? 1 : code;
}

std::optional<int> RunSubcommand(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "schema") return Schema(argc, argv);
  if (name == "backup") return BackUp(argc, argv);
  if (name == "restore") return Restore(argc, argv);
  if (name == "health") return Health(argc, argv);
  if (name == "token") return Token(argc, argv);
  return std::nullopt;
}

}  // namespace semaphored
