// The options of a command: their names, what they take, and where their values go. What the parser checks, help shows
// and completion offers is the same.
//
// CLI11 reads the command line. Its header takes longer to compile than a command does, so only the files that are about
// the parser itself include it; all others describe their options by these classes.
#ifndef SEMAPHORED_CLIENT_SEMCTL_OPTIONS_H_
#define SEMAPHORED_CLIENT_SEMCTL_OPTIONS_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace semaphore::semctl {

// Types (Option::Takes) that completion goes by. Others, "DURATION" among them, are for the reader of --help alone.
inline constexpr char kTakesFile[] = "FILE";
inline constexpr char kTakesSemaphore[] = "SEMAPHORE";
inline constexpr char kTakesPrefix[] = "PREFIX";

// An option, or a positional argument, that a command has. Points to it: the parser owns it. Functions return the option
// itself.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option Takes(const std::string& type) const;
  // One of these words, and the type is "wait|recall|refuse". Any other word is an error that lists them.
  Option TakesWords(const std::vector<std::string>& words) const;
  // A number from `least` to `most`.
  Option TakesBetween(int least, int most) const;
  // For a number: not 0, which the API takes for "not given".
  Option NotZero() const;
  // `problem` returns what is wrong with a value; empty: nothing.
  Option Check(std::function<std::string(const std::string& value)> problem) const;
  Option Required() const;
  // Help shows the value that the variable has now.
  Option ShowsDefault() const;
  // For a vector: may be given several times, with one value each.
  Option Repeats() const;
  // The value, if the command line has none.
  Option ElseFrom(const std::string& environment_variable) const;
  // Not together with the other one, and not without it.
  Option Excludes(Option other) const;
  Option Needs(Option other) const;

 private:
  CLI::Option* option_;
};

// The words of the type of an option that takes words; empty for another type.
std::vector<std::string> WordsOf(const std::string& type);

// A command, or semctl itself. Points to it: the parser owns it.
//
// An option's name is "--name" or "-n,--name"; a name without a dash makes a positional argument. A variable keeps its
// value if the option is absent. It must outlive the parsing, which may set it more than once.
class Command {
 public:
  explicit Command(CLI::App* parser) : parser_(parser) {}

  // `Value`: std::string, std::uint32_t, std::int32_t, std::uint64_t, or a vector of one of the first two. It is an
  // error if the text is no such number or does not fit, or is not UTF-8, unless the option takes kTakesFile.
  template <typename Value>
  Option Add(const std::string& name, Value* value, const std::string& description) const;
  // The same for what has no variable. `Value`: not a vector.
  template <typename Value>
  Option AddSetter(const std::string& name, std::function<void(const Value&)> set,
                   const std::string& description) const;
  // NAME, a semaphore; required.
  Option AddName(std::string* value) const;
  Option AddFlag(const std::string& name, bool* value, const std::string& description) const;
  // `most`: by default as many days as 32 bits of milliseconds have.
  Option AddDuration(const std::string& name, std::chrono::milliseconds* value,
                     const std::string& description,
                     std::chrono::hours most = std::chrono::hours(49 * 24)) const;
  // A command of this one, which takes the options of both. The parser calls `chosen` if the line names it.
  Command AddCommand(const std::string& name, const std::string& description,
                     const std::string& footer, std::function<void()> chosen) const;
  // Neither help nor completion shows it, and it takes no options.
  void AddHiddenCommand(const std::string& name, std::function<void()> chosen) const;
  // Exactly one of the options of the group that is returned must be given.
  Command AddExactlyOneOf(const std::string& name, const std::string& description) const;

  // For the files about the parser.
  CLI::App& parser() const { return *parser_; }

 private:
  CLI::App* parser_;
};

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_OPTIONS_H_
