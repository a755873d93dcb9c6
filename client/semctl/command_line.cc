#include "client/semctl/command_line.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/base/version.h"

namespace semaphore::semctl {
namespace {

// The least number of letters to put in, take out or exchange.
std::size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t exchanged = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, exchanged});
    }
  }
  return row[b.size()];
}

bool IsNegative(const std::string& word) {
  return word.find_first_not_of("0123456789", 1) == std::string::npos;
}

KnownOption Known(const CLI::Option& option) {
  return {option.get_name(), option.get_type_name(), option.get_items_expected_max() > 1};
}

// Null: there is none.
CLI::Option* Find(CLI::App& app, CLI::App* command, const std::string& name) {
  CLI::Option* found = nullptr;
  if (command != nullptr) found = command->get_option_no_throw(name);
  return found != nullptr ? found : app.get_option_no_throw(name);
}

class Reader {
 public:
  explicit Reader(CLI::App& app) : app_(app) {}

  void Take(const std::string& word, std::size_t place) {
    if (awaiting_ != nullptr) {
      Give(*std::exchange(awaiting_, nullptr), word);
    } else if (word.size() > 1 && word[0] == '-' && !IsNegative(word)) {
      TakeOption(word);
    } else if (line_.command != nullptr) {
      line_.places.push_back(place);
    } else if (line_.unknown_command.empty()) {
      const auto named =
          app_.get_subcommands([&](CLI::App* one) { return one->get_name() == word; });
      if (named.empty()) {
        line_.unknown_command = word;
      } else {
        line_.command = named[0];
      }
    }
  }

  CommandLine line() && {
    if (awaiting_ != nullptr) line_.awaiting = Known(*awaiting_);
    return std::move(line_);
  }

 private:
  void TakeOption(const std::string& word) {
    // "--name", "--name=value", "-n", "-nvalue".
    const bool is_long = absl::StartsWith(word, "--");
    const std::size_t end = is_long ? std::min(word.find('='), word.size()) : 2;
    const std::string name = word.substr(0, end);
    CLI::Option* const option = Find(app_, line_.command, name);
    if (option == nullptr) return AddUnknown(name);
    if (name == "--help" || name == "-h" || name == "--version") line_.help = true;
    if (option->get_items_expected_max() == 0) return;
    if (end == word.size()) {
      awaiting_ = option;
    } else {
      Give(*option, word.substr(end + (is_long ? 1 : 0)));
    }
  }

  void AddUnknown(const std::string& name) {
    std::vector<std::string> names;
    for (const CLI::App* app :
         {static_cast<const CLI::App*>(line_.command), &std::as_const(app_)}) {
      if (app == nullptr) continue;
      for (const KnownOption& option : OptionsOf(*app, false)) names.push_back(option.name);
    }
    line_.problems.push_back(absl::StrCat("unknown option '", name, "'", DidYouMean(name, names)));
  }

  // Tries the value, so that all wrong ones are found, and not only the first.
  void Give(CLI::Option& option, const std::string& value) {
    option.clear();
    option.add_result(value);
    try {
      option.run_callback();
    } catch (const CLI::ConversionError&) {
      line_.problems.push_back(
          absl::StrCat(option.get_name(), ": must be a number that fits, not '", value, "'"));
    } catch (const CLI::ParseError& error) {
      line_.problems.emplace_back(error.what());
    }
    option.clear();
  }

  CLI::App& app_;
  CLI::Option* awaiting_ = nullptr;
  CommandLine line_;
};

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const CLI::App& semctl) : semctl_(semctl) {}

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string all = CLI::Formatter::make_option_opts(option);
    // Their lists stand at the end.
    return absl::StrCat(all.substr(0, std::min(all.find(" Needs:"), all.find(" Excludes:"))),
                        List(" Needs:", option->get_needs()),
                        List(" Excludes:", option->get_excludes()));
  }

 private:
  using Options = std::set<CLI::Option*>;

  std::string List(const char* label, const Options& options) const {
    return options.empty() ? "" : label + Names(semctl_, options);
  }

  static std::string Names(const CLI::App& app, const Options& options) {
    std::string names;
    for (const CLI::Option* option : app.get_options()) {
      if (std::find(options.begin(), options.end(), option) != options.end())
        absl::StrAppend(&names, " ", option->get_name());
    }
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      names += Names(*command, options);
    return names;
  }

  const CLI::App& semctl_;
};

}  // namespace

CommandLine ReadCommandLine(CLI::App& app, const std::vector<std::string>& words) {
  Reader reader(app);
  for (std::size_t i = 0; i < words.size(); ++i) reader.Take(words[i], i);
  return std::move(reader).line();
}

std::vector<KnownOption> OptionsOf(const CLI::App& app, bool positional) {
  std::vector<KnownOption> options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional() != positional) options.push_back(Known(*option));
  }
  // Groups ("exactly one of") are commands without a name to CLI11.
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!group->get_name().empty()) continue;
    for (KnownOption& option : OptionsOf(*group, positional)) options.push_back(std::move(option));
  }
  return options;
}

std::optional<KnownOption> FindOption(CLI::App& app, CLI::App* command, const std::string& name) {
  const CLI::Option* const option = Find(app, command, name);
  if (option == nullptr) return std::nullopt;
  return Known(*option);
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string name = command->get_name();
    if (!name.empty() && !absl::StartsWith(name, "_")) names.push_back(name);
  }
  return names;
}

std::string VersionText() { return absl::StrCat("semctl ", semaphored::kVersion); }

void SetHelp(CLI::App& app) { app.formatter(std::make_shared<HelpFormatter>(app)); }

std::string HelpOf(CLI::App& app, const std::string& command) {
  app.clear();  // Its help would be that of the command that was called.
  return command.empty() ? app.help() : app.get_subcommand(command)->help(app.get_name());
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& words) {
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : words) {
    const std::size_t distance = word.size() > 64 ? least : Distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = &candidate;
  }
  return nearest == nullptr ? "" : absl::StrCat("; did you mean '", *nearest, "'?");
}

std::string Quoted(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const std::string& word) {
    constexpr char kPlain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      absl::StrAppend(out, word);
    } else {
      absl::StrAppend(out, "'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
    }
  });
}

}  // namespace semaphore::semctl
