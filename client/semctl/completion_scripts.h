// The completion scripts. Each asks `semctl __complete -- WORD...` what can stand in the place of the
// last word.
#ifndef SEMAPHORED_CLIENT_SEMCTL_COMPLETION_SCRIPTS_H_
#define SEMAPHORED_CLIENT_SEMCTL_COMPLETION_SCRIPTS_H_

namespace semaphore::semctl {

inline constexpr char kBashCompletion[] =
    R"SH(# Completion of semctl for bash: source <(semctl completion bash)
_semctl() {
  # bash splits words at : and = (COMP_WORDBREAKS), semctl does not: what no blank parts is one word.
  local line="${COMP_LINE:0:COMP_POINT}" words=() rest word i
  for ((i = 0; i <= COMP_CWORD; ++i)); do
    rest="${line#"${line%%[![:space:]]*}"}"
    word="${COMP_WORDS[i]}"
    ((i == COMP_CWORD)) && word="$rest"
    if ((i > 0)) && [ "$rest" = "$line" ]; then words[-1]+="$word"; else words+=("$word"); fi
    line="${rest#"$word"}"
  done
  local current="${words[-1]}" lines=() begun=""
  mapfile -t lines < <(semctl __complete -- "${words[@]:1}" 2>/dev/null)
  # What bash takes for words before the current one it does not want to see again.
  for word in : =; do
    [[ "$COMP_WORDBREAKS" == *"$word"* && "$current" == *"$word"* ]] || continue
    rest="${current%"${current##*"$word"}"}"
    ((${#rest} > ${#begun})) && begun="$rest"
  done
  case "${lines[0]}" in
    words) COMPREPLY=("${lines[@]:1}") ;;
    files | commands)
      compopt -o filenames 2>/dev/null
      begun="${begun#"${current%"${lines[1]}"}"}"
      mapfile -t COMPREPLY < <(
        [ "${lines[0]}" = files ] || compgen -c -- "${lines[1]}"
        compgen -f -- "${lines[1]}"
      ) ;;
    *) COMPREPLY=() ;;
  esac
  COMPREPLY=("${COMPREPLY[@]#"$begun"}")
}
complete -F _semctl semctl
)SH";

inline constexpr char kZshCompletion[] = R"SH(#compdef semctl
# Completion of semctl for zsh: source <(semctl completion zsh), or a file _semctl in a folder of $fpath
_semctl() {
  local -a lines
  lines=("${(@f)$(semctl __complete -- "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
  [[ "$PREFIX" == --*=* ]] && compset -P '*='
  case "$lines[1]" in
    words) compadd -- "${(@)lines[2,-1]#"$IPREFIX"}" ;;
    files) _files ;;
    commands) _command_names -e; _files ;;
  esac
}
if [ "$funcstack[1]" = _semctl ]; then
  _semctl "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
  compdef _semctl semctl
fi
)SH";

inline constexpr char kFishCompletion[] =
    R"SH(# Completion of semctl for fish: semctl completion fish | source
function __semctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (semctl __complete -- $words[2..] "$current" 2>/dev/null)
    set -l before (string replace -r '^(--[^=]*=)?.*' '$1' -- "$current")
    switch "$lines[1]"
        case words
            printf '%s\n' $lines[2..]
        case files commands
            test "$lines[1]" = commands; and complete -C "$lines[2]"
            for path in (__fish_complete_path "$lines[2]")
                echo "$before$path"
            end
    end
end
complete -c semctl -f -a '(__semctl_complete)'
)SH";

}  // namespace semaphore::semctl

#endif  // SEMAPHORED_CLIENT_SEMCTL_COMPLETION_SCRIPTS_H_
