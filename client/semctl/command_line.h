// A command line, read word by word along the table of options that CLI11 parses by: for messages
// that CLI11 does not have, and for completion, where the line is not complete yet.
#ifndef SEMAPHORED_CLIENT_SEMCTL_COMMAND_LINE_H_
#define SEMAPHORED_CLIENT_SEMCTL_COMMAND_LINE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "client/semctl/options.h"

namespace semaphore::semctl {

// An option as the parser knows it.
struct KnownOption {
  std::string name;
  std::string type;         // What it takes (options.h).
  bool takes_many = false;  // More than one value.
};

struct CommandLine {
  CLI::App* command = nullptr;          // The subcommand that is named.
  std::string unknown_command;          // The word that stands in its place, and is none.
  std::vector<std::size_t> places;      // Of the words after the command that belong to no option.
  std::optional<KnownOption> awaiting;  // The option whose value the next word would be.
  bool help = false;                    // --help or --version is among the words.
  std::vector<std::string> problems;    // Unknown options, and values that an option does not take.
};

// `words` are those before "--", without the program's name. The variables of the options that they
// give are set.
CommandLine ReadCommandLine(CLI::App& app, const std::vector<std::string>& words);

// Options with a name of dashes, those of unnamed groups included; positional ones otherwise. In
// the order in which they were added.
std::vector<KnownOption> OptionsOf(const CLI::App& app, bool positional);

// Of the command, if it has an option of this name, or of semctl. `command` may be null.
std::optional<KnownOption> FindOption(CLI::App& app, CLI::App* command, const std::string& name);

std::vector<std::string> CommandsOf(const CLI::App& app);

// "semctl 0.1.0".
std::string VersionText();

// Help lists what an option needs and excludes in the order in which the options were added: CLI11 has them by address.
// Before commands are added, which inherit it. `app` must outlive the parsing.
void SetHelp(CLI::App& app);

// The help of this command; empty: of semctl.
std::string HelpOf(CLI::App& app, const std::string& command);

// "; did you mean 'list'?", if one of the words is like `word`; else empty.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& words);

// As a shell needs it.
std::string Quoted(const std::vector<std::string>& words);

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_COMMAND_LINE_H_
