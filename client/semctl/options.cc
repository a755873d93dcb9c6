#include "client/semctl/options.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/semctl/duration.h"
#include "client/semctl/shown.h"

namespace semaphore::semctl {
namespace {

// Text goes into a request, which the daemon could not parse; the name of a file is any bytes. What is no text is no
// number either.
Option Added(CLI::Option* option) {
  return Option(option).Check([option](const std::string& value) {
    const bool is_right = IsUtf8(value) || option->get_type_name() == kTakesFile;
    return std::string(is_right ? "" : "must be UTF-8");
  });
}

}  // namespace

Option Option::Takes(const std::string& type) const { return Option(option_->type_name(type)); }

Option Option::TakesWords(const std::vector<std::string>& words) const {
  return Takes(absl::StrJoin(words, "|")).Check([words](const std::string& word) {
    if (std::find(words.begin(), words.end(), word) != words.end()) return std::string();
    return absl::StrCat("must be one of ", absl::StrJoin(words, ", "), ", not '", word, "'");
  });
}

Option Option::TakesBetween(int least, int most) const {
  return Option(option_->check(CLI::Range(least, most)));
}

Option Option::NotZero() const {
  return Check([](const std::string& text) {
    std::uint64_t number = 1;
    const bool is_zero = CLI::detail::lexical_cast(text, number) && number == 0;
    return std::string(is_zero ? "must be 1 or more, not 0" : "");
  });
}

Option Option::Check(std::function<std::string(const std::string&)> problem) const {
  return Option(option_->check(std::move(problem)));
}

Option Option::Required() const { return Option(option_->required()); }

Option Option::ShowsDefault() const { return Option(option_->capture_default_str()); }

Option Option::Repeats() const {
  return Option(option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

Option Option::ElseFrom(const std::string& environment_variable) const {
  return Option(option_->envname(environment_variable));
}

Option Option::Excludes(Option other) const { return Option(option_->excludes(other.option_)); }

Option Option::Needs(Option other) const { return Option(option_->needs(other.option_)); }

std::vector<std::string> WordsOf(const std::string& type) {
  if (!absl::StrContains(type, "|")) return {};
  return absl::StrSplit(type, '|');
}

template <typename Value>
Option Command::Add(const std::string& name, Value* value, const std::string& description) const {
  return Added(parser_->add_option(name, *value, description));
}
template Option Command::Add(const std::string&, std::string*, const std::string&) const;
template Option Command::Add(const std::string&, std::uint32_t*, const std::string&) const;
template Option Command::Add(const std::string&, std::int32_t*, const std::string&) const;
template Option Command::Add(const std::string&, std::uint64_t*, const std::string&) const;
template Option Command::Add(const std::string&, std::vector<std::string>*,
                             const std::string&) const;
template Option Command::Add(const std::string&, std::vector<std::uint32_t>*,
                             const std::string&) const;

template <typename Value>
Option Command::AddSetter(const std::string& name, std::function<void(const Value&)> set,
                          const std::string& description) const {
  return Added(parser_->add_option_function<Value>(name, set, description));
}
template Option Command::AddSetter(const std::string&, std::function<void(const std::string&)>,
                                   const std::string&) const;
template Option Command::AddSetter(const std::string&, std::function<void(const std::uint32_t&)>,
                                   const std::string&) const;
template Option Command::AddSetter(const std::string&, std::function<void(const std::int32_t&)>,
                                   const std::string&) const;
template Option Command::AddSetter(const std::string&, std::function<void(const std::uint64_t&)>,
                                   const std::string&) const;

Option Command::AddName(std::string* value) const {
  return Add("NAME", value, "The semaphore").Takes(kTakesSemaphore).Required();
}

Option Command::AddFlag(const std::string& name, bool* value,
                        const std::string& description) const {
  return Option(parser_->add_flag(name, *value, description));
}

Option Command::AddDuration(const std::string& name, std::chrono::milliseconds* value,
                            const std::string& description, std::chrono::hours most) const {
  const auto set = [name, value, most](const std::string& text) {
    const auto parsed = ParseDuration(text);
    if (!parsed.has_value()) {
      throw CLI::ValidationError(name, "not a duration like 500ms, 30s, 5m or 1h30m: " + text);
    }
    if (*parsed > most) {
      throw CLI::ValidationError(
          name, absl::StrCat("must be at most ", FormatDuration(most), ", not ", text));
    }
    *value = *parsed;
  };
  return AddSetter<std::string>(name, set, description).Takes("DURATION");
}

Command Command::AddCommand(const std::string& name, const std::string& description,
                            const std::string& footer, std::function<void()> chosen) const {
  CLI::App* const command = parser_->add_subcommand(name, description);
  command->footer(footer);
  command->callback(std::move(chosen));
  command->fallthrough();  // --server and -o may stand behind the subcommand too
  return Command(command);
}

void Command::AddHiddenCommand(const std::string& name, std::function<void()> chosen) const {
  parser_->add_subcommand(name)->group("")->callback(std::move(chosen));
}

Command Command::AddExactlyOneOf(const std::string& name, const std::string& description) const {
  CLI::App* const group = parser_->add_option_group(name, description);
  return Command(group->require_option(1));
}

}  // namespace semaphore::semctl
