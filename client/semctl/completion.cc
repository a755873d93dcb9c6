// semctl completion: scripts for bash and zsh, made from the commands themselves.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/semctl/context.h"
#include "client/semctl/exit_codes.h"

namespace semaphore::semctl {
namespace {

std::string Options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  // Groups ("exactly one of") are commands without a name to CLI11.
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (group->get_name().empty()) names.push_back(Options(*group));
  }
  return absl::StrJoin(names, " ");
}

// One `case` branch for each command: its options, and names of semaphores from the daemon where it
// takes one.
std::string Branches(const CLI::App& app) {
  std::string branches;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name().empty()) continue;
    absl::StrAppend(&branches, "    ", command->get_name(), ") options=\"", Options(*command),
                    "\" ;;\n");
  }
  return branches;
}

std::string Commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_name().empty()) names.push_back(command->get_name());
  }
  return absl::StrJoin(names, " ");
}

constexpr char kBash[] = R"SH(# Completion of semctl for bash: source <(semctl completion bash)
_semctl() {
  local current="${COMP_WORDS[COMP_CWORD]}" command="" options="" word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [ "$word" = "--" ] && { COMPREPLY=($(compgen -c -- "$current")); return; }
    [ -z "$command" ] && case " @COMMANDS@ " in *" $word "*) command="$word" ;; esac
  done
  if [ -z "$command" ]; then
    COMPREPLY=($(compgen -W "@COMMANDS@ @GLOBAL@" -- "$current"))
    return
  fi
  case "$command" in
@BRANCHES@  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$options @GLOBAL@" -- "$current")) ;;
    *) case "$command" in
         completion) COMPREPLY=($(compgen -W "bash zsh" -- "$current")) ;;
         renew|release|verify) ;;
         *) case "$command" in
              tickets) word="show cancel prioritise" ;;
              dead-letters) word="requeue purge" ;;
              *) word="" ;;
            esac
            COMPREPLY=($(compgen -W "$word $(semctl --connect-timeout 500ms list --names "$current" \
              2>/dev/null)" -- "$current")) ;;
       esac ;;
  esac
}
complete -F _semctl semctl
)SH";

// zsh runs bash's function through its own compatibility layer.
constexpr char kZshHead[] = R"SH(#compdef semctl
# Completion of semctl for zsh: source <(semctl completion zsh)
autoload -U +X bashcompinit && bashcompinit
)SH";

int Complete(const CLI::App& app, const std::string& shell) {
  const std::string script = absl::StrReplaceAll(
      kBash,
      {{"@COMMANDS@", Commands(app)}, {"@GLOBAL@", Options(app)}, {"@BRANCHES@", Branches(app)}});
  std::printf("%s%s", shell == "zsh" ? kZshHead : "", script.c_str());
  return kDone;
}

}  // namespace

void AddCompletionCommand(CLI::App& app, Context& context) {
  auto shell = std::make_shared<std::string>();
  AddCommand(app, context, "completion", "A completion script for bash or zsh",
             "  source <(semctl completion bash)\n  semctl completion zsh > ~/.zfunc/_semctl",
             [&app, shell] { return Complete(app, *shell); })
      ->add_option("SHELL", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
}

}  // namespace semaphore::semctl
