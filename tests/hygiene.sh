#!/usr/bin/env bash
# What no compiler checks about the repository itself. Prints each finding; exit 1 if there is any.
set -euo pipefail
cd "$(dirname "$0")/.."

findings=0
report() { # what, lines
  [ -z "$2" ] && return
  printf 'hygiene: %s:\n%s\n' "$1" "$2"
  findings=$((findings + 1))
}

files() { git ls-files -z "$@" | while IFS= read -r -d '' file; do [ -f "$file" ] && printf '%s\0' "$file"; done; }

# Object files, archives, programs and byte code, by name, and by content where it begins as a program does; corpora of the
# fuzzers are data.
compiled() {
  git ls-files | grep -v '^tests/fuzz/corpus/' | grep -E '\.(o|a|so|pyc|gch|pb\.cc|pb\.h)$|_pb2\.py$' || true
  files | grep -zv '^tests/fuzz/corpus/' | LC_ALL=C xargs -0 -r grep -lzP '\A\x7fELF' || true
}
report "compiled files are committed" "$(compiled)"

report "files over 1 MiB are committed" \
  "$(files | xargs -0 -r stat --format '%s %n' | awk '$1 > 1048576 {print $2}')"

code=('*.cc' '*.h' '*.proto' '*.cmake' '*CMakeLists.txt' '*.sh' '*.py' '.ci/run')
report "unfinished work is marked in code" \
  "$(git grep -nIwE 'TODO|FIXME|XXX|HACK' -- "${code[@]}" ':!tests/hygiene.sh' || true)"

report "white space at the end of a line" \
  "$(git grep -nIE '[[:blank:]]+$' -- "${code[@]}" | cut -c1-120 || true)"

# A semaphore.h in a folder that is on an include path hides the system's.
report "a header is called semaphore.h" "$(git ls-files | grep -E '(^|/)semaphore\.h$' || true)"

# Nothing that decides reads the wall clock. The injected clock's own file may, since what it returns is
# stored for people, and the log, which is written for them.
report "the wall clock is read outside server/base/clock.cc and logging.cc" \
  "$(git grep -nIE 'system_clock|CLOCK_REALTIME|gettimeofday' -- adapters server client \
       ':!server/base/clock.cc' ':!server/base/logging.cc' || true)"

# Headers of gRPC and Protobuf stay out of what the sanitizers build, an engine's out of all but its adapter.
report "gRPC or Protobuf in adapters/ or in a room of server/ that the sanitizers build" \
  "$(git grep -nIE '#include [<"](grpc|google/protobuf|proto/)' -- adapters \
       server/{base,config,access,figures,lanes,sessions,backup,otlp,commands,guard,http,page} || true)"
report "SQLite outside its adapter" \
  "$(git grep -nIE '#include <sqlite3' -- adapters server client ':!adapters/sqlite' || true)"

# adapters/open.* knows all engines, and stands above them.
report "folders include each other in a circle" \
  "$(git grep -E '^#include "(adapters|server|client|proto)/' -- adapters server client ':!adapters/open.*' |
       sed 's|^\(.*\)/[^/]*:#include "\(.*\)/[^/]*"|\1 \2|' | sort -u | tsort 2>&1 >/dev/null || true)"

# A header says what it is for; so does a source file that has no header of its name.
without_head() {
  git ls-files '*.h' '*.cc' | grep -E '^(adapters|server|client)/' | while IFS= read -r file; do
    [ "${file%.cc}" != "$file" ] && [ -e "${file%.cc}.h" ] && continue
    [ ! -e "$file" ] || head -c 2 "$file" | grep -q '^//' || echo "$file"
  done
}
report "a file does not begin with a comment that says what it is for" "$(without_head)"

report "a source file of the product has more than 500 lines" \
  "$(files 'adapters/*.cc' 'adapters/*.h' 'server/*.cc' 'server/*.h' 'client/*.cc' 'client/*.h' | xargs -0 -r -n 100 wc -l |
    awk '$2 != "total" && $1 > 500')"

report "a class has too many methods (tests/classes.py)" "$(python3 -B tests/classes.py 2>&1 || true)"

# The walk of an Acquire, and the headers of server/sessions: each file that is named there exists.
named_files() {
  sed -n '/^## An Acquire, file by file/,/^## /p' docs/architecture.md | grep -oE '`[a-z]+/[a-z0-9_/]+\.(cc|h)`' | tr -d '`'
  sed -n '/^## The classes of Sessions/,/^## /p' docs/architecture.md | grep -E '^\| `' | cut -d'|' -f2 |
    grep -oE '`[a-z_]+\.h`' | tr -d '`' | sed '/^queue_paces\.h$/d; s|^|server/sessions/|'
}
report "docs/architecture.md names files that are not there" \
  "$(named_files | sort -u | while read -r file; do [ -f "$file" ] || echo "$file"; done)"
report "the walk in docs/architecture.md is gone" "$([ "$(named_files | wc -l)" -ge 50 ] || echo "fewer than 50 files are named")"

# The recipes: six steps each at most, and what they name is there.
recipes() { sed -n '/^## Recipes/,/^## Changing the API/p' docs/contributing.md; }
report "a recipe in docs/contributing.md has more than six steps" "$(recipes | grep -E '^([7-9]|[1-9][0-9])\. ' || true)"
missing_in_recipes() {
  recipes | grep -oE '`[A-Za-z_][A-Za-z0-9_./:]*`' | tr -d '`' | sort -u | while IFS= read -r name; do
    git ls-files | grep -F -- "$name" >/dev/null ||
      git grep -qF -- "${name##*::}" -- adapters server client proto tests deploy || echo "$name"
  done
}
report "a recipe in docs/contributing.md names what is not there" "$(missing_in_recipes)"
report "the recipes in docs/contributing.md are gone" "$([ "$(recipes | grep -c '^### ')" -ge 6 ] || echo "fewer than six")"

report "a line of prose has more than 200 characters" \
  "$(git ls-files '*.md' | LC_ALL=C.UTF-8 xargs grep -nE '^[^|].{200,}' | cut -c 1-80 || true)"

report "a decision record is longer than a page (700 words)" \
  "$(files 'docs/adr/*.md' | xargs -0 wc -w | awk '$2 != "total" && $1 > 700')"

report "a shell script is not executable" \
  "$(git ls-files -s '*.sh' '.ci/run' | awk '$1 != "100755" {print $4}')"
report "a shell script does not parse" \
  "$(files '*.sh' '.ci/run' | while IFS= read -r -d '' file; do bash -n "$file" 2>&1 || true; done)"

# The left column of docs/words.md, in lines that were added since the commit in tests/words.base. A line that was only
# moved, or whose white space changed, is not new.
refused='whoever|whomever|somebody|someone|anybody|anyone|nobody|everybody|anew'
refused+='|(is|are|was|were|been|being) told|asks? the engine whether|of first choice'
refused+='|AskBack|TakeBack|RecallOrEnd|GiveBackAsked|Restrained'
added_lines() {
  git diff -M -C --ignore-all-space -U0 "$1" -- . ':!docs/words.md' ':!tests/hygiene.sh' ':!tests/fuzz/corpus' | awk '
    /^diff --git / {header = 1; next}
    header && /^\+\+\+ / {file = substr($0, 7); next}
    /^@@ / {header = 0; number = substr($3, 2) + 0; next}
    header {next}
    {text = substr($0, 2); key = text; gsub(/[[:space:]]/, "", key)}
    /^-/ {removed[key] = 1}
    /^\+/ {where[++count] = file ":" number++ ": " text; keys[count] = key}
    END {for (i = 1; i <= count; i++) if (!(keys[i] in removed)) print where[i]}'
}
words_base=$(cat tests/words.base)
if git cat-file -e "$words_base^{commit}" 2>/dev/null; then
  # The user "nobody" is not a word of ours.
  report "words that docs/words.md replaces" \
    "$(added_lines "$words_base" | grep -iwE "$refused" | grep -vE "[=:\"']nobody|nobody[:\"']" | cut -c1-160 || true)"
  # Between daemons there are change notices. (What is stored under an older name keeps it.)
  report "words for a change notice that docs/words.md replaces" \
    "$(added_lines "$words_base" | grep '^adapters/' | grep -iwE 'hints?|news|mail|mailbox' |
      grep -vE '"(news|mail|MAIL#)"|t\.news|news text' | cut -c1-160 || true)"
else
  echo "hygiene: words are not checked: the commit in tests/words.base is not in this clone"
fi

if [ "$findings" -gt 0 ]; then
  echo "hygiene: $findings findings"
  exit 1
fi
echo "hygiene: clean"
