#!/bin/sh
# From a bare Debian 12 to a running daemon that does its main job: keep a fragile service from falling over.
set -eu

usage() {
  cat <<'TEXT'
Usage: sh deploy/quickstart.sh [--keep] [--help]

Installs what is missing, builds, starts the daemon on its embedded store, and shows a web service that bears four
requests at once with forty eager clients: first without the daemon, then with it.

  --keep   leave the daemon running, and say how to talk to it

Safe to run again: what is there is used as it is. Everything goes into build/; nothing outside of it is changed
but for the Debian packages. The exit code is 0 only if not one request was refused.
TEXT
}

keep=no
for argument in "$@"; do
  case "$argument" in
    --keep) keep=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
state=$root/build/quickstart
bin=$root/build/release/bin

step() { printf '\n== %s\n' "$*"; }

step "1/4 Packages"
command -v bash >/dev/null || { echo "bash is missing" >&2; exit 1; }
bash deploy/install.sh --demo

step "2/4 Build (a few minutes the first time)"
cmake --preset release -DSEMAPHORED_TESTS=OFF >"$root/build-configure.log" 2>&1 || {
  cat "$root/build-configure.log" >&2; rm -f "$root/build-configure.log"; exit 1; }
rm -f "$root/build-configure.log"
cmake --build --preset release --target semaphored semctl

step "3/4 Start"
mkdir -p "$state"
daemon_pid=''
service_pid=''
stop() {
  [ -z "$service_pid" ] || kill "$service_pid" 2>/dev/null || true
  if [ -n "$daemon_pid" ] && [ "$keep" = no ]; then
    kill "$daemon_pid" 2>/dev/null || true
    wait "$daemon_pid" 2>/dev/null || true
  fi
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Waits until a file has a line, as long as the process lives; at most 20 s.
await_line() { # file, pid, what
  tries=0
  until [ -s "$1" ]; do
    kill -0 "$2" 2>/dev/null || { echo "$3 has ended:" >&2; cat "$state"/*.log >&2; exit 1; }
    tries=$((tries + 1))
    [ "$tries" -le 200 ] || { echo "$3 did not start in 20 s" >&2; cat "$state"/*.log >&2; exit 1; }
    sleep 0.1
  done
}

if [ -s "$state/daemon.pid" ] && kill -0 "$(cat "$state/daemon.pid")" 2>/dev/null &&
  [ "$(readlink "/proc/$(cat "$state/daemon.pid")/exe" 2>/dev/null)" = "$bin/semaphored" ]; then
  echo "The daemon of an earlier run with --keep is still there: it is used."
  keep=yes
else
  rm -f "$state/daemon.out"
  "$bin/semaphored" --store "sqlite://$state/state.db" --listen 127.0.0.1:0 \
    >"$state/daemon.out" 2>"$state/daemon.log" &
  daemon_pid=$!
  await_line "$state/daemon.out" "$daemon_pid" "The daemon"
  echo "$daemon_pid" >"$state/daemon.pid"
  grep -oE '127\.0\.0\.1:[0-9]+' "$state/daemon.out" | head -n 1 >"$state/daemon.address"
fi
SEMCTL_SERVER=$(cat "$state/daemon.address")
export SEMCTL_SERVER
echo "semaphored serves on $SEMCTL_SERVER, its state is in $state/state.db"

rm -f "$state/service.port"
python3 deploy/demo/fragile_service.py --port-file "$state/service.port" 2>"$state/service.log" &
service_pid=$!
await_line "$state/service.port" "$service_pid" "The fragile service"
url=http://127.0.0.1:$(cat "$state/service.port")
echo "The fragile service is at $url; it refuses every request beyond four at once."

step "4/4 Forty clients, two hundred requests"
echo "Without semaphored:"
python3 deploy/demo/crowd.py --url "$url" --bare
echo
echo "Each through: semctl run fragile --limit 4 -- curl $url"
result=0
python3 deploy/demo/crowd.py --url "$url" --semctl "$bin/semctl" || result=$?
echo
if [ "$result" -ne 0 ]; then
  echo "That should not have happened. The daemon said:" >&2
  cat "$state/daemon.log" >&2
  exit "$result"
fi
if [ "$keep" = yes ]; then
  echo "The daemon goes on. Talk to it:"
  echo "  export SEMCTL_SERVER=$SEMCTL_SERVER"
  echo "  $bin/semctl describe fragile"
  echo "  $bin/semctl run fragile --limit 4 -- sleep 5"
  echo "  kill $(cat "$state/daemon.pid")      # to stop it"
else
  echo "Done. Next: sh deploy/quickstart.sh --keep, and the tour in README.md."
fi
