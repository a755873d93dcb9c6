#!/usr/bin/env bash
# clang-tidy over our sources. What was clean is remembered, until the file, a header that it includes or the checks change.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
Usage: tests/tidy.sh [--quick] [--changed] [FILE...]

  FILE       checks these files (default: every .cc file of adapters/, server/ and client/)
  --quick    leaves out the static analyzer, which takes a third of the time
  --changed  checks only the .cc files that differ from the commit in tests/tidy.base, and for each header that does
             one file that includes it. A move, another order of includes, or another comment is no difference. Without
             that commit, as in a shallow clone, or with other checks than at that commit: every file, as with --quick.

tests/tidy.base moves only after "tests/deep.sh tidy" has passed.
TEXT
}

quick='-clang-analyzer-*,-bugprone-reserved-identifier'
checks=
changed=no
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) checks=$quick ;;
    --changed) changed=yes ;;
    --help | -h) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) break ;;
  esac
  shift
done

all_sources() { git ls-files 'adapters/*.cc' 'server/*.cc' 'client/*.cc'; }

# The tracked files whose content differs from the commit $1 by more than includes, blank lines and lines of comments; of a
# .proto, the headers that are generated from it.
changed_files() {
  git diff -M -U0 "$1" -- '*.cc' '*.h' '*.proto' | awk '
    /^diff --git / {header = 1}
    header && /^\+\+\+ / {file = substr($0, 7); header = 0; next}
    /^[+-]/ && !header && (/NOLINT/ || !/^[+-][[:space:]]*($|#include |\/\/)/) && file != "ev/null" {print file}' |
    sed 's/\(.*\)\.proto$/\1.pb.h\n\1.grpc.pb.h/' | sort -u
}

# Of all sources, those to check because of what changed since the commit $1: those that changed, and for each header
# that changed one that includes it, since each of them shows what is wrong in the header.
changed_sources() {
  local folders=('adapters/*.cc' 'server/*.cc' 'client/*.cc') files changed header includers
  files=$(changed_files "$1")
  changed=$(grep '\.cc$' <<<"$files" | sort)
  {
    echo "$changed"
    grep '\.h$' <<<"$files" | while read -r header; do
      includers=$(git grep -lF "#include \"$header\"" -- "${folders[@]}" | sort) || continue
      # One that is checked anyway will do.
      [ -n "$(comm -12 <(echo "$includers") <(echo "$changed"))" ] || head -n 1 <<<"$includers"
    done
  } | sort -u | comm -12 - <(all_sources | sort)
}

command -v clang-tidy >/dev/null || { echo "tidy: no clang-tidy: deploy/install.sh --tidy" >&2; exit 1; }
mkdir -p build
cmake --preset tidy >build/tidy.log 2>&1 || { cat build/tidy.log; exit 1; }
# Generated headers are included, so they must be there.
cmake --build --preset tidy --target semaphored_generated >>build/tidy.log 2>&1 ||
  { cat build/tidy.log; exit 1; }

base=$(cat tests/tidy.base 2>/dev/null || true)
if [ $# -gt 0 ]; then
  sources=("$@")
elif [ "$changed" = yes ] && git cat-file -e "${base:-missing}^{commit}" 2>/dev/null &&
  git diff --quiet "$base" -- .clang-tidy; then
  echo "tidy: what changed since $base"
  mapfile -t sources < <(changed_sources "$base")
else
  if [ "$changed" = yes ]; then
    echo "tidy: the commit of tests/tidy.base is not here, or it had other checks: every file, quick checks"
    checks=$quick
  fi
  mapfile -t sources < <(all_sources)
fi

remembered=build/tidy/clean
mkdir -p "$remembered"
# Of each source the files of this tree that it is compiled from, itself among them: "SOURCE FILE" per line.
parts=build/tidy/parts
tools=$(dirname "$(readlink -f "$(command -v clang-tidy)")")
# Sources that cannot be scanned, as those of a target that is not built, have no lines.
{ "$tools/clang-scan-deps" --compilation-database=build/tidy/compile_commands.json -j "${JOBS:-2}" 2>/dev/null || true; } |
  awk -v root="$PWD/" '
    {
      for (i = 1; i <= NF; ++i) {
        if ($i ~ /:$/) {source = ""; continue}
        if (index($i, root) != 1) continue
        file = substr($i, length(root) + 1)
        if (source == "") source = file
        print source, file
      }
    }' >"$parts"

check_one() {
  local source=$1 files key
  mapfile -t files < <(awk -v source="$source" '$1 == source {print $2}' "$parts")
  [ "${#files[@]}" -gt 0 ] || { echo "tidy: $source: the compilation database does not have it"; return 1; }
  key=$(cat .clang-tidy <(echo "$checks $source") "${files[@]}" | sha256sum | cut -c1-32)
  [ -e "$remembered/$key" ] && return 0
  if clang-tidy -p build/tidy --quiet --checks="$checks" "$source" 2>/dev/null >"$remembered/$key.out"; then
    rm -f "$remembered/$key.out"
    touch "$remembered/$key"
  else
    printf 'tidy: %s\n' "$source"
    cat "$remembered/$key.out"
    rm -f "$remembered/$key.out"
    return 1
  fi
}
export -f check_one
export remembered parts checks

echo "tidy: ${#sources[@]} files"
[ "${#sources[@]}" -gt 0 ] || exit 0
if printf '%s\0' "${sources[@]}" | xargs -0 -P "${JOBS:-2}" -I{} bash -c 'check_one "$1"' _ {}; then
  echo "tidy: clean"
else
  echo "tidy: findings above"
  exit 1
fi
