#!/usr/bin/env bash
# The API's form and its promise: buf's lint rules, and no breaking change against proto/semaphore.v1.binpb, the API as it
# was released. The rules are in proto/buf.yaml. Works without a network.
#
#   proto.sh          checks; also that each check fails when it should, on a copy with planted faults
#   proto.sh image    writes proto/semaphore.v1.binpb from the .proto as it is now
#   proto.sh fetch    brings buf into the user's cache by npm, in the version of tests/buf/package-lock.json
set -euo pipefail
cd "$(dirname "$0")/.."

image=proto/semaphore.v1.binpb
cache=${SEMAPHORED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/semaphored}
place=$cache/buf-$(sha256sum tests/buf/package-lock.json | cut -c1-16)
buf=$place/node_modules/.bin/buf

fail() { printf 'proto: %s\n' "$*" >&2; exit 1; }

# Complete, or not there.
fetch() {
  [ -x "$buf" ] && return
  command -v npm >/dev/null || fail "npm is not installed: deploy/install.sh --test"
  mkdir -p "$place"
  exec 9>"$place.lock"
  flock 9
  [ -x "$buf" ] && return
  local part=$place/part
  rm -rf "$part"
  mkdir "$part"
  cp tests/buf/package.json tests/buf/package-lock.json "$part/"
  (cd "$part" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  mv "$part/node_modules" "$place/"
  rm -rf "$part"
}

need_buf() { [ -x "$buf" ] || fail "buf is not in $cache: deploy/install.sh --test"; }
build() { "$buf" build "$1" --exclude-source-info -o "$2"; }
lint() { "$buf" lint "$1"; }
breaking() { "$buf" breaking "$1" --exclude-imports --against "$2"; }

# A copy of proto/ with the edit $1 must be refused by the check in the rest of the line, with a text like $2.
refuses() {
  local edit=$1 pattern=$2 said
  shift 2
  rm -rf "$copy/proto"
  cp -r proto "$copy/proto"
  sed -i "$edit" "$copy/proto/semaphore/v1/semaphore.proto"
  ! cmp -s proto/semaphore/v1/semaphore.proto "$copy/proto/semaphore/v1/semaphore.proto" ||
    fail "the planted fault '$edit' changes nothing"
  if said=$("$@" 2>&1); then fail "$1 accepts a .proto with the fault '$edit'"; fi
  printf '%s' "$said" | grep -qE "$pattern" || fail "$1 refuses '$edit' for another reason: $said"
}

check() {
  need_buf
  [ -f "$image" ] || fail "$image is missing: tests/proto.sh image"
  lint proto || fail "lint: see above"
  breaking proto "$image" || fail "this breaks programs that were built against $image: docs/compatibility.md"
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  refuses 's/string lease_id = 1;/string leaseId = 1;/' 'lower_snake_case' lint "$copy/proto"
  refuses '/^enum EndCause/,/^}/s/END_CAUSE_UNSPECIFIED/END_CAUSE_NONE/' '_UNSPECIFIED' lint "$copy/proto"
  refuses 's/uint64 epoch = 3;/uint64 epoch = 9;/' 'Previously present field "3"' breaking "$copy/proto" "$image"
  refuses 's/string holder = 9;/string owner = 9;/' 'changed name' breaking "$copy/proto" "$image"
  refuses '/END_CAUSE_MOVED = /d' 'enum value "12" .* was deleted' breaking "$copy/proto" "$image"
  echo "proto: clean"
}

case "${1:-check}" in
  check) check ;;
  image) need_buf && build proto "$image" ;;
  fetch) fetch ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
