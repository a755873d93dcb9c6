// What the daemon's program does besides serving: schema, restore, health, token. Before there is
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

}  // namespace semaphored
