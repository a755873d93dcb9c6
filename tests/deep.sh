#!/usr/bin/env bash
# The checks that take too long for .ci/run. Each part runs alone, can be resumed, and records its result.
#
# A new part is one function below ("The parts") and one row in the table after them.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

usage() {
  cat <<'TEXT'
Usage: tests/deep.sh [--minutes N] [--again] PART...
       tests/deep.sh --list | --results | --help

  PART         the parts to run, in this order; "all" runs every part
  --minutes N  stops each part after about N minutes; the next run of the part resumes it
  --again      forgets what the parts have done at this commit, and begins again
  --list       each part with its state at this commit:
                 passed    the part is complete and found nothing
                 failed    its latest run found something
                 partly    its latest run ended before the part was complete, and found nothing
                 not run   nothing is recorded at this commit
  --results    prints the results ledger, oldest row first

A tree with uncommitted changes counts as a commit of its own. The name of that commit ends in "+" and a
hash of the changes.

Files, below build/deep/ (or the folder that SEMAPHORED_DEEP_DIR names):
  results.tsv     the results ledger, append-only, tab-separated: commit, part, range, result, date (UTC), seconds
  COMMIT/PART/    what the part has done so far, and the logs of what failed

Exit code: 0 all parts passed, 1 a part failed, 2 usage, 75 a part is not complete and none failed.

Examples:
  tests/deep.sh --list
  tests/deep.sh --minutes 20 seeds        # the first 20 minutes, or the next 20
  tests/deep.sh fuzz-record fuzz-config
  JOBS=1 tests/deep.sh all                # on one core
TEXT
}

jobs=${JOBS:-2}
root=${SEMAPHORED_DEEP_DIR:-$PWD/build/deep}
ledger=$root/results.tsv
unfinished=75

# ---- What the parts use. A part runs with:
#   folder    its state on disk at this commit
#   deadline  when it must stop, in seconds since the epoch
#   covered   what it sets: the range that the ledger records, without tabs
# It returns 0 (complete, nothing found), $unfinished (the time is over) or anything else (failed).

time_left() { echo $((deadline - $(date +%s))); }

# build PRESET TARGET
build() {
  { cmake --preset "$1" && cmake --build --preset "$1" -j "$jobs" --target "$2"; } >"$folder/build.log" 2>&1 && return
  tail -n 30 "$folder/build.log"
  return 1
}

# once NAME COMMAND...: runs the command within the time that is left, unless it has succeeded at this commit.
once() {
  local name=$1 status=0 left
  shift
  [ -e "$folder/$name.done" ] && return 0
  left=$(time_left)
  [ "$left" -gt 0 ] || return "$unfinished"
  # In the background, since a trap waits for what runs in the foreground.
  timeout "$left" "$@" &
  wait $! || status=$?
  [ "$status" -ne 124 ] || return "$unfinished"
  [ "$status" -ne 0 ] || touch "$folder/$name.done"
  return "$status"
}

# One process for each chunk of seeds. A failure keeps its log; the tenth ends the run (255 stops xargs).
run_chunk() { # PROGRAM FIRST COUNT STATE
  local log=$4/seeds-$2.log
  [ "$(date +%s)" -lt "$deadline" ] || return 0
  if SIM_FIRST_SEED=$2 SIM_SEEDS=$3 "$1" 'seeds: *' >"$log" 2>&1; then
    rm -f "$log"
    echo "$2" >>"$4/done"
    return 0
  fi
  echo "$2" >>"$4/failed"
  grep -a 'replay:' "$log" || tail -n 20 "$log"
  [ "$(wc -l <"$4/failed")" -lt 10 ] || return 255
}
export -f run_chunk

# run_seeds PRESET COUNT CHUNK: the seeds 1 to COUNT of the simulation; COUNT is a multiple of CHUNK.
run_seeds() {
  local state=$folder/$1 pending count
  build "$1" simulation_tests || return 1
  mkdir -p "$state"
  touch "$state/done"
  rm -f "$state/failed" "$state"/seeds-*.log
  # What failed in an earlier run is among the first, since chunks begin in order.
  pending=$(seq 1 "$3" "$2" | grep -vxF -f "$state/done")
  covered="$1 seeds 1-$2: interrupted"
  export deadline
  [ -z "$pending" ] || xargs -P "$jobs" -I{} bash -c 'run_chunk "$@"' _ \
    "build/$1/tests/simulation/simulation_tests" {} "$3" "$state" <<<"$pending"
  count=$(($(sort -u "$state/done" | wc -l) * $3))
  covered="$1 seeds 1-$2: $count passed"
  echo "deep: $covered"
  if [ -e "$state/failed" ]; then
    covered+=", failed in the chunks of $3 from $(sort -n "$state/failed" | paste -sd ' ')"
    return 1
  fi
  [ "$count" -eq "$2" ] || return "$unfinished"
}

# ---- The parts

seeds() { run_seeds release 1000000 2000; }
# The same seeds, by cell of the matrix, with a table of the branches of the rules that were taken beside each fault. In
# one seed of twenty there are queues of hundreds, or hundreds of dead letters.
matrix() {
  local cells status=0 program=build/release/tests/simulation/simulation_tests
  export SIM_TABLE=$folder/table.tsv SIM_CROWD_PERCENT=5
  run_seeds release 120000 1200 || status=$?
  unset SIM_TABLE SIM_CROWD_PERCENT
  [ -e "$folder/table.tsv" ] || return "$status"
  # Summed up each time, so that the file stays small.
  awk -F '\t' -v OFS='\t' '
    {key = $1 OFS $2; keys[key] = 1; if (NF > width[key]) width[key] = NF
     for (i = 3; i <= NF; ++i) sum[key, i] += $i}
    END {for (key in keys) {line = key; for (i = 3; i <= width[key]; ++i) line = line OFS sprintf("%.0f", sum[key, i]); print line}}
  ' "$folder/table.tsv" | sort >"$folder/table.sum" && mv "$folder/table.sum" "$folder/table.tsv"
  "$program" 'names of all branches' >"$folder/names" || return 1
  tests/simulation/branch_table.py "$folder/names" "$folder/table.tsv" tests/simulation/impossible.txt \
    >"$folder/branches.txt" || [ "$status" -ne 0 ] || status=1
  cat "$folder/branches.txt"
  printf '%-50s %10s %12s %12s\n' cell seeds ends faults
  awk -F '\t' '$1 == "cell" {printf "%-50s %10d %12d %12d\n", $2, $3, $4, $5}' "$folder/table.tsv"
  echo "impossible: lanes 3, exclusive (a store that owns its rows has one writer)"
  cells=$(awk -F '\t' '$1 == "cell"' "$folder/table.tsv" | wc -l)
  echo "deep: $cells of 12 cells; $(tail -n 1 "$folder/branches.txt"); the table: $folder/branches.txt"
  [ "$status" -ne 0 ] || [ "$cells" -eq 12 ] || status=1
  return "$status"
}
release_seeds_10000() { run_seeds release 10000 500; }

# Thirty slices of one minute, each with a seed of its own. All commits add to one folder of what was found.
fuzz() {
  local name=$1 slice log=$folder/log
  covered="no slice"
  build asan-ubsan "fuzz_$name" || return 1
  mkdir -p "$root/found/$name"
  for slice in {1..30}; do
    [ -e "$folder/$slice.done" ] && { covered="slices of 60 s with the seeds 1-$slice"; continue; }
    [ "$(time_left)" -ge 60 ] || return "$unfinished"
    "build/asan-ubsan/tests/fuzz/fuzz_$name" -seed="$slice" -max_total_time=60 -timeout=10 -rss_limit_mb=2048 \
      -max_len=4096 -artifact_prefix="$folder/" "$root/found/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || {
      tail -n 40 "$log"
      covered="slice of 60 s with the seed $slice"
      return 1
    }
    touch "$folder/$slice.done"
    covered="slices of 60 s with the seeds 1-$slice"
  done
}
fuzz_record() { fuzz record; }
fuzz_config() { fuzz config; }
fuzz_request() { fuzz request; }
fuzz_names() { fuzz names; }
fuzz_guard() { fuzz guard; }

# tests/tidy.sh itself remembers which files were clean.
tidy() {
  covered="all files, all checks"
  once all tests/tidy.sh || return
  echo "deep: tests/tidy.base may move to this commit:"
  echo "  git rev-parse ${commit%+*} >tests/tidy.base"
}

# .ci/run runs a selection of these: the label group.
sanitizers() {
  local preset label
  for preset in asan-ubsan tsan; do
    for label in unit contract fuzz; do
      covered="$preset: $label tests"
      once "$preset-$label" tests/run.sh --preset "$preset" --no-install --only "$label" || return
    done
  done
  run_seeds asan-ubsan 10000 100 || return
  run_seeds tsan 10000 100 || return
  covered="all tests, seeds 1-10000, both presets"
}

# A hundred and twenty histories of half a minute, each with a seed of its own. One that is not explained is kept. In
# every fourth the faults last for longer than the node TTL, so that fewer operations are answered.
histories() {
  local engine=$1 slice faults
  covered="no history"
  build release semaphored || return 1
  build release python_stubs || return 1
  build release python_client || return 1
  build release history_driver || return 1
  for slice in {1..120}; do
    [ -e "$folder/$slice.done" ] && { covered="histories of 30 s with the seeds 1-$slice"; continue; }
    [ "$(time_left)" -ge 60 ] || return "$unfinished"
    faults=()
    [ $((slice % 4)) -ne 0 ] || faults=(--pause 7 --operations 2000)
    SEMAPHORED_BIN_DIR=$PWD/build/release/bin SEMAPHORED_STUBS_DIR=$PWD/build/release/python_stubs \
      /usr/bin/python3 -B tests/history/record.py "$engine" --seconds 30 --seed "$slice" "${faults[@]}" \
      --file "$folder/history.jsonl" >"$folder/log" 2>&1 || {
      tail -n 40 "$folder/log"
      covered="history of 30 s with the seed $slice"
      return 1
    }
    touch "$folder/$slice.done"
    covered="histories of 30 s with the seeds 1-$slice"
  done
}
history_sqlite() { histories sqlite; }
history_postgres() { histories postgres; }
history_consul() { histories consul; }
history_dynamodb() { histories dynamodb; }
history_rabbitmq() { histories rabbitmq; }

# Ten storms of a minute, each with a seed of its own, on the engines by turns. One that finds something is kept.
storms() {
  local language=$1 slice engine engines=(postgres consul sqlite)
  covered="no storm"
  build release semaphored || return 1
  build release semctl || return 1
  build release python_stubs || return 1
  build release python_client || return 1
  build release storm_holder || return 1
  for slice in {1..10}; do
    [ -e "$folder/$slice.done" ] && { covered="storms of 60 s with the seeds 1-$slice"; continue; }
    [ "$(time_left)" -ge 90 ] || return "$unfinished"
    engine=${engines[$(((slice - 1) % 3))]}
    rm -rf "$folder/storm"
    SEMAPHORED_BIN_DIR=$PWD/build/release/bin SEMAPHORED_STUBS_DIR=$PWD/build/release/python_stubs \
      /usr/bin/python3 -B tests/storm/storm.py "$language" --seconds 60 --seed "$slice" --engine "$engine" \
      --keep "$folder/storm" >"$folder/log" 2>&1 || {
      grep -v '^planned' "$folder/log" | tail -n 40
      covered="storm of 60 s with the seed $slice on $engine"
      return 1
    }
    grep ' grants, ' "$folder/log" | sed "s/^/seed $slice on $engine: /"
    touch "$folder/$slice.done"
    covered="storms of 60 s with the seeds 1-$slice"
  done
}
storm_semctl() { storms semctl; }
storm_cpp() { storms cpp; }
storm_python() { storms python; }
storm_node() { storms node; }

# Ten times a minute of attacks, each with a seed of its own, by turns without TLS and with it.
hostile() {
  local slice tls
  covered="no attack"
  build release semaphored || return 1
  build release python_stubs || return 1
  for slice in {1..10}; do
    [ -e "$folder/$slice.done" ] && { covered="attacks of 60 s with the seeds 1-$slice"; continue; }
    [ "$(time_left)" -ge 120 ] || return "$unfinished"
    tls=()
    [ $((slice % 2)) -ne 0 ] || tls=(--tls)
    SEMAPHORED_BIN_DIR=$PWD/build/release/bin SEMAPHORED_STUBS_DIR=$PWD/build/release/python_stubs \
      /usr/bin/python3 -B tests/hostile/mixed.py --seconds 60 --seed "$slice" "${tls[@]}" >"$folder/log" 2>&1 || {
      tail -n 40 "$folder/log"
      covered="attacks of 60 s with the seed $slice"
      return 1
    }
    sed "s/^/seed $slice: /" "$folder/log"
    touch "$folder/$slice.done"
    covered="attacks of 60 s with the seeds 1-$slice"
  done
}

rule_mutants() {
  covered="all mutants of tests/mutants/rules.py"
  once all tests/mutants/rules.py --jobs "$jobs" --folder "$folder/tree"
}

format_mutants() {
  covered="all mutants of tests/mutants/formats.py"
  once all tests/mutants/formats.py --jobs "$jobs" --folder "$folder/tree"
}

client_mutants() {
  covered="all C++ mutants of tests/mutants/clients.py"
  once all tests/mutants/clients.py --jobs "$jobs" --folder "$folder/tree" cpp
}

# Each small world, breadth first and completely to depth 10. What is resumed is the list: a world takes minutes.
worlds() {
  local name file count=0 status program=build/release/tests/worlds/worlds_tests
  covered="no world"
  build release worlds_tests || return 1
  while read -r name; do
    file=world-${name//[^a-z]/-}
    status=0
    # (The log of one that is through stays.)
    [ -e "$folder/$file.done" ] || once "$file" env WORLD="$name" "$program" 'one world' >"$folder/$file.log" 2>&1 || status=$?
    [ "$status" -ne "$unfinished" ] || return "$unfinished"
    if [ "$status" -ne 0 ]; then
      tail -n 60 "$folder/$file.log"
      covered="the world $name"
      return 1
    fi
    count=$((count + 1))
    covered="$count worlds"
  done < <("$program" 'names of all worlds' | sed -n 's/^world: //p')
  grep -ahE '^(world|  depth) ' "$folder"/world-*.log
  covered="$count worlds to depth 10, $(grep -ah '^world ' "$folder"/world-*.log |
    sed 's/.*, \([0-9]*\) states, \([0-9]*\) transitions.*/\1 \2/' |
    awk '{states += $1; acts += $2} END {printf "%d states, %d transitions", states, acts}')"
}

slow_e2e() {
  covered="all tests with the label deep"
  once tests tests/run.sh --no-install --only deep
}

# This source with raised versions of its stores, beside this source.
versions() {
  build release semaphored || return 1
  build release python_stubs || return 1
  covered="no daemon of the next version"
  once next tests/versions/next.py --jobs "$jobs" --folder "$folder/next" || return
  covered="all cases of tests/versions"
  once beside env SEMAPHORED_BIN_DIR="$PWD/build/release/bin" SEMAPHORED_STUBS_DIR="$PWD/build/release/python_stubs" \
    SEMAPHORED_NEXT_DIR="$folder/next/build/release/bin" /usr/bin/python3 -B tests/versions/test_beside.py -v
}

# Postgres and RabbitMQ of the newest suite that Debian has: all of the adapters' tests, and their process tests.
engines_newer() {
  covered="all tests with the label newest"
  once tests tests/run.sh --no-install --only newest || return
  covered="$(grep -aho 'found: [a-z]* [0-9.]*' build/release/Testing/Temporary/LastTest.log | sort -u |
    sed 's/found: //' | paste -sd ' ')"
}

# copy_tree FOLDER: this tree, with what is not committed.
copy_tree() {
  mkdir -p "$1"
  git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -c | tar -x -C "$1"
}

# root_step SUITE NAME COMMAND...: once, in a root of this suite that has a copy of this tree. Its seconds are in NAME.seconds.
root_step() {
  local suite=$1 name=$2 status=0 begun=$SECONDS
  shift 2
  once "$name" python3 -B tests/engines/root.py run "$suite" "$folder/tree" "$@" >>"$folder/$name.log" 2>&1 || status=$?
  case "$status" in
    0)
      covered="up to $name"
      [ -e "$folder/$name.seconds" ] || echo $((SECONDS - begun)) >"$folder/$name.seconds"
      ;;
    "$unfinished") ;;
    *) tail -n 40 "$folder/$name.log" ;;
  esac
  return "$status"
}
debian_step() { root_step trixie "$@"; }

debian_tests() {
  local tests=build/release/tests url_file=SEMAPHORED_TEST_POSTGRES_URL_FILE=/mnt/build/postgres/url
  debian_step unit env "$url_file" $tests/unit/unit_tests '~[consul]~[rabbitmq]~[dynamodb]' || return
  debian_step contract env "$url_file" $tests/contract/contract_tests \
    '~[consul]~[consul-daemon]~[dynamodb]~[rabbitmq]~[rabbitmq-slots]' || return
  debian_step simulation env SIM_SEEDS=500 $tests/simulation/simulation_tests || return
  debian_step service $tests/service/service_tests || return
  debian_step conformance $tests/conformance/conformance_tests || return
  debian_step quickstart sh deploy/quickstart.sh
}

# With the compilers, the libraries and the Postgres of Debian 13.
debian_13() {
  local postgres=$folder/tree/build/postgres status=0
  covered="no step"
  copy_tree "$folder/tree" || return 1
  debian_step packages bash deploy/install.sh --unit --demo || return
  debian_step configure cmake --preset release || return
  debian_step build cmake --build --preset release -j "$jobs" --target semaphored semctl unit_tests contract_tests \
    simulation_tests service_tests conformance_tests || return
  SEMAPHORED_TEST_SUITE=trixie python3 -B tests/engines/postgres.py start "$postgres" || return 1
  debian_tests || status=$?
  python3 -B tests/engines/postgres.py stop "$postgres"
  return "$status"
}

# Two builds of the tarball, each from the beginning, in folders of different names.
tarball() {
  local copy time
  covered="no build"
  time=$(git log -1 --format=%ct)
  for copy in one another-folder; do
    if ! [ -e "$folder/$copy.done" ]; then
      rm -rf "${folder:?}/$copy"
      copy_tree "$folder/$copy" || return 1
    fi
    once "$copy" env CCACHE_DISABLE=1 CMAKE_BUILD_PARALLEL_LEVEL="$jobs" SOURCE_DATE_EPOCH="$time" \
      "$folder/$copy/deploy/tarball.sh" --out "$folder/$copy/out" || return
    covered="the build in $copy"
  done
  cmp "$folder/one/out/SHA256SUMS" "$folder/another-folder/out/SHA256SUMS" || return 1
  covered="two builds with the sum $(cut -c1-16 "$folder/one/out/SHA256SUMS")"
}

# What README.md has a new user type, in an empty Debian 12: the quickstart, which may take eight minutes on two cores, and
# the installation of the packages.
newcomer() {
  local seconds
  local -x SEMAPHORED_CACHE=$folder/cache
  covered="no step"
  if ! [ -e "$folder/quickstart.done" ]; then
    # What a run that was broken off has installed and built would make this one faster.
    rm -rf "${folder:?}"/{cache,tree,root.done,quickstart.log}
    copy_tree "$folder/tree" || return 1
  fi
  root_step bookworm root true || return
  root_step bookworm quickstart sh deploy/quickstart.sh || return
  seconds=$(cat "$folder/quickstart.seconds")
  covered="the quickstart in $seconds s"
  [ "$seconds" -le 480 ] || return 1
  root_step bookworm packages sh -c 'deploy/install.sh --packages && deploy/deb.sh' || return
  root_step bookworm install sh -c 'apt-get install -y ./build/packages/semaphored_*.deb ./build/packages/semctl_*.deb &&
    semaphored --version && semctl version' || return
  covered="the quickstart in $seconds s, the packages in $(cat "$folder/packages.seconds") s"
  rm -rf "${folder:?}/cache"
}

# name | function | what
parts="
seeds               | seeds               | 1,000,000 seeds of the simulation, release
matrix              | matrix              | 120,000 seeds, release, with a table of the matrix's cells and of the rules' branches by fault
release-seeds-10000 | release_seeds_10000 | the first 10,000 seeds, release
fuzz-record         | fuzz_record         | the fuzzer of stored records, 30 minutes
fuzz-config         | fuzz_config         | the fuzzer of settings, 30 minutes
fuzz-request        | fuzz_request        | the fuzzer of requests, 30 minutes
fuzz-names          | fuzz_names          | the fuzzer of names in keys, URLs, parameters and queues, 30 minutes
fuzz-guard          | fuzz_guard          | the fuzzer of the frames that the guard judges, 30 minutes
tidy                | tidy                | clang-tidy with all checks over all files
sanitizers          | sanitizers          | all unit, contract and fuzz tests and 10,000 seeds under ASan+UBSan and under TSan
history-sqlite      | history_sqlite      | histories of the daemon on the embedded store, an hour
history-postgres    | history_postgres    | the same on Postgres, an hour
history-consul      | history_consul      | the same on Consul, an hour
history-dynamodb    | history_dynamodb    | the same on DynamoDB Local, an hour
history-rabbitmq    | history_rabbitmq    | the same on RabbitMQ, by tokens only, an hour
storm-semctl        | storm_semctl        | kills and stops of semctl, its helpers, daemons and engines, ten minutes
storm-cpp           | storm_cpp           | the same with holders of the C++ client
storm-python        | storm_python        | the same with holders of the Python package
storm-node          | storm_node          | the same with holders of the Node client
hostile             | hostile             | attacks of all kinds from fifty connections beside an honest client, ten minutes
worlds              | worlds              | small worlds, each explored completely to depth 10
rule-mutants        | rule_mutants        | mutants inside the rules, each killed by a named contract case
format-mutants      | format_mutants      | changed bytes of stored formats, each found by a named golden test
client-mutants      | client_mutants      | mutants inside the C++ client's session machine, each killed by a named conformance trace
versions            | versions            | daemons of this version and of a made-up next one on each engine
engines-newer       | engines_newer       | all tests of Postgres and RabbitMQ on the newest versions that Debian has
debian-13           | debian_13           | the build and the tests without process tests on Debian 13, its Postgres among the engines
newcomer            | newcomer            | the quickstart, in at most eight minutes, and the installation of the packages, in an empty Debian 12
tarball             | tarball             | two builds of the tarball in different folders have the same bits
slow-e2e            | slow_e2e            | the process tests that are too slow for each change
"

# ---- The ledger

# The commit, with a hash of what is not committed.
commit_name() {
  local head
  head=$(git rev-parse HEAD)
  if [ -z "$(git status --porcelain)" ]; then
    echo "$head"
  else
    echo "$head+$({ git diff --binary HEAD; git ls-files -z --others --exclude-standard | xargs -0 -r sha256sum; } |
      sha256sum | cut -c1-12)"
  fi
}

part_rows() { sed -e '/^$/d' -e 's/ *| */|/g' <<<"$parts"; }
part_names() { part_rows | cut -d '|' -f 1; }
function_of() { part_rows | awk -F '|' -v name="$1" '$1 == name {print $2}'; }

record() { # PART RESULT SECONDS
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$commit" "$1" "$covered" "$2" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$3" >>"$ledger"
}

list() {
  local name what row state
  printf '%-20s %-8s %-20s %s\n' part state date 'what; range'
  while IFS='|' read -r name _ what; do
    row=
    if [ -e "$ledger" ]; then
      row=$(awk -F '\t' -v commit="$commit" -v part="$name" '$1 == commit && $2 == part {last = $0} END {print last}' "$ledger")
    fi
    state=$(cut -s -f 4 <<<"$row")
    printf '%-20s %-8s %-20s %s\n' "$name" "${state:-not run}" "$(cut -s -f 5 <<<"$row")" \
      "$what${row:+; $(cut -f 3 <<<"$row")}"
  done < <(part_rows)
}

# Runs a part, and records how it ended, also when it is interrupted.
run_part() {
  local name=$1 status=0 result started
  folder=$root/$commit/$name
  if [ "$again" = yes ]; then rm -rf "$folder"; fi
  mkdir -p "$folder"
  exec 9>"$folder/lock"
  flock -n 9 || { echo "deep: $name already runs" >&2; return 1; }
  printf '\n==== %s at %s\n' "$name" "$commit"
  covered='nothing yet'
  deadline=$(($(date +%s) + minutes * 60))
  started=$(date +%s)
  trap 'kill $(jobs -p) 2>/dev/null; record "$name" partly "$(($(date +%s) - started))"; exit 130' INT TERM
  "$(function_of "$name")" || status=$?
  trap - INT TERM
  exec 9>&-
  case "$status" in 0) result=passed ;; "$unfinished") result=partly ;; *) result=failed ;; esac
  if [ "$(commit_name)" != "$commit" ]; then
    echo "deep: files changed while $name ran: its result counts for no commit" >&2
    rm -rf "$folder"
    result=void
    status=1
  fi
  record "$name" "$result" "$(($(date +%s) - started))"
  echo "deep: $name: $result ($covered)"
  return "$status"
}

minutes=100000
again=no
names=()
action=run
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes) minutes=${2:?--minutes needs a number}; shift ;;
    --again) again=yes ;;
    --list | --results) action=${1#--} ;;
    --help | -h) usage; exit 0 ;;
    all) mapfile -t names < <(part_names) ;;
    *)
      [ -n "$(function_of "$1")" ] || { echo "deep: there is no part $1: see tests/deep.sh --list" >&2; exit 2; }
      names+=("$1")
      ;;
  esac
  shift
done
[[ "$minutes" =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }

# As in CMakePresets.json.
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
export TSAN_OPTIONS=suppressions=$PWD/tests/tsan.supp:print_suppressions=0

mkdir -p "$root"
commit=$(commit_name)
case "$action" in
  list) echo "at $commit"; list; exit 0 ;;
  results) [ ! -e "$ledger" ] || cat "$ledger"; exit 0 ;;
esac
[ "${#names[@]}" -gt 0 ] || { usage >&2; exit 2; }

worst=0
for name in "${names[@]}"; do
  status=0
  run_part "$name" || status=$?
  if [ "$status" -ne 0 ] && [ "$worst" -ne 1 ]; then
    if [ "$status" -eq "$unfinished" ]; then worst=$unfinished; else worst=1; fi
  fi
done
exit "$worst"
