#!/usr/bin/env bash
# Installs, builds and runs the tests, and ends in ctest's summary. From a clean clone on two cores
# under 25 minutes. A test that is skipped, or a kind of test that is missing, is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
Usage: tests/run.sh [--quick] [--preset NAME] [--only LABEL[,LABEL...]] [--targets NAMES] [--build-only | --no-build]
                    [--no-install] [--seeds N] [--help]

  --quick          fewer seeds
  --preset NAME    release (default), dev, asan-ubsan or tsan
  --only LABELS    only tests with one of these labels:
                   unit, contract, simulation, fuzz, service, e2e, hostile, storm, scale, python, install, hygiene,
                   engine, newer (engines of Debian's next release);
                   deep and newest (what only tests/deep.sh runs); with a sanitizer also group (tests/groups.cmake)
  --targets NAMES  build only these targets, separated by commas
  --build-only     run no tests
  --no-build       the build is there already
  --no-install     do not look for missing packages
  --seeds N        seeds of the simulation (1200; with --quick 500)

What takes longer than this is in tests/deep.sh: see tests/deep.sh --list.
One test again:  ctest --preset release -R 'part of its name' --output-on-failure
TEXT
}

preset=release
quick=no
install=yes
only=
targets=()
build=yes
run=yes
seeds=
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=yes ;;
    --preset) preset=${2:?--preset needs a name}; shift ;;
    --only) only=${2:?--only needs labels}; shift ;;
    --targets) IFS=, read -r -a targets <<<"${2:?--targets needs names}"; shift ;;
    --build-only) run=no ;;
    --no-build) build=no ;;
    --no-install) install=no ;;
    --seeds) seeds=${2:?--seeds needs a number}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

started=$SECONDS
say() { printf '\n== %s (%d s)\n' "$*" "$((SECONDS - started))"; }

if [ "$install" = yes ]; then
  say "packages"
  deploy/install.sh --test
fi

# What must have at least one test in this preset. The sanitizer presets build nothing that speaks gRPC.
case "$preset" in
  asan-ubsan | tsan) required=(unit contract simulation fuzz) ;;
  *) required=(hygiene unit contract newer simulation fuzz service e2e hostile storm scale python install) ;;
esac
if [ -n "$only" ]; then IFS=, read -r -a required <<<"$only"; fi

if [ "$build" = yes ]; then
  say "configuring $preset"
  cmake --preset "$preset"
  say "building $preset"
  command=(cmake --build --preset "$preset" -j "${JOBS:-2}")
  [ "${#targets[@]}" -eq 0 ] || command+=(--target "${targets[@]}")
  "${command[@]}"
fi
[ "$run" = yes ] || exit 0

if [ -z "$seeds" ]; then
  if [ "$quick" = yes ]; then seeds=500; else seeds=1200; fi
fi
export SIM_SEEDS=$seeds

select_tests=()
if [ -n "$only" ]; then select_tests+=(-L "^(${only//,/|})\$"); fi
# A test with the label deep has the label of its kind, too.
left_out=()
for label in deep newest; do
  [[ ",$only," == *",$label,"* ]] || left_out+=("$label")
done
if [ "${#left_out[@]}" -gt 0 ]; then select_tests+=(-LE "^($(IFS='|'; echo "${left_out[*]}"))\$"); fi

say "tests of $preset: ${required[*]}"
for label in "${required[@]}"; do
  listed=$(ctest --test-dir "build/$preset" -N -L "^$label\$" | sed -n 's/^Total Tests: //p')
  if [ "${listed:-0}" -eq 0 ]; then
    echo "tests/run.sh: there is no test with the label $label" >&2
    exit 1
  fi
done

junit=$PWD/build/$preset/junit.xml
rm -f "$junit"
status=0
ctest --preset "$preset" "${select_tests[@]}" --output-junit "$junit" || status=$?

# ctest counts what was skipped, disabled or not run as no failure: it proved nothing, so here it is one.
for kind in skipped disabled; do
  count=$(sed -n "s/.*[[:space:]]$kind=\"\([0-9]*\)\".*/\1/p" "$junit" | head -n 1)
  if [ "${count:-missing}" != 0 ]; then
    echo "tests/run.sh: ${count:-an unknown number of} tests $kind" >&2
    status=1
  fi
done
exit "$status"
