// What options take: the words that the parser checks, help shows and completion offers are the same.
#ifndef SEMAPHORED_CLIENT_SEMCTL_OPTIONS_H_
#define SEMAPHORED_CLIENT_SEMCTL_OPTIONS_H_

#include <chrono>
#include <string>
#include <vector>

// <CLI/CLI.hpp> makes each file that includes it as large as the parser: only files with options do.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace semaphore::semctl {

// Type names (CLI::Option::type_name) that completion goes by. Others, "DURATION" among them, are
// for the reader of --help alone.
inline constexpr char kTakesFile[] = "FILE";
inline constexpr char kTakesSemaphore[] = "SEMAPHORE";
inline constexpr char kTakesPrefix[] = "PREFIX";

// The option takes one of these words, and its type name is "wait|recall|refuse". Any other word is
// an error that lists them.
CLI::Option* TakesWords(CLI::Option* option, const std::vector<std::string>& words);

// The words of such an option; empty for another one.
std::vector<std::string> WordsOf(const CLI::Option& option);

// Adds an option that takes a duration. `value` keeps its default if the option is absent. `most`:
// by default as many days as 32 bits of milliseconds have.
CLI::Option* AddDuration(CLI::App* app, const std::string& name, std::chrono::milliseconds* value,
                         const std::string& description,
                         std::chrono::hours most = std::chrono::hours(49 * 24));

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_OPTIONS_H_
