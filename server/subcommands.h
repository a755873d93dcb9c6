// What the daemon's program does besides serving: schema, backup, restore, health, token. Before there is
// any other thread.
#pragma once

#include <optional>

namespace semaphored {

// A password in a URL on the command line is not left for `ps` to show. (It was there for a moment:
// the environment, or a file, is the better place.)
void HidePasswords(int argc, char** argv);

// The exit code of the subcommand that argv[1] names; nullopt: it names none. Blocks, uses stdin,
// stdout and stderr.
std::optional<int> RunSubcommand(int argc, char** argv);

// `code`, of what prints its result; 1 if that is 0 and the result could not be written, which it says on stderr.
int IfWritten(int code);

}  // namespace semaphored
