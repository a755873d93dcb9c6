#!/usr/bin/env bash
# tests/deep.sh in a repository of its own, with a simulation that is a script: what it lists, records and resumes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
world=$(mktemp -d)
trap 'rm -rf "$world"' EXIT

fail() { echo "deep_test: $*" >&2; exit 1; }

mkdir -p "$world/tests" "$world/bin" "$world/build/release/tests/simulation"
cd "$world"
cp "$here/deep.sh" tests/
printf '#!/bin/sh\nexit 0\n' >bin/cmake
cat >build/release/tests/simulation/simulation_tests <<'TEXT'
#!/bin/sh
echo "$SIM_FIRST_SEED $SIM_SEEDS" >>ran
[ ! -e broken ] || [ "$SIM_FIRST_SEED" != "$(cat broken)" ] || { echo 'replay: SIM_SEED=1234'; exit 1; }
[ ! -e slow ] || sleep 60
TEXT
chmod +x bin/cmake build/release/tests/simulation/simulation_tests
printf 'build/\nbin/\nran\nbroken\nslow\n' >.gitignore
export PATH=$world/bin:$PATH GIT_CONFIG_GLOBAL=/dev/null SEMAPHORED_DEEP_DIR=$world/build/deep
git init -q .
git -c user.name=t -c user.email=t@example.com commit -q --allow-empty -m empty
git add -A
git -c user.name=t -c user.email=t@example.com commit -q -m first

state() { tests/deep.sh --list | awk -v part="$1" '$1 == part {print ($2 == "not" ? "not run" : $2)}'; }
expect() { # PART STATE WHEN
  [ "$(state "$1")" = "$2" ] || fail "$3: $1 is '$(state "$1")', not '$2'"
}

tests/deep.sh --list | awk '$2 ~ /^(passed|failed|partly|not)$/ {print $1}' | while read -r each; do
  grep -q "\`$each\`" "$here/../docs/contributing.md" || fail "docs/contributing.md does not have the part $each"
done

part=release-seeds-10000
ledger=build/deep/results.tsv
expect "$part" "not run" "at first"

mkdir -p build/deep
printf '%s\t%s\tall\tpassed\t2026-01-01T00:00:00Z\t1\n' "$(git rev-parse HEAD^)" tidy >>"$ledger"
expect tidy "not run" "passed at another commit"

echo 1501 >broken
status=0
tests/deep.sh "$part" >build/out || status=$?
[ "$status" = 1 ] || fail "a failure ends with $status"
expect "$part" failed "after a failure"
[ "$(sort -u ran | wc -l)" = 20 ] || fail "a failure ended the other seeds"
grep -q $'\t'"$part"$'\t.*1501\tfailed\t' "$ledger" || fail "the ledger does not name the chunk"

rm broken ran
tests/deep.sh "$part" >build/out
[ "$(cat ran)" = "1501 500" ] || fail "resumed with '$(cat ran)'"
expect "$part" passed "after the rest"

echo changed >>.gitignore
expect "$part" "not run" "with a file that changed"
touch slow
rm ran
set -m  # A process group of its own, as at a terminal.
tests/deep.sh "$part" >build/out 2>&1 &
script=$!
set +m
for _ in {1..100}; do [ ! -e ran ] || break; sleep 0.1; done
kill -- "-$script"
status=0
wait "$script" || status=$?
rm -f slow
[ "$status" = 130 ] || fail "an interrupted run ends with $status"
expect "$part" partly "after an interruption"

git checkout -q .gitignore
expect "$part" passed "with the file as it was"
status=0
tests/deep.sh no-such-part 2>/dev/null || status=$?
[ "$status" = 2 ] || fail "an unknown part ends with $status"
[ "$(tests/deep.sh --results | wc -l)" = "$(wc -l <"$ledger")" ] || fail "--results is not the ledger"
echo "deep_test: passed"
