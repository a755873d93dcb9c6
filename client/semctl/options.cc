#include "client/semctl/options.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/semctl/duration.h"

namespace semaphore::semctl {

CLI::Option* TakesWords(CLI::Option* option, const std::vector<std::string>& words) {
  return option->type_name(absl::StrJoin(words, "|"))->check([words](const std::string& word) {
    if (std::find(words.begin(), words.end(), word) != words.end()) return std::string();
    return absl::StrCat("must be one of ", absl::StrJoin(words, ", "), ", not '", word, "'");
  });
}

std::vector<std::string> WordsOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (!absl::StrContains(type, "|")) return {};
  return absl::StrSplit(type, '|');
}

CLI::Option* AddDuration(CLI::App* app, const std::string& name, std::chrono::milliseconds* value,
                         const std::string& description, std::chrono::hours most) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, value, most](const std::string& text) {
            const auto parsed = ParseDuration(text);
            if (!parsed.has_value()) {
              throw CLI::ValidationError(name,
                                         "not a duration like 500ms, 30s, 5m or 1h30m: " + text);
            }
            if (*parsed > most) {
              throw CLI::ValidationError(
                  name, absl::StrCat("must be at most ", FormatDuration(most), ", not ", text));
            }
            *value = *parsed;
          },
          description)
      ->type_name("DURATION");
}

}  // namespace semaphore::semctl
