#!/usr/bin/env bash
# clang-tidy over our sources. tests/tidy.sh [--quick] [FILE...]: these files, or all; --quick leaves out the static
# analyzer, which takes a third of the time. What was clean is remembered, until the file, any header or the
# checks change.
set -euo pipefail
cd "$(dirname "$0")/.."

checks=
if [ "${1:-}" = --quick ]; then
  checks='-clang-analyzer-*,-bugprone-reserved-identifier'
  shift
fi

command -v clang-tidy >/dev/null || { echo "tidy: no clang-tidy: deploy/install.sh --tidy" >&2; exit 1; }
cmake --preset tidy >build/tidy.log 2>&1 || { cat build/tidy.log; exit 1; }
# Generated headers are included, so they must be there.
cmake --build --preset tidy --target semaphored_generated >>build/tidy.log 2>&1 ||
  { cat build/tidy.log; exit 1; }

if [ $# -gt 0 ]; then
  sources=("$@")
else
  mapfile -t sources < <(git ls-files 'adapters/*.cc' 'server/*.cc' 'client/*.cc')
fi

remembered=build/tidy/clean
mkdir -p "$remembered"
headers=$({ cat .clang-tidy; echo "$checks"; git ls-files -z '*.h' '*.proto' | xargs -0 sha256sum; } | sha256sum)

check_one() {
  local source=$1 key
  key=$({ echo "$headers"; cat "$source"; } | sha256sum | cut -c1-32)
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
export remembered headers checks

echo "tidy: ${#sources[@]} files"
if printf '%s\0' "${sources[@]}" | xargs -0 -P "${JOBS:-2}" -I{} bash -c 'check_one "$1"' _ {}; then
  echo "tidy: clean"
else
  echo "tidy: findings above"
  exit 1
fi
