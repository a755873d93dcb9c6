// semctl completion: scripts for bash, zsh and fish. All of them call `semctl __complete`, which knows
// the table of options: what an option takes is what its type says (options.h).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/semctl/admin.h"
#include "client/semctl/command_line.h"
#include "client/semctl/completion_scripts.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"

namespace semaphore::semctl {
namespace {

constexpr std::uint32_t kNamesMax = 1'000;

// What can stand in the place of the last word. Printed a line each: "words" and the words; or
// "files" or "commands", and how theirs begins.
struct Candidates {
  std::string kind = "words";
  std::vector<std::string> words;
};

std::vector<std::string> Names(const Context& context, const std::string& prefix) {
  v1::AdministerRequest request;
  request.mutable_list()->set_prefix(prefix);
  request.mutable_list()->set_page_size(kNamesMax);
  Context impatient = context;
  impatient.connect_timeout = std::chrono::milliseconds(500);
  std::vector<std::string> names;
  const absl::StatusOr<v1::AdministerResponse> response = Administer(impatient, request);
  if (!response.ok()) return names;
  for (const v1::SemaphoreInfo& info : response->list().semaphores())
    names.push_back(info.semaphore());
  return names;
}

// `before` is the part of the word that stands before the value: "--output=".
Candidates ValuesOf(const Context& context, const KnownOption& option, const std::string& before,
                    const std::string& begun) {
  const std::string& type = option.type;
  if (type == kTakesFile) return {"files", {begun}};
  std::vector<std::string> values = WordsOf(type);
  if (type == kTakesSemaphore || type == kTakesPrefix) values = Names(context, begun);
  Candidates candidates;
  for (const std::string& value : values) candidates.words.push_back(absl::StrCat(before, value));
  return candidates;
}

std::vector<std::string> OptionNames(const CLI::App& app, const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* of : {&command, &app}) {
    for (const KnownOption& option : OptionsOf(*of, false)) names.push_back(option.name);
    if (&command == &app) break;
  }
  return names;
}

Candidates Find(CLI::App& app, const Context& context, std::vector<std::string> words) {
  const std::string current = words.empty() ? "" : words.back();
  if (!words.empty()) words.pop_back();
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes != words.end()) return {dashes + 1 == words.end() ? "commands" : "files", {current}};
  const CommandLine line = ReadCommandLine(app, words);
  if (line.awaiting.has_value()) return ValuesOf(context, *line.awaiting, "", current);
  const std::size_t equals = current.find('=');
  if (absl::StartsWith(current, "--") && equals != std::string::npos) {
    const std::string name = current.substr(0, equals);
    const std::optional<KnownOption> option = FindOption(app, line.command, name);
    if (!option.has_value()) return {};
    return ValuesOf(context, *option, name + "=", current.substr(equals + 1));
  }
  const CLI::App& command = line.command == nullptr ? app : *line.command;
  if (absl::StartsWith(current, "-")) return {"words", OptionNames(app, command)};
  if (line.command == nullptr) return {"words", CommandsOf(app)};
  const std::vector<KnownOption> positionals = OptionsOf(command, true);
  if (positionals.empty()) return {};
  const std::size_t place = line.places.size();
  const KnownOption& last = positionals.back();
  if (place >= positionals.size() && !last.takes_many) return {};
  return ValuesOf(context, place < positionals.size() ? positionals[place] : last, "", current);
}

int Complete(CLI::App& app, const Context& context) {
  const Candidates candidates = Find(app, context, context.command);
  std::printf("%s\n", candidates.kind.c_str());
  const std::string current = context.command.empty() ? "" : context.command.back();
  for (const std::string& word : candidates.words) {
    if (candidates.kind != "words" || absl::StartsWith(word, current))
      std::printf("%s\n", word.c_str());
  }
  return kDone;
}

}  // namespace

void AddCompletionCommands(Command app, Context& context) {
  app.AddHiddenCommand("__complete", [&parser = app.parser(), &context] {
    context.action = [&parser, &context] { return Complete(parser, context); };
  });
  auto shell = std::make_shared<std::string>();
  const Command completion =
      AddCommand(app, context, "completion", "A completion script for bash, zsh or fish",
                 R"(  source <(semctl completion bash)
  semctl completion zsh > ~/.zfunc/_semctl
  semctl completion fish > ~/.config/fish/completions/semctl.fish)",
                 [shell] {
                   std::printf("%s", *shell == "bash"  ? kBashCompletion
                                     : *shell == "zsh" ? kZshCompletion
                                                       : kFishCompletion);
                   return kDone;
                 });
  completion.Add("SHELL", shell.get(), "The shell").TakesWords({"bash", "zsh", "fish"}).Required();
}

}  // namespace semaphore::semctl
